// Contractions with a bias, in any layout, as tests of their CUDA text want them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul/cuda/matmul_cuda.h"

namespace aicf::matmul_testing {

using Engine = std::mt19937;

inline int64_t pick(Engine& engine, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(engine);
}
template <class T>
T pick(Engine& engine, const std::vector<T>& values) {
  return values[static_cast<size_t>(pick(engine, 0, static_cast<int64_t>(values.size()) - 1))];
}

// The accumulator, rounded to the operands' type, plus a row of the result's type.
inline TileProgram bias_program(DType dtype) {
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  const DType tile = half ? DType::f32 : dtype;
  const TileType type = tile_register_type(tile);
  TileProgram program;
  program.inputs = {tile, dtype};
  program.outputs = {dtype};
  program.registers.assign(3, {type});
  TileInstr load{.op = TileOp::load, .type = type, .dst = 0, .operand = 0};
  TileInstr bias{.op = TileOp::load, .type = type, .dst = 1, .operand = 1};
  TileInstr add{.op = TileOp::add, .type = type, .dst = 2, .a = 0, .b = 1};
  TileInstr store{.op = TileOp::store, .type = type, .a = 2, .operand = 2};
  program.stages = {{load, bias, add, store}};
  return program;
}

inline std::string between(const std::string& text, const std::string& first, const std::string& last) {
  const size_t at = text.find(first);
  return at == std::string::npos ? "" : text.substr(at, text.find(last, at) - at);
}

struct Case {
  TileProgram program;
  SymbolRanges ranges;
  CudaProblem problem;
};

inline void link(Case& c, int arch) {
  c.problem.program = &c.program;
  c.problem.ranges = &c.ranges;
  c.problem.arch = arch;
}

inline CudaWindow window(DType dtype, const Shape& batch, const Dim& rows, const Dim& columns,
                         bool transposed, int64_t padding, bool shared) {
  CudaWindow w{dtype, Dim(0), batch, {}};
  w.sizes.push_back(rows);
  w.sizes.push_back(columns);
  const Dim length = (transposed ? rows : columns) + Dim(padding);
  Dim stride = length * (transposed ? columns : rows);
  w.strides.resize(batch.size());
  for (size_t axis = batch.size(); axis-- > 0; stride = stride * batch[axis])
    w.strides[axis] = shared ? Dim(0) : stride;
  w.strides.push_back(transposed ? Dim(1) : length);
  w.strides.push_back(transposed ? length : Dim(1));
  return w;
}

struct Layout {
  bool x_transposed = false, y_transposed = false;
  int64_t padding = 0;
  bool x_shared = false, y_shared = false;
};

inline void set_windows(Case& c, DType dtype, const Shape& batch, const Dim& m, const Dim& n, const Dim& k,
                        const Layout& layout) {
  c.program = bias_program(dtype);
  c.problem.inputs = {window(dtype, batch, m, k, layout.x_transposed, layout.padding, layout.x_shared),
                      window(dtype, batch, k, n, layout.y_transposed, layout.padding, layout.y_shared)};
  c.problem.outputs = {window(dtype, batch, m, n, false, 0, false)};
  CudaWindow bias = c.problem.outputs[0];
  for (Dim& stride : bias.strides) stride = Dim(0);
  bias.strides.back() = Dim(1);
  c.problem.inputs.push_back(bias);
}

}  // namespace aicf::matmul_testing
