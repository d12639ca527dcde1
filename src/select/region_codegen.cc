#include "select/region_codegen.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "ir/region.h"
#include "ir/rounding.h"
#include "target/tile_mapping.h"

namespace aicf {
namespace {

// "round_" and "bf16", or a whole name. The tile machine claims no op without one.
TileOp instruction(std::string_view name, std::string_view type = {}) {
  const std::string whole = std::string(name) + std::string(type);
  const std::optional<TileOp> op = find_tile_op(whole);
  AICF_CHECK(op.has_value(), "no tile instruction: " + whole);
  return *op;
}

// Emits instructions over virtual registers, one per value.
class RegionCompiler {
 public:
  RegionCompiler(const Region& region, const Schedule& schedule)
      : body_(region.body),
        schedule_(schedule),
        full_(region.full_shape),
        has_reduction_(first_reduction(region.body) != nullptr) {}

  TileProgram run() {
    const auto count = static_cast<size_t>(body_.value_count());
    location_.resize(count);
    find_values_rounded_when_stored();
    number_operands();
    for (const Node& node : body_.nodes()) emit_node(node);
    for (const ValueId id : body_.outputs()) emit_store(id);
    assign_registers(virtual_types_, program_);
    return std::move(program_);
  }

 private:
  // A value is a vector (register) or constant along the inner axes (row scalar), ready from stage `stage`
  // on.
  struct Location {
    int16_t place = -1;  // as instructions number it; -1: it is not emitted
    int stage = 0;
    int16_t operand = -1;       // loads: operand number, reloaded in each stage that reads it
    ValueId summed = kNoValue;  // the sum of this value over all rows, which is stored and nothing else
  };
  // Where an instruction stands, and whether it runs once per row.
  struct Point {
    int stage = 0;
    bool scalar = false;
  };

  void number_operands() {
    for (ValueId id : body_.inputs()) {
      location_[static_cast<size_t>(id)].operand = static_cast<int16_t>(program_.inputs.size());
      program_.inputs.push_back(body_.dtype(id));
    }
  }

  // Whether to round the value is the same as to round what is made of it: sums, products and their like that
  // reach nothing but stores, through exact ops if any. Functions are rounded at once, since CUDA text has
  // forms of some for values that are.
  void find_values_rounded_when_stored() {
    std::vector<bool> read(location_.size()), reaches_stores(location_.size(), true);
    rounded_when_stored_.resize(location_.size());
    for (size_t i = body_.nodes().size(); i-- > 0;) {
      const Node& node = body_.nodes()[i];
      const ValueId result = node.results[0];
      const auto at = static_cast<size_t>(result);
      rounded_when_stored_[at] = reaches_stores[at] && (!read[at] || rounds_one_operation(node.op));
      const bool passes = rounds_nothing(node.op) && reaches_stores[at];
      for (ValueId id : node.operands) {
        const auto operand = static_cast<size_t>(id);
        read[operand] = true;
        if (!passes) reaches_stores[operand] = false;
      }
    }
  }

  static bool rounds_one_operation(Op op) {
    return op == Op::add || op == Op::sub || op == Op::mul || op == Op::div || op == Op::sqrt;
  }

  // Whether what the op computes is rounded to its half type at once.
  bool rounds(const Node& node) const {
    const ValueId result = node.results[0];
    return is_half(body_.dtype(result)) && !rounds_nothing(node.op) &&
           !rounded_when_stored_[static_cast<size_t>(result)];
  }

  std::vector<TileInstr>& stage(int index) {
    while (static_cast<int>(program_.stages.size()) <= index) program_.stages.emplace_back();
    return program_.stages[static_cast<size_t>(index)];
  }

  int16_t new_register(TileType type) {
    virtual_types_.push_back(type);
    return static_cast<int16_t>(virtual_types_.size() - 1);
  }

  int16_t new_scalar(TileType type) {
    program_.scalars.push_back(type);
    return static_cast<int16_t>(kTileScalarBase + program_.scalars.size() - 1);
  }

  // The row scalar that stage 0 makes so, before all else.
  int16_t first_scalar(TileInstr instr) {
    instr.dst = new_scalar(instr.type);
    stage(0).insert(stage(0).begin(), instr);
    return instr.dst;
  }

  // The operand reference of a value for an instruction of stage `s`, loading inputs and constants on first
  // use there.
  int16_t use(ValueId id, int s) {
    Location& at = location_[static_cast<size_t>(id)];
    const Value& value = body_.value(id);
    if (value.role == Role::kConstant) return use_constant(at, value);
    if (at.operand >= 0 && is_row_input(value.type.shape)) return use_row_input(at, value.type.dtype);
    if (at.operand >= 0) return use_once(id, s, TileOp::load, at.operand);
    if (body_.producer(id)->op == Op::iota) return use_once(id, s, TileOp::inner_index);
    AICF_CHECK(at.place >= 0, "a region value is used before it is computed");
    return at.place;
  }

  // Loads, and indices along the inner axis, are made anew in each stage that reads them.
  int16_t use_once(ValueId id, int s, TileOp op, int16_t operand = -1) {
    const auto [known, fresh] = loads_.try_emplace({id, s});
    if (fresh) {
      const TileType type = tile_register_type(body_.dtype(id));
      known->second = new_register(type);
      stage(s).push_back({.op = op, .type = type, .dst = known->second, .operand = operand});
    }
    return known->second;
  }

  // An operand with one element per row is loaded once per row, into a row scalar.
  int16_t use_row_input(Location& at, DType dtype) {
    if (at.place < 0)
      at.place = first_scalar({.op = TileOp::load, .type = tile_register_type(dtype), .operand = at.operand});
    return at.place;
  }

  // Whether an operand varies over the rows only: all its inner axes have size 1 where the row is longer.
  bool is_row_input(const Shape& shape) const {
    const size_t rank = full_.size(), lead = rank - shape.size();
    const auto inner = static_cast<size_t>(schedule_.inner_rank);
    if (inner == 0 || !has_reduction_) return false;
    Dim length(1);
    for (size_t i = rank - inner; i < rank; ++i) {
      const auto axis = static_cast<size_t>(schedule_.domain_axes[i]);
      length = length * full_[axis];
      if (axis >= lead && !(shape[axis - lead] == Dim(1))) return false;
    }
    return !(length == Dim(1));
  }

  // Constants are row scalars made in stage 0.
  int16_t use_constant(Location& at, const Value& value) {
    if (at.place < 0) {
      AICF_CHECK(value.constant.count() == 1, "a region holds a constant that is not a scalar");
      TileInstr constant{TileOp::constant, tile_register_type(value.type.dtype)};
      if (is_float(value.type.dtype))
        constant.imm_f = value.constant.get_f64(0);
      else
        constant.imm_i = value.constant.get_i64(0);
      at.place = first_scalar(constant);
    }
    return at.place;
  }

  int ready_stage(ValueId id) const {
    const Value& value = body_.value(id);
    return value.role == Role::kTemp ? location_[static_cast<size_t>(id)].stage : 0;
  }

  bool scalar_operand(ValueId id) const {
    const Value& value = body_.value(id);
    if (value.role == Role::kConstant) return true;
    if (value.role == Role::kInput) return is_row_input(value.type.shape);
    return value.role == Role::kTemp && location_[static_cast<size_t>(id)].place >= kTileScalarBase;
  }

  void emit_node(const Node& node) {
    if (op_info(node.op).has(kReduction))
      return sums_rows(node) ? note_sum(node.results[0], node.operands[0]) : emit_reduction(node);
    if (node.op == Op::iota) return;  // see use
    if (const ValueId summed = location_[static_cast<size_t>(node.operands[0])].summed; summed != kNoValue)
      return note_sum(node.results[0], summed);  // a cast, which storing does
    Point at{0, true};
    for (ValueId id : node.operands) {
      at.stage = std::max(at.stage, ready_stage(id));
      at.scalar = at.scalar && scalar_operand(id);
    }
    if (node.op == Op::reshape || node.op == Op::broadcast_to) {
      // Inside a region these only add or drop axes of size 1: the same element for every domain index.
      const ValueId source = node.operands[0];
      Location& from = location_[static_cast<size_t>(source)];
      if (body_.value(source).role == Role::kTemp) {
        location_[static_cast<size_t>(node.results[0])] = from;
        return;
      }
    }
    std::vector<int16_t> operands;
    for (ValueId id : node.operands) operands.push_back(use(id, at.stage));
    location_[static_cast<size_t>(node.results[0])] = {emit_pointwise(node, operands, at), at.stage};
  }

  int16_t emit(TileOp op, TileType type, TileType result_type, Point at, std::vector<int16_t> operands,
               int64_t imm = 0) {
    operands.resize(3, -1);
    const int16_t result = at.scalar ? new_scalar(result_type) : new_register(result_type);
    stage(at.stage).push_back({.op = op,
                               .type = type,
                               .dst = result,
                               .a = operands[0],
                               .b = operands[1],
                               .c = operands[2],
                               .imm_i = imm});
    return result;
  }

  // What was computed in f32 or i32 as a value of its narrower dtype.
  int16_t narrow(DType dtype, int16_t x, Point at) {
    const TileType type = tile_register_type(dtype);
    return emit(instruction(is_half(dtype) ? "round_" : "wrap_", dtype_name(dtype)), type, type, at, {x});
  }

  int16_t emit_pointwise(const Node& node, const std::vector<int16_t>& operands, Point at) {
    const DType result = body_.dtype(node.results[0]);
    const DType operand = body_.dtype(node.operands[node.op == Op::select ? 1 : 0]);
    const TileType type = tile_register_type(operand);
    switch (node.op) {
      case Op::reshape:
      case Op::broadcast_to:
        return operands[0];
      case Op::cast:
        return emit_cast(operands[0], operand, result, at);
      case Op::is_inf: {
        const int64_t flags =
            (node.attrs.get_bool("positive") ? 1 : 0) | (node.attrs.get_bool("negative") ? 2 : 0);
        return emit(TileOp::is_inf, type, TileType::mask, at, operands, flags);
      }
      case Op::relu:
        return emit(TileOp::max, type, type, at, {operands[0], first_scalar({TileOp::constant, type})});
      default:
        break;
    }
    const bool shift = node.op == Op::shift_left || node.op == Op::shift_right;
    const int16_t value = emit(instruction(instruction_name(node)), type, tile_register_type(result), at,
                               operands, shift ? 8 * dtype_bytes(operand) : 0);
    return is_narrow_integer(result) || rounds(node) ? narrow(result, value, at) : value;
  }

  int16_t emit_cast(int16_t x, DType from, DType to, Point at) {
    const TileType source = tile_register_type(from), target = tile_register_type(to);
    if (is_narrow_integer(to) && is_float(from))
      return emit(instruction("clamp_", dtype_name(to)), source, target, at, {x});
    if (source != target) x = emit(instruction("to_", tile_type_name(target)), source, target, at, {x});
    return is_half(to) || is_narrow_integer(to) ? narrow(to, x, at) : x;
  }

  // Whether the reduction covers the outer axes where others cover the inner ones.
  bool sums_rows(const Node& node) const {
    return node.attrs.get_ints("axes")[0] !=
           schedule_.domain_axes[full_.size() - static_cast<size_t>(schedule_.inner_rank)];
  }
  void note_sum(ValueId result, ValueId source) { location_[static_cast<size_t>(result)].summed = source; }

  void emit_reduction(const Node& node) {
    const ValueId source = node.operands[0];
    const DType dtype = body_.dtype(node.results[0]);
    const TileType type = tile_register_type(dtype);
    const int s = ready_stage(source);
    int16_t operand = use(source, s);
    if (operand >= kTileScalarBase) operand = spread(operand, type, s);
    int16_t result = emit(instruction(op_info(node.op).name), type, type, {s, true}, {operand});
    const Point behind{s + 1, true};
    stage(behind.stage);
    if (is_narrow_integer(dtype) && (node.op == Op::reduce_max || node.op == Op::reduce_min))
      result = bound_extreme(node.op, dtype, result, behind);
    else if (is_narrow_integer(dtype) || rounds(node))
      result = narrow(dtype, result, behind);
    location_[static_cast<size_t>(node.results[0])] = {result, behind.stage};
  }

  // The extreme of no elements is the end of the dtype, and not that of the register it is computed in.
  int16_t bound_extreme(Op op, DType dtype, int16_t extreme, Point at) {
    const int bits = 8 * static_cast<int>(dtype_bytes(dtype));
    const bool is_signed = dtype != DType::u8, largest = op == Op::reduce_max;
    TileInstr constant{TileOp::constant, TileType::i32};
    constant.imm_i =
        largest ? (is_signed ? -(int64_t{1} << (bits - 1)) : 0) : (int64_t{1} << (bits - is_signed)) - 1;
    const int16_t end = first_scalar(constant);
    return emit(largest ? TileOp::max : TileOp::min, TileType::i32, TileType::i32, at, {extreme, end});
  }

  // A row scalar as a vector: bitwise or, select or max with itself keep every bit but NaN payloads matter to
  // nobody.
  int16_t spread(int16_t scalar, TileType type, int s) {
    const TileOp op = type == TileType::mask ? TileOp::bit_or : TileOp::max;
    return emit(op, type, type, {s, false}, {scalar, scalar});
  }

  void emit_store(ValueId id) {
    const DType dtype = body_.dtype(id);
    if (const ValueId summed = location_[static_cast<size_t>(id)].summed; summed != kNoValue)
      return store(summed, {TileOp::store_sum, TileType::f32}, dtype);
    const TileType type = tile_register_type(dtype);
    const bool is_scalar = is_row_shape(body_.shape(id)) && use(id, ready_stage(id)) >= kTileScalarBase;
    store(id, {is_scalar ? TileOp::store_scalar : TileOp::store, type}, dtype);
  }

  void store(ValueId id, TileInstr instr, DType dtype) {
    const int s = ready_stage(id);
    instr.a = use(id, s);
    if (instr.op == TileOp::store && instr.a >= kTileScalarBase) instr.a = spread(instr.a, instr.type, s);
    instr.operand = static_cast<int16_t>(program_.inputs.size() + program_.outputs.size());
    program_.outputs.push_back(dtype);
    stage(s).push_back(instr);
  }

  // Whether a value has one element per row although the row is longer.
  bool is_row_shape(const Shape& shape) const {
    return schedule_.inner_rank > 0 && !(element_count(shape) == element_count(full_));
  }

  const Graph& body_;
  const Schedule& schedule_;
  const Shape& full_;
  const bool has_reduction_;  // else the domain is one row and has no row scalars but constants
  TileProgram program_;
  std::vector<Location> location_;
  std::vector<bool> rounded_when_stored_;  // by value
  std::vector<TileType> virtual_types_;
  std::map<std::pair<ValueId, int>, int16_t> loads_;  // by value and stage: the register
};

}  // namespace

TileProgram generate_tile_program(const Region& region, const Schedule& schedule) {
  return RegionCompiler(region, schedule).run();
}

std::vector<TileProgram> generate_tile_programs(const CallGraph& calls) {
  std::vector<TileProgram> code(calls.regions.size());
  for (const auto* list : {&calls.init_calls, &calls.calls})
    for (const KernelCall& call : *list)
      if (const RowCall* row = own_row(call))
        for (const ProgramUse& use : row->programs) {
          const auto index = static_cast<size_t>(use.index);
          code[index] = generate_tile_program(calls.regions[index], row->schedule.value_or(Schedule()));
          check_tile_program(code[index]);
        }
  return code;
}

}  // namespace aicf
