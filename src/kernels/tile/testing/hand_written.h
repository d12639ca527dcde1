// For tests of the tile kernel: tile programs written by hand, and operands that repeat.
#pragma once

#include <vector>

#include "kernels/common/abi.h"
#include "kernels/common/tile_program.h"

namespace aicf::tile_testing {

inline TileInstr load(int reg, int operand, TileType type = TileType::f32) {
  TileInstr instr{TileOp::load, type, static_cast<int16_t>(reg)};
  instr.operand = static_cast<int16_t>(operand);
  return instr;
}
inline TileInstr store(int operand, int reg, TileType type = TileType::f32) {
  TileInstr instr{TileOp::store, type, -1, static_cast<int16_t>(reg)};
  instr.operand = static_cast<int16_t>(operand);
  return instr;
}
inline TileInstr store_scalar(int operand, int scalar, TileType type = TileType::f32) {
  TileInstr instr = store(operand, kTileScalarBase + scalar, type);
  instr.op = TileOp::store_scalar;
  return instr;
}
inline TileInstr op(TileOp name, int dst, int a = -1, int b = -1, int c = -1, TileType type = TileType::f32) {
  return {name,
          type,
          static_cast<int16_t>(dst),
          static_cast<int16_t>(a),
          static_cast<int16_t>(b),
          static_cast<int16_t>(c)};
}
inline TileInstr constant(int dst, double value) {
  TileInstr instr = op(TileOp::constant, dst);
  instr.imm_f = value;
  return instr;
}
inline int scalar(int number) { return kTileScalarBase + number; }

inline constexpr TileRegister kF{TileType::f32, false}, kFRow{TileType::f32, true};

// (x - y) * x + 2
inline TileProgram chain() {
  return {{DType::f32, DType::f32},
          {DType::f32},
          {kF, kF, kF},
          {TileType::f32},
          {{constant(scalar(0), 2), load(0, 0), load(1, 1), op(TileOp::sub, 2, 0, 1),
            op(TileOp::mul, 2, 2, 0), op(TileOp::add, 2, 2, scalar(0)), store(2, 2)}}};
}

// Layer norm in three stages with a row register; also its shape {…, n} as a two-axis inner space.
inline TileProgram layer_norm(double n) {
  return {{DType::f32, DType::f32, DType::f32},
          {DType::f32},
          {kFRow, kF, kF, kF},
          std::vector<TileType>(7, TileType::f32),
          {{constant(scalar(0), 1 / n), constant(scalar(1), 1e-5), load(0, 0),
            op(TileOp::reduce_sum, scalar(2), 0)},
           {op(TileOp::mul, scalar(3), scalar(2), scalar(0)), op(TileOp::sub, 0, 0, scalar(3)),
            op(TileOp::mul, 1, 0, 0), op(TileOp::reduce_sum, scalar(4), 1)},
           {op(TileOp::fma, scalar(5), scalar(4), scalar(0), scalar(1)),
            op(TileOp::rsqrt, scalar(6), scalar(5)), op(TileOp::mul, 1, 0, scalar(6)), load(2, 1),
            op(TileOp::mul, 1, 1, 2), load(3, 2), op(TileOp::add, 1, 1, 3), store(3, 1)}}};
}

inline TensorArg broadcast(TensorArg arg, std::vector<int64_t> sizes) {
  for (int i = 0; i < arg.rank; ++i) {
    if (arg.sizes[i] == 1) arg.strides[i] = 0;
    arg.sizes[i] = sizes[static_cast<size_t>(i)];
  }
  return arg;
}

}  // namespace aicf::tile_testing
