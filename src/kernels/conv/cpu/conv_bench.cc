// Speed of packed convolutions of ResNet-50 on one thread, channels-last, with scale, shift, residual and
// rectifier behind them, in GF/s of the thread's own time. bench_kernels --benchmark_filter='peak|conv'
// --benchmark_repetitions=5
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rounding.h"
#include "kernels/common/kernel.h"
#include "kernels/conv/cpu/pack_conv_w.h"

namespace aicf {
namespace {

struct Shape {
  int64_t channels, size, maps, kernel, stride;
  bool residual;
  int64_t out() const { return (size + stride - 1) / stride; }
};

// As wide as cache lines, as the memory of models is.
struct Floats {
  int64_t count;
  std::unique_ptr<float, void (*)(void*)> values;
  Floats(int64_t count, float value)
      : count(count), values(static_cast<float*>(std::aligned_alloc(64, bytes())), std::free) {
    std::fill_n(data(), count, value);
  }
  float* data() const { return values.get(); }
  size_t bytes() const { return static_cast<size_t>(round_up(count * 4, 64)); }
};

struct Image {
  Floats values;
  TensorArg arg;
  // One image of `channels` × size × size, channels-last; `broadcast`: one pixel for all.
  Image(int64_t channels, int64_t size, bool broadcast = false)
      : values(channels * (broadcast ? 1 : size * size), 0.5f) {
    arg.data = values.data();
    arg.rank = 4;
    const int64_t sizes[] = {1, channels, size, size};
    const int64_t strides[] = {0, 1, broadcast ? 0 : size * channels, broadcast ? 0 : channels};
    std::copy_n(sizes, 4, arg.sizes);
    std::copy_n(strides, 4, arg.strides);
  }
};

TileInstr at_operand(TileOp op, int16_t reg, int16_t operand) {
  TileInstr instr{op, TileType::f32};
  (op == TileOp::load ? instr.dst : instr.a) = reg;
  instr.operand = operand;
  return instr;
}

// max((sum * scale + shift) [+ residual], 0)
TileProgram epilogue(bool residual) {
  constexpr TileType f = TileType::f32;
  constexpr int16_t s = kTileScalarBase;
  std::vector<TileInstr> code = {{TileOp::constant, f, s},       at_operand(TileOp::load, 0, 0),
                                 at_operand(TileOp::load, 1, 1), {TileOp::mul, f, 2, 0, 1},
                                 at_operand(TileOp::load, 3, 2), {TileOp::add, f, 4, 2, 3}};
  if (residual) {
    code.push_back(at_operand(TileOp::load, 5, 3));
    code.push_back({TileOp::add, f, 6, 4, 5});
  }
  code.push_back({TileOp::max, f, 7, static_cast<int16_t>(residual ? 6 : 4), s});
  code.push_back(at_operand(TileOp::store, 7, residual ? 4 : 3));
  return {std::vector<DType>(residual ? 4 : 3, DType::f32),
          {DType::f32},
          std::vector<TileRegister>(8, {f}),
          {f},
          {code}};
}

void bench_conv(benchmark::State& state, const Shape& s) {
  const int64_t pad = s.kernel / 2, k = s.channels * s.kernel * s.kernel;
  Image x(s.channels, s.size), scale(s.maps, s.out(), true), shift(s.maps, s.out(), true);
  Image residual(s.maps, s.out()), out(s.maps, s.out());
  const Floats panels(packed_conv_w_bytes(1, s.maps, k) / 4, 0.01f);
  TensorArg w;
  w.data = panels.data();
  w.dtype = DType::u8;
  w.rank = 1;
  w.sizes[0] = panels.count * 4;
  w.strides[0] = 1;
  const TileProgram program = epilogue(s.residual);
  CallError error;
  BoundCall call;
  call.isa = detect_isa();
  call.error = &error;
  call.program = &program;
  call.inputs = {x.arg, w, scale.arg, shift.arg};
  if (s.residual) call.inputs.push_back(residual.arg);
  call.outputs = {out.arg};
  call.params = {2, 1, 0, s.stride, s.stride, pad, pad, pad, pad, 1, 1, s.kernel, s.kernel};
  find_kernel("conv_f32_packed")->prepare(call);
  const Floats scratch(ceil_div(call.scratch_bytes, 4), 0);
  for (auto _ : state)
    for (int64_t tile = 0; tile < call.tiles; ++tile)
      call.run(call, tile, reinterpret_cast<std::byte*>(scratch.data()));
  const double flops = 2.0 * static_cast<double>(s.out() * s.out() * s.maps * k);
  state.counters["GF/s"] =
      benchmark::Counter(flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["tiles"] = static_cast<double>(call.tiles);
}

bool register_all() {
  const Shape shapes[] = {
      {3, 224, 64, 7, 2, false},   {64, 56, 64, 1, 1, false},    {64, 56, 64, 3, 1, false},
      {64, 56, 256, 1, 1, true},   {256, 56, 64, 1, 1, false},   {256, 56, 128, 1, 1, false},
      {128, 56, 128, 3, 2, false}, {256, 56, 512, 1, 2, true},   {128, 28, 128, 3, 1, false},
      {128, 28, 512, 1, 1, true},  {512, 28, 128, 1, 1, false},  {256, 14, 256, 3, 1, false},
      {256, 14, 1024, 1, 1, true}, {1024, 14, 256, 1, 1, false}, {512, 7, 512, 3, 1, false},
      {512, 7, 2048, 1, 1, true},  {2048, 7, 512, 1, 1, false}};
  for (const Shape& s : shapes) {
    const auto text = [](int64_t n) { return std::to_string(n); };
    const std::string name = "conv_f32_packed/" + text(s.channels) + "x" + text(s.size) + "x" + text(s.size) +
                             "/" + text(s.kernel) + "x" + text(s.kernel) + "/" + text(s.stride) + "/" +
                             text(s.maps) + (s.residual ? "+" : "");
    benchmark::RegisterBenchmark(name.c_str(), [s](benchmark::State& state) { bench_conv(state, s); });
  }
  return true;
}

const bool registered = register_all();

}  // namespace
}  // namespace aicf
