// What a run costs beyond its kernel: graphs of one kernel through run_into with the caller's memory, beside
// the same kernel called in a loop, sample by sample. Prints the medians of both and of the differences, and
// how often a run allocated.
//   bench_compile --benchmark_filter=run_into
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <vector>

#include <benchmark/benchmark.h>

#include "compile/compile.h"
#include "kernels/common/kernel.h"
#include "runtime/bind_step.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Not inlined: the compiler would take malloc and delete for a pair.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size != 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace aicf {
namespace {

// y = gelu(x)
Program one_kernel(int64_t rows, int64_t columns) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(rows), Dim(columns)}});
  graph.add_output(graph.add(Op::gelu, {x}), "y");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

// The kernel of the plan's only step over the same memory.
struct Kernel {
  BoundCall call;
  CallError error;
  std::vector<std::byte> scratch;

  Kernel(const Executable& exe, const Array& x, Array& y) {
    std::vector<AddressPatch> patches;
    const EntryPlan& entry = exe.entry("");
    call.isa = choose_isa("");
    call.error = &error;
    bind_step(exe.model().plan(), entry, 0, {}, call, patches);
    call.inputs[0].data = const_cast<void*>(x.data());
    call.outputs[0].data = y.mutable_data();
    find_kernel(entry.steps[0].kernel)->prepare(call);
    scratch.resize(static_cast<size_t>(call.scratch_bytes) + 64);
  }
  void run() {
    const auto base = reinterpret_cast<uintptr_t>(scratch.data());
    std::byte* aligned = scratch.data() + ((base + 63) / 64 * 64 - base);
    for (int64_t tile = 0; tile < call.tiles; ++tile) call.run(call, tile, aligned);
  }
};

double microseconds(const std::vector<double>& sorted, double quantile) {
  return sorted[static_cast<size_t>(quantile * static_cast<double>(sorted.size() - 1))];
}

template <class Work>
double timed(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

void run_into(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const int64_t rows = state.range(1), columns = 256;
  Executable exe(Model::load(compile(one_kernel(rows, columns)), make_cpu_device({threads, choose_isa("")})));
  Array x(DType::f32, {rows, columns}), y(DType::f32, {rows, columns});
  for (int64_t i = 0; i < x.count(); ++i) x.set_f64(i, 1e-3 * static_cast<double>(i % 4000 - 2000));
  Kernel kernel(exe, x, y);
  const std::vector<TensorView> inputs{view_of(x)}, outputs{view_of(y)};
  exe.run_into("", inputs, outputs);
  std::vector<double> runs, kernels, above;
  int64_t allocated = 0;
  for (auto _ : state) {
    kernels.push_back(timed([&] { kernel.run(); }));
    const int64_t before = allocations.load();
    const double run = timed([&] { exe.run_into("", inputs, outputs); });
    allocated += allocations.load() - before;
    runs.push_back(run);
    above.push_back(runs.back() - kernels.back() / static_cast<double>(threads));
  }
  for (std::vector<double>* list : {&runs, &kernels, &above}) std::sort(list->begin(), list->end());
  state.counters["tiles"] = static_cast<double>(kernel.call.tiles);
  state.counters["run_us"] = microseconds(runs, 0.5);
  state.counters["kernel_us_1_thread"] = microseconds(kernels, 0.5);
  state.counters["above_us"] = microseconds(above, 0.5);
  state.counters["above_us_q1"] = microseconds(above, 0.25);
  state.counters["allocations"] = static_cast<double>(allocated);
}
// Rows of 256: one tile, then tiles for two threads.
BENCHMARK(run_into)->Args({1, 4})->Args({1, 64})->Args({2, 512})->ArgNames({"threads", "rows"});

}  // namespace
}  // namespace aicf
