// A model from nothing: builds a small network op by op, compiles it, runs it, saves it, loads it again and
// checks that the file gives the same bits. `compile_mlp [FILE.aicf]`.
#include <cstdio>
#include <string>
#include <vector>

#include <aicf/aicf.h>

namespace {

using aicf::DType;
using aicf::Tensor;

// Any weights will do here.
Tensor ramp(std::vector<int64_t> sizes, float scale) {
  Tensor tensor(DType::f32, std::move(sizes));
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = scale * static_cast<float>(i % 7 - 3);
  return tensor;
}

// probabilities = softmax(layer_norm(gelu(x W0 + b0)) W2ᵀ) for any batch of 1 to 32.
aicf::Program build() {
  aicf::Builder b;
  const aicf::Size batch = b.size("batch", 1, 32);
  const aicf::Value x = b.input("x", DType::f32, {batch, 16});
  const aicf::Value hidden = b.op(
      "gelu", {b.op("linear", {x, b.param("0.W", ramp({16, 64}, 0.1f)), b.param("0.b", ramp({64}, 0.2f))})});
  const aicf::Value scaled =
      b.op("layer_norm", {hidden, b.param("1.scale", ramp({64}, 0.5f))}, {{"epsilon", 1e-5}});
  const aicf::Value scores =
      b.op("linear", {scaled, b.param("2.W", ramp({4, 64}, 0.05f))}, {{"transpose_w", true}});
  b.output("probabilities", b.op("softmax", {scores}));
  b.metadata("classes", "north,east,south,west");
  return b.finish();
}

int run(const std::string& path) {
  const aicf::Program program = build();
  std::printf("%s\n", program.text().c_str());

  const aicf::Artifact artifact = aicf::compile(program);
  aicf::Executable exe{aicf::Model(artifact)};
  const Tensor x = ramp({3, 16}, 0.3f);
  const Tensor y = exe.run({{"x", x}}).at("probabilities");
  for (int64_t row = 0; row < y.sizes()[0]; ++row) {
    for (int64_t i = 0; i < 4; ++i) std::printf("%s%.4f", i == 0 ? "" : "  ", y.as<float>()[row * 4 + i]);
    std::printf("\n");
  }

  artifact.save(path);
  aicf::Executable loaded = aicf::Executable::load(path);
  const bool same = loaded.run({{"x", x}}).at("probabilities") == y;
  const aicf::VerifyResult replays = loaded.verify(100);
  std::printf("%s for %s; the same bits from the file: %s; %lld replays, %zu hash\n", path.c_str(),
              loaded.model().metadata().at("classes").c_str(), same ? "yes" : "NO",
              static_cast<long long>(replays.replays), replays.hashes.size());
  return same && replays.passed() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "mlp.aicf");
  } catch (const aicf::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
