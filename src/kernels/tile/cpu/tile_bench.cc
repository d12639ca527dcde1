// Time of tile programs on one thread: per-element costs of elementary functions, a layer norm over rows,
// reductions over columns.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/common/kernel.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

struct Tensor {
  std::vector<float> values;
  TensorArg arg;
  Tensor(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
      : values(static_cast<size_t>(rows * columns)) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int>(i % 1000) - 500) * 0.01f;
    arg.data = values.data();
    arg.rank = 2;
    arg.sizes[0] = rows, arg.sizes[1] = columns;
    arg.strides[0] = row_stride, arg.strides[1] = column_stride;
  }
};

TileInstr at_operand(TileOp op, int reg, int operand) {
  TileInstr instr{op, TileType::f32};
  (op == TileOp::load ? instr.dst : instr.a) = static_cast<int16_t>(reg);
  instr.operand = static_cast<int16_t>(operand);
  return instr;
}
TileInstr constant(int16_t dst, double value) {
  TileInstr instr{TileOp::constant, TileType::f32, dst};
  instr.imm_f = value;
  return instr;
}

void measure(benchmark::State& state, const TileProgram& program, std::vector<TensorArg> inputs,
             std::vector<TensorArg> outputs, int64_t items) {
  BoundCall call;
  call.inputs = std::move(inputs);
  call.outputs = std::move(outputs);
  call.params = {1};
  call.program = &program;
  call.isa = static_cast<IsaLevel>(state.range(0));
  if (call.isa > detect_isa()) return state.SkipWithError("not on this machine");
  find_kernel("tile")->prepare(call);
  std::unique_ptr<std::byte, void (*)(void*)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(call.scratch_bytes))), std::free);
  for (auto _ : state)
    for (int64_t tile = 0; tile < call.tiles; ++tile) call.run(call, tile, scratch.get());
  state.SetItemsProcessed(state.iterations() * items);
}

void unary(benchmark::State& state, TileOp op) {
  const TileProgram program = {
      {DType::f32},
      {DType::f32},
      {{TileType::f32}, {TileType::f32}},
      {},
      {{at_operand(TileOp::load, 0, 0), {op, TileType::f32, 1, 0}, at_operand(TileOp::store, 1, 1)}}};
  Tensor x(1024, 1536, 1536, 1), y(1024, 1536, 1536, 1);
  measure(state, program, {x.arg}, {y.arg}, 1024 * 1536);
}

void layer_norm(benchmark::State& state) {
  constexpr int16_t s = kTileScalarBase;
  constexpr TileType f = TileType::f32;
  const TileProgram program = {{DType::f32, DType::f32, DType::f32},
                               {DType::f32},
                               {{f, true}, {f}, {f}},
                               std::vector<TileType>(7, f),
                               {{constant(s, 1.0 / 384),
                                 constant(s + 1, 1e-5),
                                 at_operand(TileOp::load, 0, 0),
                                 {TileOp::reduce_sum, f, s + 2, 0}},
                                {{TileOp::mul, f, s + 3, s + 2, s},
                                 {TileOp::sub, f, 0, 0, s + 3},
                                 {TileOp::mul, f, 1, 0, 0},
                                 {TileOp::reduce_sum, f, s + 4, 1}},
                                {{TileOp::fma, f, s + 5, s + 4, s, s + 1},
                                 {TileOp::rsqrt, f, s + 6, s + 5},
                                 {TileOp::mul, f, 1, 0, s + 6},
                                 at_operand(TileOp::load, 2, 1),
                                 {TileOp::mul, f, 1, 1, 2},
                                 at_operand(TileOp::load, 2, 2),
                                 {TileOp::add, f, 1, 1, 2},
                                 at_operand(TileOp::store, 1, 3)}}};
  Tensor x(1024, 384, 384, 1), scale(1024, 384, 0, 1), bias(1024, 384, 0, 1), y(1024, 384, 384, 1);
  measure(state, program, {x.arg, scale.arg, bias.arg}, {y.arg}, 1024);
}

void sum(benchmark::State& state, bool columns) {
  const TileProgram program = {{DType::f32},
                               {DType::f32},
                               {{TileType::f32}},
                               {TileType::f32},
                               {{at_operand(TileOp::load, 0, 0),
                                 {TileOp::reduce_sum, TileType::f32, kTileScalarBase, 0},
                                 at_operand(TileOp::store_scalar, kTileScalarBase, 1)}}};
  Tensor x(1024, 1024, columns ? 1 : 1024, columns ? 1024 : 1), y(1024, 1024, 1, 0);
  measure(state, program, {x.arg}, {y.arg}, 1024 * 1024);
}

#define AICF_LEVELS ->ArgName("isa")->Arg(0)->Arg(1)->Arg(2)
BENCHMARK_CAPTURE(unary, add_free_copy, TileOp::neg) AICF_LEVELS;
BENCHMARK_CAPTURE(unary, exp, TileOp::exp) AICF_LEVELS;
BENCHMARK_CAPTURE(unary, tanh, TileOp::tanh) AICF_LEVELS;
BENCHMARK_CAPTURE(unary, erf, TileOp::erf) AICF_LEVELS;
BENCHMARK_CAPTURE(unary, gelu, TileOp::gelu) AICF_LEVELS;
BENCHMARK_CAPTURE(unary, gelu_tanh, TileOp::gelu_tanh) AICF_LEVELS;
BENCHMARK(layer_norm) AICF_LEVELS;
BENCHMARK_CAPTURE(sum, rows, false) AICF_LEVELS;
BENCHMARK_CAPTURE(sum, columns, true) AICF_LEVELS;

}  // namespace
}  // namespace aicf
