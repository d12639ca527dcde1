#include "codegen/nvrtc.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "base/out_of_memory.h"
#include "codegen/forked.h"
#include "kernels/common/cuda_kernel.h"

namespace aicf {
namespace {

// The part of NVRTC's interface that is used; nvrtcResult is an enum whose 0 is success.
struct Nvrtc {
  using Program = void*;
  const char* (*get_error_string)(int);
  int (*version)(int*, int*);
  int (*create_program)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                        const char* const* names);
  int (*destroy_program)(Program*);
  int (*compile_program)(Program, int options, const char* const*);
  int (*get_log_size)(Program, size_t*);
  int (*get_log)(Program, char*);
  int (*get_cubin_size)(Program, size_t*);
  int (*get_cubin)(Program, char*);
  int (*get_ptx_size)(Program, size_t*);
  int (*get_ptx)(Program, char*);
};

const Nvrtc& nvrtc() {
  static const Nvrtc table = [] {
    Nvrtc t;
    const DynamicLibrary library = DynamicLibrary::open(
        {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
        "install the CUDA toolkit or 'pip install nvidia-cuda-nvrtc', or set AICF_CUDA_PATH");
    library.open_beside("libnvrtc-builtins.so");
    library.load(t.get_error_string, "nvrtcGetErrorString");
    library.load(t.version, "nvrtcVersion");
    library.load(t.create_program, "nvrtcCreateProgram");
    library.load(t.destroy_program, "nvrtcDestroyProgram");
    library.load(t.compile_program, "nvrtcCompileProgram");
    library.load(t.get_log_size, "nvrtcGetProgramLogSize");
    library.load(t.get_log, "nvrtcGetProgramLog");
    library.load(t.get_cubin_size, "nvrtcGetCUBINSize");
    library.load(t.get_cubin, "nvrtcGetCUBIN");
    library.load(t.get_ptx_size, "nvrtcGetPTXSize");
    library.load(t.get_ptx, "nvrtcGetPTX");
    return t;
  }();
  return table;
}

// A failure that is not the text's. Few of those for want of memory say so.
EnvironmentError nvrtc_failed(const char* call, const std::string& actual, bool memory) {
  memory = memory || met_memory_limit();
  return EnvironmentError(memory ? ErrorCode::kE_out_of_memory : ErrorCode::kE_library_failed,
                          memory ? "NVRTC has not enough memory" : "an NVRTC call failed")
      .with_value(call)
      .with_actual(actual)
      .with_remedy(memory ? "free memory, or raise the limit of the process (ulimit -v)"
                          : "free memory, or install another version of NVRTC; 'aicf doctor' tells which one "
                            "is found");
}

void check_nvrtc(int result, const char* call) {
  constexpr int kOutOfMemory = 1;
  if (result != 0) throw nvrtc_failed(call, nvrtc().get_error_string(result), result == kOutOfMemory);
}
#define AICF_NVRTC(call) check_nvrtc((call), #call)

class Program {
 public:
  explicit Program(const std::string& source) {
    std::vector<const char*> texts, names;
    for (const CudaHeader& header : cuda_headers()) {
      texts.push_back(header.text);
      names.push_back(header.name);
    }
    AICF_NVRTC(nvrtc().create_program(&program_, source.c_str(), "kernel.cu", static_cast<int>(texts.size()),
                                      texts.data(), names.data()));
  }
  ~Program() { nvrtc().destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  void* get() const { return program_; }

  std::string log() const {
    size_t size = 0;
    AICF_NVRTC(nvrtc().get_log_size(program_, &size));
    std::string text(size, '\0');
    if (size > 0) AICF_NVRTC(nvrtc().get_log(program_, text.data()));
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

 private:
  void* program_ = nullptr;
};

std::string with_line_numbers(const std::string& source) {
  std::istringstream in(source);
  std::string text, line;
  for (int number = 1; std::getline(in, line); ++number) text += std::to_string(number) + "\t" + line + "\n";
  return text;
}

int nvrtc_major() {
  int major = 0, minor = 0;
  AICF_NVRTC(nvrtc().version(&major, &minor));
  return major;
}

// Whether a line of the log says what is wrong with the text: "kernel.cu(3): error: …", "error #20-D: …",
// "ptxas error   : …". A count of errors at the end is no such line.
bool names_an_error(const std::string& log) {
  constexpr std::string_view kWord = "error";
  for (size_t at = log.find(kWord); at != std::string::npos; at = log.find(kWord, at + 1)) {
    const size_t end = log.find_first_not_of(" #-D0123456789", at + kWord.size());
    if (end != std::string::npos && log[end] == ':') return true;
  }
  return false;
}

// NVRTC calls it an error of the text, too, when its own memory or files run out; its log then may break off
// before it says more.
void refuse_if_machine_failed(const std::string& log) {
  const auto says = [&](const char* words) { return log.find(words) != std::string::npos; };
  if (says("catastrophic error: out of memory") || says("error: out of memory"))
    throw nvrtc_failed("compiling", log, /*memory=*/true);
  if (says("failed to open libnvrtc-builtins"))
    throw EnvironmentError(ErrorCode::kE_library_unusable, "NVRTC cannot load a library that it needs")
        .with_actual(log.substr(0, log.find('\n')))
        .with_remedy("install NVRTC again with its builtins, or raise the limit of the process (ulimit -v)");
  if (!names_an_error(log)) throw nvrtc_failed("compiling", log, /*memory=*/false);
}

enum class Effort { kProduct, kCheck };

std::string compile_unit(const CudaUnit& unit, Effort effort) {
  const auto& [source, target, work] = unit;
  const Program program(source);
  const std::string arch = "--gpu-architecture=" + target;
  std::vector<const char*> options = {arch.c_str()};
  options.insert(options.end(), std::begin(kCudaOptions), std::end(kCudaOptions));
  // Several kernels are optimised and assembled side by side, to the same instructions but where a text
  // chooses between elements of a local array: those choices become loads (recurrent.cuh writes them out).
  constexpr int kKnown = 13;  // the first version known to take these options
  const bool known = nvrtc_major() >= kKnown;
  if (work.kernels > 1 && known) options.push_back("--split-compile=4");
  if (effort == Effort::kCheck && known) options.push_back("--Ofast-compile=mid");
  constexpr int kDoesNotCompile = 6;  // any other failure is not the text's
  const int compiling =
      nvrtc().compile_program(program.get(), static_cast<int>(options.size()), options.data());
  if (compiling == kDoesNotCompile) refuse_if_machine_failed(program.log());
  AICF_CHECK(compiling != kDoesNotCompile, "generated CUDA text does not compile for " + target + ":\n" +
                                               program.log() + "\n" + with_line_numbers(source));
  AICF_NVRTC(compiling);
  size_t size = 0;
  const bool ptx = target.starts_with("compute_");
  AICF_NVRTC(ptx ? nvrtc().get_ptx_size(program.get(), &size) : nvrtc().get_cubin_size(program.get(), &size));
  std::string image(size, '\0');
  AICF_NVRTC(ptx ? nvrtc().get_ptx(program.get(), image.data())
                 : nvrtc().get_cubin(program.get(), image.data()));
  return image;
}

// The unit's image behind the milliseconds that it took: what a child has to tell is one text.
std::string timed_unit(const CudaUnit& unit, Effort effort) {
  const auto start = std::chrono::steady_clock::now();
  const std::string image = compile_unit(unit, effort);
  const double taken =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::string text(sizeof(taken), '\0');
  std::memcpy(text.data(), &taken, sizeof(taken));
  return text + image;
}

// What takes long starts first, so that the last does not end alone.
size_t length_of(const CudaUnit& unit) {
  constexpr size_t kTextOfKernel = 4096;  // of a small one
  return unit.source.size() + static_cast<size_t>(unit.work.cost) * kTextOfKernel;
}

std::vector<std::string> compile_units(const std::vector<CudaUnit>& units, Effort effort,
                                       std::vector<double>* milliseconds = nullptr,
                                       const WhileForked& here = {}) {
  if (milliseconds != nullptr) milliseconds->assign(units.size(), 0);
  if (units.empty()) return {};
  nvrtc();  // loaded once, before the processes part
  std::vector<size_t> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return length_of(units[a]) > length_of(units[b]); });
  constexpr int kStillSeconds = 30;
  std::vector<std::string> images = run_forked(
      units.size(), std::thread::hardware_concurrency(),
      [&](size_t i) { return timed_unit(units[order[i]], effort); }, kStillSeconds, here);
  std::vector<std::string> result(units.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (milliseconds != nullptr) std::memcpy(&(*milliseconds)[order[i]], images[i].data(), sizeof(double));
    result[order[i]] = images[i].substr(sizeof(double));
  }
  return result;
}

}  // namespace

std::vector<std::string> compile_cuda(const std::vector<CudaUnit>& units, std::vector<double>* milliseconds,
                                      const WhileForked& here) {
  return compile_units(units, Effort::kProduct, milliseconds, here);
}

void check_cuda(const std::vector<CudaUnit>& units) { compile_units(units, Effort::kCheck); }

std::string nvrtc_version() {
  int major = 0, minor = 0;
  AICF_NVRTC(nvrtc().version(&major, &minor));
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace aicf
