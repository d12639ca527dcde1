// Speed of matmul steps on one and two threads, beside the peak of multiply-adds that this machine reaches in
// the same process. Every row reports GF/s and, for the shapes of contractions, the share of that peak.
//   bench_kernels --benchmark_filter=matmul --benchmark_enable_random_interleaving=true
//   --benchmark_repetitions=5
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/common/kernel.h"
#include "kernels/matmul/cpu/pack.h"

#if AICF_X86
#include <immintrin.h>
#endif

namespace aicf {
namespace {

// Workers that spin between steps, like those of the runtime inside a run.
class SpinningPool {
 public:
  explicit SpinningPool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
  }
  ~SpinningPool() {
    stop_ = true;
    for (std::thread& worker : workers_) worker.join();
  }
  template <class Work>
  void run(Work work) {
    work_ = [](void* context) { (*static_cast<Work*>(context))(); };
    context_ = &work;
    pending_.store(static_cast<int>(workers_.size()));
    generation_.fetch_add(1);
    work();
    while (pending_.load() != 0) {
    }
  }

 private:
  void serve() {
    for (int seen = 0; !stop_;) {
      const int now = generation_.load();
      if (now == seen) continue;
      seen = now;
      work_(context_);
      pending_.fetch_sub(1);
    }
  }
  std::vector<std::thread> workers_;
  std::atomic<bool> stop_{false};
  std::atomic<int> generation_{0}, pending_{0};
  void (*work_)(void*) = nullptr;
  void* context_ = nullptr;
};

#if AICF_X86
constexpr int kChains = 12;
constexpr int64_t kPeakSteps = 20000;

__attribute__((target("avx512f"))) void peak_avx512() {
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_fmadd_ps(sum[j], x, y);
  }
  for (auto& s : sum) benchmark::DoNotOptimize(s);
}

__attribute__((target("avx2,fma"))) void peak_avx2() {
  __m256 sum[kChains];
  for (auto& s : sum) s = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm256_fmadd_ps(sum[j], x, y);
  }
  for (auto& s : sum) benchmark::DoNotOptimize(s);
}

void bench_peak(benchmark::State& state, IsaLevel isa, int threads) {
  SpinningPool pool(threads);
  const auto loop = isa == IsaLevel::kAvx512 ? peak_avx512 : peak_avx2;
  for (auto _ : state) pool.run(loop);
  const double flops = 2.0 * kChains * kPeakSteps * (isa == IsaLevel::kAvx512 ? 16 : 8) * threads;
  state.counters["GF/s"] =
      benchmark::Counter(flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
#endif

struct Shape3 {
  int64_t m, k, n;
};

TensorArg matrix(void* data, int64_t rows, int64_t columns) {
  TensorArg arg;
  arg.data = data;
  arg.rank = 2;
  arg.sizes[0] = rows;
  arg.sizes[1] = columns;
  arg.strides[0] = columns;
  arg.strides[1] = 1;
  return arg;
}

TensorArg bytes_of(std::vector<float>& values) {
  TensorArg arg;
  arg.data = values.data();
  arg.dtype = DType::u8;
  arg.rank = 1;
  arg.sizes[0] = static_cast<int64_t>(values.size() * sizeof(float));
  arg.strides[0] = 1;
  return arg;
}

void run_tiles(const BoundCall& call, std::atomic<int64_t>& next, std::byte* scratch) {
  for (int64_t tile; (tile = next.fetch_add(1)) < call.tiles;) call.run(call, tile, scratch);
}

void bench_matmul(benchmark::State& state, Shape3 shape, bool packed, IsaLevel isa, int threads) {
  std::vector<float> x(static_cast<size_t>(shape.m * shape.k), 0.5f),
      y(static_cast<size_t>(shape.k * shape.n), 0.25f);
  std::vector<float> out(static_cast<size_t>(shape.m * shape.n));
  std::vector<float> panels(static_cast<size_t>(packed_matmul_y_bytes(shape.k, shape.n) / 4));
  CallError error;
  BoundCall pack, call;
  pack.isa = call.isa = isa;
  pack.error = call.error = &error;
  pack.inputs = {matrix(y.data(), shape.k, shape.n)};
  pack.outputs = {bytes_of(panels)};
  find_kernel("pack_matmul_y_f32")->prepare(pack);
  for (int64_t i = 0; i < pack.tiles; ++i) pack.run(pack, i, nullptr);
  call.inputs = {matrix(x.data(), shape.m, shape.k),
                 packed ? bytes_of(panels) : matrix(y.data(), shape.k, shape.n)};
  call.outputs = {matrix(out.data(), shape.m, shape.n)};
  if (packed) call.params = {shape.k, shape.n};
  find_kernel(packed ? "matmul_f32_packed" : "matmul_f32")->prepare(call);

  SpinningPool pool(threads);
  const size_t scratch_bytes = static_cast<size_t>(call.scratch_bytes + 127) / 64 * 64;
  std::vector<std::byte> memory(scratch_bytes * static_cast<size_t>(threads) + 64);
  std::atomic<int> worker{0};
  std::atomic<int64_t> next{0};
  for (auto _ : state) {
    worker = 0;
    next = 0;
    pool.run([&] {
      const size_t at = static_cast<size_t>(worker.fetch_add(1)) * scratch_bytes;
      const auto base = reinterpret_cast<uintptr_t>(memory.data());
      run_tiles(call, next, memory.data() + ((base + 63) / 64 * 64 - base) + at);
    });
  }
  const double flops =
      2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.k) * static_cast<double>(shape.n);
  const auto runs = static_cast<double>(state.iterations());
  state.counters["GF/s"] = benchmark::Counter(flops * 1e-9 * runs, benchmark::Counter::kIsRate);
  state.counters["weights GB/s"] =
      benchmark::Counter(static_cast<double>(shape.k * shape.n) * 4e-9 * runs, benchmark::Counter::kIsRate);
  state.counters["tiles"] = static_cast<double>(call.tiles);
}

void add(const std::string& name, int threads, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(), body)->UseRealTime();
}

bool register_all() {
  const Shape3 shapes[] = {{128, 384, 384},   {128, 384, 1536},   {128, 1536, 384}, {1024, 384, 384},
                           {1024, 384, 1536}, {1024, 1536, 384},  {16, 384, 384},   {1, 384, 384},
                           {1, 384, 1536},    {1, 1536, 384},     {8, 384, 1536},   {1, 4096, 4096},
                           {8, 4096, 4096},   {1024, 1024, 1024}, {128, 384, 1152}};
  for (IsaLevel isa : {IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (isa > detect_isa()) continue;
    for (int threads : {1, 2}) {
      const std::string level(isa_name(isa));
#if AICF_X86
      add("peak_fma/" + level, threads, [=](benchmark::State& s) { bench_peak(s, isa, threads); });
#endif
      for (const Shape3& s : shapes) {
        const std::string size = std::to_string(s.m) + "x" + std::to_string(s.k) + "x" + std::to_string(s.n);
        for (bool packed : {true, false}) {
          add((packed ? "matmul_f32_packed/" : "matmul_f32/") + level + "/" + size, threads,
              [=](benchmark::State& state) { bench_matmul(state, s, packed, isa, threads); });
        }
      }
    }
  }
  return true;
}

const bool registered = register_all();

}  // namespace
}  // namespace aicf
