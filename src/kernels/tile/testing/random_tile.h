// For tests: random tile programs and windows over random domains.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/common/cuda_kernel.h"
#include "kernels/testing/cuda_texts.h"
#include "kernels/tile/tile_info.h"

namespace aicf::tile_testing {

using Engine = std::mt19937_64;

inline int64_t pick(Engine& engine, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(engine);
}
template <class T>
const T& pick(Engine& engine, const std::vector<T>& from) {
  return from[static_cast<size_t>(pick(engine, 0, static_cast<int64_t>(from.size()) - 1))];
}

using cuda_testing::all_dtypes;

// Builds one program: registers are never reused, and keep the row if a later stage reads them.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Engine& engine) : engine_(engine) { program_.stages.emplace_back(); }

  int add_input(DType dtype) {
    program_.inputs.push_back(dtype);
    return static_cast<int>(program_.inputs.size()) - 1;
  }
  int16_t load(int operand, bool scalar = false) {
    const TileType type = tile_register_type(program_.inputs[static_cast<size_t>(operand)]);
    TileInstr instr{TileOp::load, type, place(type, scalar)};
    instr.operand = static_cast<int16_t>(operand);
    return emit(instr);
  }
  int16_t constant(TileType type, double value) {
    TileInstr instr{TileOp::constant, type, place(type, true)};
    instr.imm_f = value;
    instr.imm_i = static_cast<int64_t>(value);
    return emit(instr);
  }
  int16_t apply(TileOp op, TileType type, std::vector<int16_t> args, int64_t imm = 0) {
    TileInstr instr{op, type};
    instr.imm_i = imm;
    int16_t* fields[] = {&instr.a, &instr.b, &instr.c};
    bool scalar = !args.empty();
    for (size_t i = 0; i < args.size(); ++i) {
      *fields[i] = args[i];
      scalar = scalar && args[i] >= kTileScalarBase;
    }
    instr.dst = place(tile_result_type(instr), scalar || is_tile_reduction(op));
    return emit(instr);
  }
  void next_stage() { program_.stages.emplace_back(); }
  void store(DType dtype, int16_t value) {
    const bool scalar = value >= kTileScalarBase;
    outputs_.push_back({static_cast<int>(program_.stages.size()) - 1, value, scalar});
    program_.outputs.push_back(dtype);
  }
  TileType type_of(int16_t at) const {
    return at >= kTileScalarBase ? program_.scalars[static_cast<size_t>(at - kTileScalarBase)]
                                 : program_.registers[static_cast<size_t>(at)].type;
  }
  TileProgram finish() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Output& out = outputs_[i];
      TileInstr instr{out.scalar ? TileOp::store_scalar : TileOp::store, type_of(out.value), -1, out.value};
      instr.operand = static_cast<int16_t>(program_.inputs.size() + i);
      program_.stages[static_cast<size_t>(out.stage)].push_back(instr);
    }
    std::vector<int> written(program_.registers.size(), -1);
    for (size_t s = 0; s < program_.stages.size(); ++s)
      for (const TileInstr& instr : program_.stages[s]) {
        for (int16_t from : {instr.a, instr.b, instr.c})
          if (from >= 0 && from < kTileScalarBase && written[static_cast<size_t>(from)] < static_cast<int>(s))
            program_.registers[static_cast<size_t>(from)].row = true;
        if (instr.dst >= 0 && instr.dst < kTileScalarBase)
          written[static_cast<size_t>(instr.dst)] = static_cast<int>(s);
      }
    check_tile_program(program_);
    return program_;
  }
  // A value of the type, made by a cast if there is none.
  int16_t value_of(TileType type, const std::vector<int16_t>& from) {
    std::vector<int16_t> fitting;
    for (int16_t at : from)
      if (type_of(at) == type) fitting.push_back(at);
    if (!fitting.empty()) return pick(engine_, fitting);
    constexpr TileOp kCasts[] = {TileOp::to_f32, TileOp::to_f64, TileOp::to_i32, TileOp::to_i64,
                                 TileOp::to_mask};
    const int16_t source = pick(engine_, from);
    return apply(kCasts[static_cast<int>(type)], type_of(source), {source});
  }

 private:
  struct Output {
    int stage;
    int16_t value;
    bool scalar;
  };
  int16_t place(TileType type, bool scalar) {
    if (scalar) {
      program_.scalars.push_back(type);
      return static_cast<int16_t>(program_.scalars.size() - 1 + kTileScalarBase);
    }
    program_.registers.push_back({type});
    return static_cast<int16_t>(program_.registers.size() - 1);
  }
  int16_t emit(const TileInstr& instr) {
    program_.stages.back().push_back(instr);
    return instr.dst;
  }
  Engine& engine_;
  TileProgram program_;
  std::vector<Output> outputs_;
};

struct RandomOptions {
  int stages = 1;  // above 1: reductions between them
  int ops = 6;     // per stage
  std::vector<DType> dtypes = all_dtypes();
  std::vector<TileOp> pool;  // empty: all pointwise instructions
  std::vector<TileOp> reductions = {TileOp::reduce_sum, TileOp::reduce_max, TileOp::reduce_min,
                                    TileOp::reduce_prod};
};

inline TileProgram random_program(Engine& engine, const RandomOptions& options) {
  ProgramBuilder builder(engine);
  std::vector<TileOp> pool = options.pool;
  if (pool.empty())
    for (int i = static_cast<int>(TileOp::neg); i < static_cast<int>(TileOp::reduce_sum); ++i)
      pool.push_back(static_cast<TileOp>(i));
  std::vector<int16_t> values;
  const int64_t inputs = pick(engine, 1, 3);
  std::vector<DType> dtypes;
  for (int64_t i = 0; i < inputs; ++i) dtypes.push_back(pick(engine, options.dtypes));
  for (DType dtype : dtypes) values.push_back(builder.load(builder.add_input(dtype)));
  values.push_back(builder.constant(builder.type_of(values[0]), 2));
  if (options.stages > 1 && pick(engine, 0, 2) == 0)
    values.push_back(builder.load(builder.add_input(pick(engine, options.dtypes)), true));
  for (int s = 0; s < options.stages; ++s) {
    for (int i = 0; i < options.ops; ++i) {
      const TileOp op = pick(engine, pool);
      const TileOpInfo& info = tile_op_info(op);
      const auto letter = static_cast<size_t>(pick(engine, 0, static_cast<int64_t>(info.types.size()) - 1));
      TileType type = builder.type_of(pick(engine, values));
      if (info.types.find(tile_type_letter(type)) == std::string_view::npos)
        type = static_cast<TileType>(std::string_view("fdilm").find(info.types[letter]));
      std::vector<int16_t> args;
      for (int a = 0; a < info.arity; ++a)
        args.push_back(builder.value_of(a == 0 && op == TileOp::select ? TileType::mask : type, values));
      values.push_back(builder.apply(op, type, args, op == TileOp::is_inf ? 3 : 0));
    }
    if (s + 1 == options.stages) break;
    std::vector<int16_t> sums;
    for (int64_t i = pick(engine, 1, 2); i > 0; --i) {
      std::vector<int16_t> vectors;
      for (int16_t at : values)
        if (at < kTileScalarBase) vectors.push_back(at);
      const int16_t from = pick(engine, vectors);
      const TileOp op =
          builder.type_of(from) == TileType::mask ? TileOp::reduce_max : pick(engine, options.reductions);
      sums.push_back(builder.apply(op, builder.type_of(from), {from}));
    }
    builder.next_stage();
    values.insert(values.end(), sums.begin(), sums.end());
  }
  const int64_t outputs = pick(engine, 1, 2);
  for (int64_t i = 0; i < outputs; ++i) {
    int16_t value = i == 0 ? values.back() : pick(engine, values);
    if (value >= kTileScalarBase && (options.stages == 1 || pick(engine, 0, 1))) {
      int16_t vector = value;
      for (int16_t at : values)
        if (at < kTileScalarBase) vector = at;
      value = vector;
    }
    std::vector<DType> fitting;
    for (DType dtype : all_dtypes())
      if (tile_type_stores(builder.type_of(value), dtype)) fitting.push_back(dtype);
    builder.store(pick(engine, fitting), value);
  }
  return builder.finish();
}

}  // namespace aicf::tile_testing
