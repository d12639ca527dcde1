// A program of a user of the C++ API, for memory_limits.py: `memory_limits_host CASE` runs one of its cases
// in the working folder. Exit code 3 with an AICF-E code on stderr where memory is short.
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <aicf/aicf.h>

namespace {

void compile() {
  aicf::ImportOptions options;
  options.dims = {{"batch", "1..8"}};
  aicf::compile(aicf::import_onnx("m.onnx", options)).save("host.aicf");
}

void run() {
  const aicf::Tensor x = aicf::read_npy("x.npy");
  aicf::Executable exe = aicf::Executable::load("m.aicf");
  for (int i = 0; i < 3; ++i) exe.run({{"x", x}});
  aicf::Executable other = exe.clone();
  const aicf::Tensor y(aicf::DType::f32, {4, 10});
  other.run_into({x}, {y});
  other.verify(2);
}

void train() {
  const aicf::Tensor x = aicf::read_npy("x.npy"), labels = aicf::read_npy("l.npy");
  aicf::TrainStep step = aicf::TrainStep::load("step.aicf");
  for (int i = 0; i < 3; ++i) step.run({x, labels});
  step.save_checkpoint("host.checkpoint");
  step.load_checkpoint("host.checkpoint");
}

// The least that C++ needs to tell anything: without the memory that its runtime sets aside for exceptions
// when a program starts, a throw is std::terminate.
void start() { delete[] new char[128 << 10]; }

void begin(const std::string& name) {
  if (name == "--version") start();
  if (name == "compile") compile();
  if (name == "run") run();
  if (name == "train") train();
}

}  // namespace

int main(int, char** words) {
  try {
    begin(words[1]);
  } catch (const aicf::EnvironmentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  } catch (const std::bad_alloc&) {  // as any C++ may throw
    std::fputs("error[AICF-E0002] as std::bad_alloc\n", stderr);
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
