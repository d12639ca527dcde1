// For tests of single instructions of tile programs: the program of one, and the values that find its faults.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/common/tile_program.h"
#include "kernels/tile/tile_info.h"

namespace aicf::tile_testing {

inline DType memory_of(TileType type) {
  constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean};
  return kTypes[static_cast<int>(type)];
}

// t(n) = op(t0, …): one instruction between loads and a store.
inline TileProgram one_op(TileOp op, TileType type, int64_t imm = 0) {
  TileProgram program;
  const int arity = tile_op_info(op).arity;
  std::vector<TileInstr> code;
  for (int i = 0; i < arity; ++i) {
    const TileType t = op == TileOp::select && i == 0 ? TileType::mask : type;
    program.inputs.push_back(memory_of(t));
    program.registers.push_back({t});
    TileInstr load{TileOp::load, t, static_cast<int16_t>(i)};
    load.operand = static_cast<int16_t>(i);
    code.push_back(load);
  }
  TileInstr instr{op, type, static_cast<int16_t>(arity)};
  if (arity > 0) instr.a = 0;
  if (arity > 1) instr.b = 1;
  if (arity > 2) instr.c = 2;
  instr.imm_i = imm;
  code.push_back(instr);
  const TileType result = tile_result_type(instr);
  program.registers.push_back({result});
  program.outputs = {memory_of(result)};
  TileInstr store{TileOp::store, result, -1, static_cast<int16_t>(arity)};
  store.operand = static_cast<int16_t>(arity);
  code.push_back(store);
  program.stages = {code};
  return program;
}

// Values at which implementations go wrong: edges of ranges, denormals, infinities, NaN, ties.
inline std::vector<double> nasty_values() {
  std::vector<double> values = {
      0,         0.5,       1,     1.5,   2,       2.5,          0.69314718, 0.9,      3.9999998, 4,
      1e-3,      1e-10,     1e-38, 1e-40, 1.4e-45, 87.3,         88.72283,   88.8,     103.97,    104.5,
      17.3,      1e5,       3e9,   1e20,  3.4e38,  0.70710677,   0.41421357, 8192,     8193,      0.78539816,
      1.5707964, 3.1415927, 14.1,  14.9,  15.1,    2147483648.0, 16777216,   8388607.5};
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  values.push_back(INFINITY), values.push_back(-INFINITY), values.push_back(NAN);
  return values;
}

}  // namespace aicf::tile_testing
