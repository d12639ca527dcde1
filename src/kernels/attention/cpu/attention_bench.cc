// Time of one attention step on one thread: shapes of MiniLM and of ViT-B/16, heads as views into the joined
// product [B, T, 3 * H * D] of queries, keys and values.
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/common/kernel.h"

namespace aicf {
namespace {

void bench_attention(benchmark::State& state, IsaLevel isa, int64_t batch, int64_t length, int64_t depth,
                     bool causal) {
  constexpr int64_t kHeads = 12;
  const int64_t width = kHeads * depth;
  std::vector<float> joined(static_cast<size_t>(batch * length * 3 * width), 0.1f);
  std::vector<float> out(static_cast<size_t>(batch * length * width));
  const auto heads = [&](float* data, int64_t row) {
    TensorArg arg;
    arg.data = data;
    arg.rank = 4;
    const int64_t sizes[] = {batch, kHeads, length, depth};
    const int64_t strides[] = {length * row, depth, row, 1};
    std::copy_n(sizes, 4, arg.sizes);
    std::copy_n(strides, 4, arg.strides);
    return arg;
  };
  CallError error;
  BoundCall call;
  call.isa = isa;
  call.error = &error;
  for (int64_t part = 0; part < 3; ++part)
    call.inputs.push_back(heads(joined.data() + part * width, 3 * width));
  call.outputs = {heads(out.data(), width)};
  call.params = {causal, 0};
  call.fparams = {0.17677669, 0};
  find_kernel("attention_f32")->prepare(call);
  std::vector<std::byte> scratch(static_cast<size_t>(call.scratch_bytes) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  for (auto _ : state)
    for (int64_t tile = 0; tile < call.tiles; ++tile) call.run(call, tile, aligned);
  const double flops = 4.0 * static_cast<double>(batch * kHeads * length * length * depth);
  state.counters["GF/s"] =
      benchmark::Counter(flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["tiles"] = static_cast<double>(call.tiles);
}

bool register_all() {
  for (IsaLevel isa : {IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (isa > detect_isa()) continue;
    for (int64_t batch : {1, 8})
      for (const auto& [length, depth] : {std::pair{16, 32}, {128, 32}, {512, 32}, {128, 64}, {197, 64}})
        for (bool causal : {false, true}) {
          const std::string name = "attention_f32/" + std::string(isa_name(isa)) +
                                   "/batch:" + std::to_string(batch) + "/length:" + std::to_string(length) +
                                   "/depth:" + std::to_string(depth) + (causal ? "/causal" : "");
          benchmark::RegisterBenchmark(name.c_str(),
                                       [=, length = length, depth = depth](benchmark::State& state) {
                                         bench_attention(state, isa, batch, length, depth, causal);
                                       });
        }
  }
  return true;
}

const bool registered = register_all();

}  // namespace
}  // namespace aicf
