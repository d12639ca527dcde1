// Time of one attention step on one thread: MiniLM's shape, heads as views into [B, T, H * D].
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/kernel.h"

namespace aicf {
namespace {

void bench_attention(benchmark::State& state, IsaLevel isa, int64_t batch, int64_t length, bool causal) {
  constexpr int64_t kHeads = 12, kDepth = 32;
  const auto count = static_cast<size_t>(batch * length * kHeads * kDepth);
  std::vector<float> memory[4];
  for (auto& values : memory) values.assign(count, 0.1f);
  const auto heads = [&](std::vector<float>& values) {
    TensorArg arg;
    arg.data = values.data();
    arg.rank = 4;
    const int64_t sizes[] = {batch, kHeads, length, kDepth};
    const int64_t strides[] = {length * kHeads * kDepth, kDepth, kHeads * kDepth, 1};
    std::copy_n(sizes, 4, arg.sizes);
    std::copy_n(strides, 4, arg.strides);
    return arg;
  };
  CallError error;
  BoundCall call;
  call.isa = isa;
  call.error = &error;
  call.inputs = {heads(memory[0]), heads(memory[1]), heads(memory[2])};
  call.outputs = {heads(memory[3])};
  call.params = {causal, 0};
  call.fparams = {0.17677669, 0};
  find_kernel("attention_f32")->prepare(call);
  std::vector<std::byte> scratch(static_cast<size_t>(call.scratch_bytes) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  for (auto _ : state)
    for (int64_t tile = 0; tile < call.tiles; ++tile) call.run(call, tile, aligned);
  const double flops = 4.0 * static_cast<double>(batch * kHeads * length * length * kDepth);
  state.counters["GF/s"] =
      benchmark::Counter(flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["tiles"] = static_cast<double>(call.tiles);
}

bool register_all() {
  for (IsaLevel isa : {IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (isa > detect_isa()) continue;
    for (int64_t batch : {1, 8})
      for (int64_t length : {16, 128, 512})
        for (bool causal : {false, true}) {
          const std::string name = "attention_f32/" + std::string(isa_name(isa)) +
                                   "/batch:" + std::to_string(batch) + "/length:" + std::to_string(length) +
                                   (causal ? "/causal" : "");
          benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
            bench_attention(state, isa, batch, length, causal);
          });
        }
  }
  return true;
}

const bool registered = register_all();

}  // namespace
}  // namespace aicf
