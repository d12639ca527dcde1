#include "import/onnx_ops/carried.h"

#include <algorithm>

namespace aicf::onnx {
namespace {

enum class Handling {
  kReads,  // by value: the results have types of their own
  kKeeps,  // values move: the results have the type of the data
  kWraps,  // arithmetic: so they have, and come back into its range
};

// What an op needs of u64, of which the carrier has the bits.
enum class Wide {
  kBits,     // no more, or its converter knows
  kOrder,    // which is greater: with the highest bit turned over, i64 has the order of u64
  kNumbers,  // more: refused
};

// `count` inputs from `first` on are data of one type; the others are indices and the like.
struct CarriedRow {
  std::string_view op;
  Handling handling;
  size_t first = 0, count = 1;
  Wide wide = Wide::kBits;
};
constexpr size_t kAll = 1 << 16;

constexpr CarriedRow kCarriedRows[] = {
    {"Cast", Handling::kReads},
    {"CastLike", Handling::kReads},
    {"BitCast", Handling::kReads},
    {"QuantizeLinear", Handling::kReads, 0, 1, Wide::kNumbers},
    {"DequantizeLinear", Handling::kReads, 0, 1, Wide::kNumbers},
    {"GatherBlockQuantized", Handling::kReads, 0, 1, Wide::kNumbers},
    {"Equal", Handling::kReads, 0, kAll},
    {"Greater", Handling::kReads, 0, kAll, Wide::kOrder},
    {"GreaterOrEqual", Handling::kReads, 0, kAll, Wide::kOrder},
    {"Less", Handling::kReads, 0, kAll, Wide::kOrder},
    {"LessOrEqual", Handling::kReads, 0, kAll, Wide::kOrder},
    {"Shape", Handling::kReads},
    {"Size", Handling::kReads},
    {"ArgMax", Handling::kReads, 0, 1, Wide::kOrder},
    {"ArgMin", Handling::kReads, 0, 1, Wide::kOrder},
    {"Identity", Handling::kKeeps},
    {"Reshape", Handling::kKeeps},
    {"Flatten", Handling::kKeeps},
    {"Squeeze", Handling::kKeeps},
    {"Unsqueeze", Handling::kKeeps},
    {"Transpose", Handling::kKeeps},
    {"Slice", Handling::kKeeps},
    {"Split", Handling::kKeeps},
    {"Concat", Handling::kKeeps, 0, kAll},
    {"Gather", Handling::kKeeps},
    {"GatherElements", Handling::kKeeps},
    {"GatherND", Handling::kKeeps},
    {"Expand", Handling::kKeeps},
    {"Tile", Handling::kKeeps},
    {"DepthToSpace", Handling::kKeeps},
    {"SpaceToDepth", Handling::kKeeps},
    {"ReverseSequence", Handling::kKeeps},
    {"Where", Handling::kKeeps, 1, 2},
    {"Max", Handling::kKeeps, 0, kAll, Wide::kOrder},
    {"Min", Handling::kKeeps, 0, kAll, Wide::kOrder},
    {"Clip", Handling::kKeeps, 0, kAll, Wide::kOrder},
    {"ReduceMax", Handling::kKeeps, 0, 1, Wide::kOrder},
    {"ReduceMin", Handling::kKeeps, 0, 1, Wide::kOrder},
    {"TopK", Handling::kKeeps, 0, 1, Wide::kOrder},
    {"Add", Handling::kWraps, 0, kAll},
    {"Sub", Handling::kWraps, 0, kAll},
    {"Mul", Handling::kWraps, 0, kAll},
    {"Div", Handling::kWraps, 0, kAll},
    {"Mod", Handling::kWraps, 0, kAll},
    {"Pow", Handling::kWraps},
    {"BitShift", Handling::kWraps, 0, kAll},
    {"BitwiseAnd", Handling::kWraps, 0, kAll},
    {"BitwiseOr", Handling::kWraps, 0, kAll},
    {"BitwiseXor", Handling::kWraps, 0, kAll},
    {"BitwiseNot", Handling::kWraps},
    {"ReduceSum", Handling::kWraps},
};

const CarriedRow* row_of(std::string_view op) {
  const auto row = std::find_if(std::begin(kCarriedRows), std::end(kCarriedRows),
                                [&](const CarriedRow& r) { return r.op == op; });
  return row == std::end(kCarriedRows) ? nullptr : &*row;
}

// Ops that read floats of 8 and 4 bits; those that move values take them too.
bool is_of_small_floats(std::string_view op) {
  constexpr std::string_view kOps[] = {"Cast",  "CastLike", "QuantizeLinear", "DequantizeLinear",
                                       "Shape", "Size"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

ValueId turned_over(NodeContext& n, ValueId x) {
  return n.add(Op::bit_xor, {x, n.iscalar(DType::i64, INT64_MIN)});
}

// Of a tensor, or of any tensor of a sequence.
const CarriedType* carried_in(const OnnxValue& value) {
  if (!value.items) return value.carried;
  for (const auto& item : *value.items)
    if (const CarriedType* type = carried_in(*item)) return type;
  return nullptr;
}

}  // namespace

ValueId wrapped(NodeContext& n, ValueId x, const CarriedType& type) {
  if (type.bits == 64) return n.cast(x, type.carrier);
  const DType wide = dtype_bytes(type.carrier) < 4 ? DType::i32 : type.carrier;
  const auto number = [&](int64_t value) { return n.iscalar(wide, value); };
  x = n.cast(x, wide);
  if (type.low != 0) x = n.add(Op::sub, {x, number(type.low)});
  x = n.add(Op::bit_and, {x, number((int64_t{1} << type.bits) - 1)});
  if (type.low != 0) x = n.add(Op::add, {x, number(type.low)});
  return n.cast(x, type.carrier);
}

ValueId unsigned_at_least(NodeContext& n, ValueId x, ValueId y) {
  return n.add(Op::ge, {turned_over(n, x), turned_over(n, y)});
}

// By Hacker's Delight, 9-3: the quotient of half of x is off by one at most, and a divisor with the highest
// bit goes once or not at all.
ValueId unsigned_quotient(NodeContext& n, ValueId x, ValueId y) {
  const ValueId zero = n.iscalar(DType::i64, 0), one = n.iscalar(DType::i64, 1);
  const ValueId half =
      n.add(Op::bit_and, {n.add(Op::shift_right, {x, one}), n.iscalar(DType::i64, INT64_MAX)});
  const ValueId near = n.add(Op::shift_left, {n.add(Op::div, {half, y}), one});
  const ValueId rest = n.add(Op::sub, {x, n.add(Op::mul, {near, y})});
  const ValueId exact = n.add(Op::add, {near, n.cast(unsigned_at_least(n, rest, y), DType::i64)});
  const ValueId once = n.cast(unsigned_at_least(n, x, y), DType::i64);
  return n.add(Op::select, {n.add(Op::lt, {y, zero}), once, exact});
}

// Above 2^63 as twice its half, whose lowest bit keeps what rounding must know of the bit that is lost.
ValueId unsigned_number(NodeContext& n, ValueId x, DType dtype) {
  const ValueId zero = n.iscalar(DType::i64, 0), one = n.iscalar(DType::i64, 1);
  const ValueId half =
      n.add(Op::bit_and, {n.add(Op::shift_right, {x, one}), n.iscalar(DType::i64, INT64_MAX)});
  const ValueId sticky = n.add(Op::bit_or, {half, n.add(Op::bit_and, {x, one})});
  const ValueId large = n.cast(sticky, dtype);
  return n.add(Op::select, {n.add(Op::lt, {x, zero}), n.add(Op::add, {large, large}), n.cast(x, dtype)});
}

namespace {

// A float from 0 to 2^64 as the bits of u64.
ValueId bits_of_number(NodeContext& n, ValueId x) {
  if (n.dtype_of(x) == DType::f16 || n.dtype_of(x) == DType::bf16) x = n.cast(x, DType::f32);
  const ValueId middle = n.scalar(n.dtype_of(x), 0x1p63);
  const ValueId above = turned_over(n, n.cast(n.add(Op::sub, {x, middle}), DType::i64));
  return n.add(Op::select, {n.add(Op::ge, {x, middle}), above, n.cast(x, DType::i64)});
}

}  // namespace

ValueId cast_to_carried(NodeContext& n, ValueId x, const CarriedType& type) {
  const bool real = is_float(n.dtype_of(x));
  if (real && type.bits == 64) return bits_of_number(n, x);
  if (real) x = n.cast(x, DType::i64);
  return wrapped(n, x, type);
}

void out_carried(NodeContext& n, size_t i, ValueId id, const CarriedType& type) {
  n.out(i, id);
  n.outputs()[i]->carried = &type;
}

bool check_carried(NodeContext& n) {
  const CarriedType* type = nullptr;
  for (size_t i = 0; i < n.input_count() && type == nullptr; ++i)
    if (const ValueRef& value = n.input(i)) type = carried_in(*value);
  if (type == nullptr) return false;
  const CarriedRow* row = row_of(n.op_type);
  const bool knows_floats =
      row != nullptr &&
      (row->handling == Handling::kKeeps ? row->wide == Wide::kBits : is_of_small_floats(row->op));
  if (row == nullptr || (type->bits == 64 && row->wide == Wide::kNumbers) || (type->format && !knows_floats))
    n.unsupported("data type " + data_type_name(type->data_type));
  const size_t end = std::min(n.input_count(), row->first + row->count);
  for (size_t i = row->first; i < end; ++i)
    if (const ValueRef& value = n.input(i); value && value->carried != n.ref(row->first)->carried)
      n.bad("operands", "one data type", "several");
  if (type->bits == 64 && row->wide == Wide::kOrder)
    for (size_t i = row->first; i < end; ++i)
      if (n.input(i) != nullptr) {
        n.set_input(i, turned_over(n, n.in(i)));
        n.ref(i)->carried = type;
      }
  return true;
}

void finish_carried(NodeContext& n) {
  const CarriedRow* row = row_of(n.op_type);
  if (row == nullptr || row->handling == Handling::kReads || !n.has(row->first)) return;
  const CarriedType* type = n.ref(row->first)->carried;
  if (type == nullptr) return;
  const size_t results = n.op_type == "Split" ? n.outputs().size() : 1;
  for (size_t i = 0; i < results; ++i) {
    const ValueRef& value = n.outputs()[i];
    if (value == nullptr) continue;
    if (type->bits == 64 && row->wide == Wide::kOrder)
      n.out(i, turned_over(n, n.context().materialize(*value)));
    if (row->handling == Handling::kWraps) n.out(i, wrapped(n, n.context().materialize(*value), *type));
    n.outputs()[i]->carried = type;
  }
}

}  // namespace aicf::onnx
