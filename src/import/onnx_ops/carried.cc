#include "import/onnx_ops/carried.h"

#include <algorithm>

namespace aicf::onnx {
namespace {

enum class Handling {
  kReads,  // by value: the results have types of their own
  kKeeps,  // values move: the results have the type of the data
  kWraps,  // arithmetic: so they have, and come back into its range
};

// `count` inputs from `first` on are data of one type; the others are indices and the like.
struct CarriedRow {
  std::string_view op;
  Handling handling;
  size_t first = 0, count = 1;
  bool by_bits = true;  // needs no more of the numbers than their bits
};
constexpr size_t kAll = 1 << 16;

constexpr CarriedRow kRows[] = {
    {"Cast", Handling::kReads},
    {"CastLike", Handling::kReads},
    {"BitCast", Handling::kReads},
    {"QuantizeLinear", Handling::kReads, 0, 1, false},
    {"DequantizeLinear", Handling::kReads, 0, 1, false},
    {"GatherBlockQuantized", Handling::kReads, 0, 1, false},
    {"Equal", Handling::kReads, 0, kAll},
    {"Greater", Handling::kReads, 0, kAll, false},
    {"GreaterOrEqual", Handling::kReads, 0, kAll, false},
    {"Less", Handling::kReads, 0, kAll, false},
    {"LessOrEqual", Handling::kReads, 0, kAll, false},
    {"Shape", Handling::kReads},
    {"Size", Handling::kReads},
    {"ArgMax", Handling::kReads, 0, 1, false},
    {"ArgMin", Handling::kReads, 0, 1, false},
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
    {"Max", Handling::kKeeps, 0, kAll, false},
    {"Min", Handling::kKeeps, 0, kAll, false},
    {"Clip", Handling::kKeeps, 0, kAll, false},
    {"ReduceMax", Handling::kKeeps, 0, 1, false},
    {"ReduceMin", Handling::kKeeps, 0, 1, false},
    {"TopK", Handling::kKeeps, 0, 1, false},
    {"Add", Handling::kWraps, 0, kAll},
    {"Sub", Handling::kWraps, 0, kAll},
    {"Mul", Handling::kWraps, 0, kAll},
    {"Div", Handling::kWraps, 0, kAll, false},
    {"Mod", Handling::kWraps, 0, kAll, false},
    {"Pow", Handling::kWraps, 0, 1, false},
    {"BitShift", Handling::kWraps, 0, kAll},
    {"BitwiseAnd", Handling::kWraps, 0, kAll},
    {"BitwiseOr", Handling::kWraps, 0, kAll},
    {"BitwiseXor", Handling::kWraps, 0, kAll},
    {"BitwiseNot", Handling::kWraps},
    {"ReduceSum", Handling::kWraps},
};

const CarriedRow* row_of(std::string_view op) {
  const auto row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const CarriedRow& r) { return r.op == op; });
  return row == std::end(kRows) ? nullptr : &*row;
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

ValueId cast_to_carried(NodeContext& n, ValueId x, const CarriedType& type) {
  const bool real = is_float(n.dtype_of(x));
  if (real && type.bits == 64) n.unsupported("floats as " + data_type_name(type.data_type));
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
  if (row == nullptr || (type->bits == 64 && !row->by_bits))
    n.unsupported("data type " + data_type_name(type->data_type));
  const size_t end = std::min(n.input_count(), row->first + row->count);
  for (size_t i = row->first; i < end; ++i)
    if (const ValueRef& value = n.input(i); value && value->carried != n.ref(row->first)->carried)
      n.bad("operands", "one data type", "several");
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
    if (row->handling == Handling::kWraps) n.out(i, wrapped(n, n.context().materialize(*value), *type));
    n.outputs()[i]->carried = type;
  }
}

}  // namespace aicf::onnx
