#include "kernels/tile/cuda/tile_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

std::string hex(uint64_t bits) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(bits));
  return text;
}

template <class Word, class Float>
Word bits_of(Float value) {
  Word word;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

std::string float_constant(double value, bool single) {
  const double rounded = single ? static_cast<double>(static_cast<float>(value)) : value;
  if (!std::isfinite(rounded)) {
    return single ? "aicf::tile::constant_f32(" + hex(bits_of<uint32_t>(static_cast<float>(value))) + "u)"
                  : "aicf::tile::constant_f64(" + hex(bits_of<uint64_t>(value)) + "ull)";
  }
  char text[48];
  std::snprintf(text, sizeof text, "%a", rounded);
  return (std::signbit(rounded) ? "(" + std::string(text) + (single ? "f)" : ")")
                                : std::string(text) + (single ? "f" : ""));
}

// Template argument of instructions with an immediate.
std::string immediate(const TileValue& value) {
  const bool shift = value.op == TileOp::shift_left || value.op == TileOp::shift_right;
  if (value.op == TileOp::is_inf) return "<" + std::to_string(value.imm_i & 3) + ">";
  if (!shift) return "";
  const int64_t bits = 8 * tile_type_bytes(value.type);
  return "<" + std::to_string(value.imm_i > 0 && value.imm_i < bits ? value.imm_i : bits) + ">";
}

// Many elements divided by the same number.
bool divides_by_row_value(const TileValues& program, const TileValue& v) {
  return v.op == TileOp::div && v.type == TileType::f32 && !v.per_row &&
         program.values[static_cast<size_t>(v.args[1])].per_row;
}

}  // namespace

std::string_view tile_cuda_type(TileType type) {
  constexpr std::string_view kNames[] = {"float", "double", "int32_t", "int64_t", "bool"};
  return kNames[static_cast<size_t>(type)];
}

std::string_view tile_memory_type(DType dtype) {
  return dtype == DType::boolean ? std::string_view("uint8_t") : cuda_type(dtype);
}

std::string tile_constant(const TileValue& value) {
  switch (value.type) {
    case TileType::f32:
      return float_constant(value.imm_f, true);
    case TileType::f64:
      return float_constant(value.imm_f, false);
    case TileType::i32:
      return "int32_t(" + hex(static_cast<uint32_t>(value.imm_i)) + "u)";
    case TileType::i64:
      return "int64_t(" + hex(static_cast<uint64_t>(value.imm_i)) + "ull)";
    case TileType::mask:
      break;
  }
  return value.imm_i != 0 ? "true" : "false";
}

std::string tile_reference(const TileValues& program, int value) {
  const TileValue& v = program.values[static_cast<size_t>(value)];
  return v.op == TileOp::constant ? tile_constant(v) : "v" + std::to_string(value);
}

std::string tile_loaded(DType dtype, const std::string& element) {
  return dtype == DType::boolean ? element + " != 0" : "aicf::tile::value(" + element + ")";
}

namespace {

// Whether gelu stands beside its slope, for halves.
bool has_slope(const TileValues& program) {
  const auto has = [&](auto is) { return std::any_of(program.values.begin(), program.values.end(), is); };
  return has([](const TileValue& v) { return v.op == TileOp::gelu_tanh && v.half; }) &&
         has([](const TileValue& v) { return v.op == TileOp::sigmoid && v.into_halves; });
}

// Those of tile_functions.cuh, and exp_half.
bool has_half_form(TileOp op) {
  switch (op) {
    case TileOp::exp:
    case TileOp::expm1:
    case TileOp::log:
    case TileOp::log1p:
    case TileOp::sinh:
    case TileOp::cosh:
    case TileOp::tanh:
    case TileOp::asinh:
    case TileOp::acosh:
    case TileOp::atanh:
      return true;
    default:
      return false;
  }
}

// Of a function that need not be exact, since its result ends in half types.
std::string variant_of(const TileValues& program, const TileValue& v) {
  if (v.op == TileOp::sigmoid) return v.into_halves ? "_half" : "";
  if (!v.half) return "";
  if (v.op == TileOp::rsqrt) return "_half";
  if (v.op == TileOp::gelu) return "_" + std::string(dtype_name(*v.half));
  if (has_half_form(v.op)) return "_half";
  if (v.op != TileOp::gelu_tanh) return "";
  return has_slope(program) ? "_beside_slope" : "_half";
}

// Whether the operands of a product are there wherever `user` is computed: it is not kept from an earlier
// stage, nor made once for a row.
bool is_made_for(const TileValues& program, int product, const TileValue& user) {
  const auto uses = [&](const TileValue& v) {
    return std::find(v.args.begin(), v.args.end(), product) != v.args.end();
  };
  const TileValue& value = program.values[static_cast<size_t>(product)];
  if (value.op != TileOp::mul || value.per_row != user.per_row) return false;
  if (program.stages == 1) return true;
  return std::all_of(program.values.begin(), program.values.end(),
                     [&](const TileValue& v) { return &v == &user || !uses(v); }) &&
         std::none_of(program.stores.begin(), program.stores.end(),
                      [&](const TileStore& store) { return store.value == product; });
}

// a b + c in one instruction, where c may be the one or the other: of what ends in halves beside gelu.
std::string fused_expression(const TileValues& program, const TileValue& v) {
  if (v.op != TileOp::add || !v.into_halves || !has_slope(program)) return "";
  for (const int first : {1, 0}) {
    const int number = v.args[static_cast<size_t>(first)];
    const TileValue& product = program.values[static_cast<size_t>(number)];
    if (is_made_for(program, number, v))
      return "__fmaf_rn(" + tile_reference(program, product.args[0]) + ", " +
             tile_reference(program, product.args[1]) + ", " +
             tile_reference(program, v.args[static_cast<size_t>(1 - first)]) + ")";
  }
  return "";
}

}  // namespace

std::string tile_expression(const TileValues& program, int value) {
  const TileValue& v = program.values[static_cast<size_t>(value)];
  if (const std::string fused = fused_expression(program, v); !fused.empty()) return fused;
  std::string text =
      "aicf::tile::" + std::string(tile_op_info(v.op).name) + variant_of(program, v) + immediate(v) + "(";
  for (int i = 0; i < tile_op_info(v.op).arity; ++i) {
    const int arg = v.args[static_cast<size_t>(i)];
    const TileValue& from = program.values[static_cast<size_t>(arg)];
    text += i ? ", " : "";
    const bool divisor = i == 1 && divides_by_row_value(program, v);
    if (divisor && from.op == TileOp::constant) {
      text += "aicf::tile::Divisor(" + tile_constant(from) + ")";
    } else {
      text += divisor ? "d" + std::to_string(arg) : tile_reference(program, arg);
    }
  }
  return text + ")";
}

bool tile_shares_work(const TileValues& program, int value) {
  const TileValue& v = program.values[static_cast<size_t>(value)];
  return v.op == TileOp::gelu_tanh && v.half && !has_slope(program);
}

std::string tile_definition(const TileValues& program, int value, const std::string& expression) {
  const TileType type = program.values[static_cast<size_t>(value)].result;
  const std::string number = std::to_string(value);
  const std::string text =
      "const " + std::string(tile_cuda_type(type)) + " v" + number + " = " + expression + ";\n";
  const bool divides = std::any_of(program.values.begin(), program.values.end(), [&](const TileValue& user) {
    return divides_by_row_value(program, user) && user.args[1] == value;
  });
  return divides ? text + "const aicf::tile::Divisor d" + number + "(v" + number + ");\n" : text;
}

int stored_value(const TileValues& program, const TileStore& store, DType memory) {
  const TileValue& value = program.values[static_cast<size_t>(store.value)];
  const bool rounds = (value.op == TileOp::round_bf16 && memory == DType::bf16) ||
                      (value.op == TileOp::round_f16 && memory == DType::f16);
  return rounds ? value.args[0] : store.value;
}

std::string tile_program_name(const TileValues& program) {
  std::vector<std::string_view> names;
  for (const TileValue& value : program.values) {
    const bool moves = value.op == TileOp::load || value.op == TileOp::constant ||
                       (value.op >= TileOp::to_f32 && value.op <= TileOp::round_bf16);
    const std::string_view name = tile_op_info(value.op).name;
    if (!moves && names.size() < 5 && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  std::string text;
  for (std::string_view name : names) text += "_" + std::string(name);
  return text.empty() ? "_copy" : text;
}

std::string TileOffsets::number(const Dim& dim) {
  if (const auto value = dim.constant())
    return (*value < 0 ? "(" : "") + std::to_string(*value) + (space_.wide ? "ll" : "") +
           (*value < 0 ? ")" : "");
  return "Index(" + params_.expr(dim) + ")";
}

std::string TileOffsets::sum(const TileView& view, size_t first, size_t last,
                             const std::vector<std::string>& coordinates) {
  std::string text;
  for (size_t axis = first; axis < last; ++axis) {
    const Dim& stride = view.strides[axis];
    if (is_number(stride, 0)) continue;
    text += text.empty() ? "" : " + ";
    text += coordinates[axis - first];
    if (!is_number(stride, 1)) text += " * " + number(stride);
  }
  return text.empty() ? "0" : text;
}

std::string TileOffsets::split(const std::string& index, const Shape& sizes, const std::string& name) {
  std::string text;
  for (size_t axis = sizes.size(); axis-- > 0;) {
    const std::string coordinate = "const Index " + name + std::to_string(axis) + " = Index(";
    if (axis == 0) {
      text += coordinate + index + ");\n";
    } else {
      const std::string size = "Size(" + number(sizes[axis]) + ")";
      text += coordinate + index + " % " + size + ");\n" + index + " /= " + size + ";\n";
    }
  }
  return text;
}

std::string tile_index_types(const TileSpace& space) {
  return space.wide ? "using Index = int64_t;\nusing Size = uint64_t;\n"
                    : "using Index = int32_t;\nusing Size = uint32_t;\n";
}

}  // namespace aicf
