#include "kernels/tile/cuda/tile_values.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

class Builder {
 public:
  Builder(const TileProgram& program, const std::function<bool(int)>& varies)
      : program_(program),
        varies_(varies),
        registers_(program.registers.size(), -1),
        scalars_(program.scalars.size(), -1) {}

  TileValues run() {
    std::vector<std::pair<TileInstr, int>> stores;
    for (const auto& stage : program_.stages)
      for (const TileInstr& instr : stage) {
        if (instr.op == TileOp::store_scalar) {
          stores.push_back({instr, -1});  // its scalar may be written later in the stage
        } else if (instr.op == TileOp::store || instr.op == TileOp::store_sum) {
          add_store(instr, at(instr.a));
        } else {
          at(instr.dst) = add(instr);
        }
      }
    for (const auto& [instr, unused] : stores) add_store(instr, at(instr.a));
    mark_half();
    mark_into_halves(&TileValue::into_halves, true);
    mark_into_halves(&TileValue::stored_in_halves, false);
    return std::move(result_);
  }

 private:
  int& at(int16_t number) {
    return number >= kTileScalarBase ? scalars_[static_cast<size_t>(number - kTileScalarBase)]
                                     : registers_[static_cast<size_t>(number)];
  }

  int add(const TileInstr& instr) {
    TileValue value{instr.op, instr.type, tile_result_type(instr)};
    const int16_t sources[] = {instr.a, instr.b, instr.c};
    value.per_row = instr.op != TileOp::inner_index;
    for (int i = 0; i < tile_op_info(instr.op).arity; ++i) {
      const int source = value.args[static_cast<size_t>(i)] = at(sources[i]);
      const TileValue& from = result_.values[static_cast<size_t>(source)];
      value.per_row = value.per_row && from.per_row;
      value.stage = std::max(value.stage, from.stage + (is_tile_reduction(from.op) ? 1 : 0));
    }
    if (instr.op == TileOp::load) {
      value.operand = instr.operand;
      value.per_row = !varies_(instr.operand);
    } else if (instr.op == TileOp::constant && instr.type <= TileType::f64) {
      value.imm_f = instr.imm_f;
    } else {
      value.imm_i = instr.imm_i;
    }
    if (is_tile_reduction(instr.op)) value.per_row = true;
    return number_of(value);
  }

  // Equal values are one.
  int number_of(const TileValue& value) {
    const auto same = [&](const TileValue& other) {
      return other.op == value.op && other.type == value.type && other.args == value.args &&
             other.operand == value.operand && other.imm_i == value.imm_i &&
             (other.imm_f == value.imm_f ? std::signbit(other.imm_f) == std::signbit(value.imm_f)
                                         : other.imm_f != other.imm_f && value.imm_f != value.imm_f);
    };
    const auto found = std::find_if(result_.values.begin(), result_.values.end(), same);
    if (found != result_.values.end()) return static_cast<int>(found - result_.values.begin());
    result_.values.push_back(value);
    result_.stages = std::max(result_.stages, value.stage + 1 + (is_tile_reduction(value.op) ? 1 : 0));
    return static_cast<int>(result_.values.size()) - 1;
  }

  void mark_half() {
    std::vector<std::optional<DType>> halves(result_.values.size());
    std::vector<bool> exact(result_.values.size());  // used unrounded, or rounded to both types
    const auto use = [&](int value, std::optional<DType> rounded) {
      const auto at = static_cast<size_t>(value);
      exact[at] = exact[at] || !rounded || halves[at].value_or(*rounded) != *rounded;
      halves[at] = rounded;
    };
    for (const TileValue& user : result_.values)
      for (int arg : user.args)
        if (arg >= 0) use(arg, rounded_type(user.op));
    for (const TileStore& store : result_.stores) {
      const DType memory = program_.outputs[static_cast<size_t>(store.operand) - program_.inputs.size()];
      use(store.value, is_half(store) ? std::optional(memory) : std::nullopt);
    }
    for (size_t i = 0; i < exact.size(); ++i)
      if (!exact[i] && result_.values[i].result == TileType::f32) result_.values[i].half = halves[i];
  }

  bool is_half(const TileStore& store) const {
    const DType memory = program_.outputs[static_cast<size_t>(store.operand) - program_.inputs.size()];
    return !store.sums && (memory == DType::f16 || memory == DType::bf16);
  }

  // Users come after what they use.
  void mark_into_halves(bool TileValue::* mark, bool functions) {
    std::vector<TileValue>& values = result_.values;
    std::vector<bool> elsewhere(values.size());
    for (const TileStore& store : result_.stores)
      if (!is_half(store)) elsewhere[static_cast<size_t>(store.value)] = true;
    for (size_t i = values.size(); i-- > 0;) {
      values[i].*mark = !elsewhere[i] && values[i].result == TileType::f32;
      const TileOp op = values[i].op;
      const bool passes = op == TileOp::add || op == TileOp::sub || op == TileOp::mul || op == TileOp::neg ||
                          op == TileOp::select || (op == TileOp::sigmoid && functions);
      if (rounded_type(op) || (passes && values[i].*mark) || (!functions && is_tile_reduction(op))) continue;
      for (const int arg : values[i].args)
        if (arg >= 0) elsewhere[static_cast<size_t>(arg)] = true;
    }
  }

  void add_store(const TileInstr& instr, int value) {
    const TileValue& from = result_.values[static_cast<size_t>(value)];
    const int stage = from.stage + (is_tile_reduction(from.op) ? 1 : 0);
    result_.stores.push_back({instr.operand, value, instr.type, instr.op == TileOp::store_scalar, stage,
                              instr.op == TileOp::store_sum});
  }

  const TileProgram& program_;
  const std::function<bool(int)>& varies_;
  std::vector<int> registers_, scalars_;  // the value that each holds
  TileValues result_;
};

}  // namespace

std::optional<DType> rounded_type(TileOp op) {
  if (op == TileOp::round_f16) return DType::f16;
  if (op == TileOp::round_bf16) return DType::bf16;
  return std::nullopt;
}

TileValues tile_values(const TileProgram& program, const std::function<bool(int)>& varies) {
  return Builder(program, varies).run();
}

std::vector<int> needed_values(const TileValues& program, const std::vector<int>& sinks,
                               const std::function<bool(int)>& known) {
  std::vector<bool> wanted(program.values.size());
  for (int sink : sinks) wanted[static_cast<size_t>(sink)] = true;
  std::vector<int> found;
  for (size_t i = program.values.size(); i-- > 0;) {
    const TileValue& value = program.values[i];
    if (!wanted[i] || value.op == TileOp::constant || known(static_cast<int>(i))) continue;
    found.push_back(static_cast<int>(i));
    for (int arg : value.args)
      if (arg >= 0) wanted[static_cast<size_t>(arg)] = true;
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace aicf
