// Tensors that come from sizes and attributes: shapes as values, constants, ranges, triangles.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "import/onnx_ops/carried.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

void shape(NodeContext& n) {
  const int64_t rank = n.rank(0);
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = clamp(n.attr_int("start", 0)), end = std::max(start, clamp(n.attr_int("end", rank)));
  const Shape from = n.shape(0);
  n.out_sizes(0, {from.begin() + start, from.begin() + end}, {DType::i64, {Dim(end - start)}});
}

void size(NodeContext& n) { n.out_sizes(0, {element_count(n.shape(0))}, {DType::i64, {}}); }

void constant_of_shape(NodeContext& n) {
  const Shape shape = n.require_sizes(0, "the shape");
  for (const Dim& size : shape)
    if (size.constant().value_or(0) < 0) n.bad("the shape", "sizes of at least 0", to_string(shape));
  Array value = Array::scalar_f64(DType::f32, 0);
  const CarriedType* carried = nullptr;
  if (const AttributeProto* a = n.attr("value"); a && a->t) {
    value = to_array(*a->t, nullptr, "");
    carried = carried_type(a->t->data_type);
  }
  if (value.count() != 1) n.bad("value", "one element", std::to_string(value.count()));
  value = value.reshaped({});
  const auto count = element_count(shape).constant();
  if (carried) return out_carried(n, 0, n.broadcast(n.constant_of(value), shape), *carried);
  if (shape.size() <= 1 && count && *count <= kMaxSymbolicElements &&
      (value.dtype() == DType::i64 || value.dtype() == DType::i32))
    return n.out_sizes(0, std::vector<Dim>(static_cast<size_t>(*count), Dim(value.get_i64(0))),
                       {value.dtype(), shape});
  n.out(0, n.broadcast(n.constant_of(value), shape));
}

void constant(NodeContext& n) {
  for (const char* name : {"value", "sparse_value"})
    if (const AttributeProto* a = n.attr(name); a && a->t) {
      n.out_array(0, to_array(*a->t, nullptr, ""));
      n.outputs()[0]->carried = carried_type(a->t->data_type);
      return;
    }
  if (const AttributeProto* a = n.attr("value_float"))
    return n.out_array(0, Array::scalar_f64(DType::f32, a->f));
  if (const AttributeProto* a = n.attr("value_int"))
    return n.out_array(0, Array::scalar_i64(DType::i64, a->i));
  if (const AttributeProto* a = n.attr("value_floats"))
    return n.out_array(0,
                       Array::from<float>(DType::f32, {static_cast<int64_t>(a->floats.size())}, a->floats));
  if (const AttributeProto* a = n.attr("value_ints"))
    return n.out_array(0, Array::from<int64_t>(DType::i64, {static_cast<int64_t>(a->ints.size())}, a->ints));
  n.unsupported("a value that is text");
}

// start + delta * iota(count) with count = max(ceil((limit - start) / delta), 0).
void range(NodeContext& n) {
  const DType dtype = n.dtype(0);
  Dim count;
  if (is_float(dtype)) {
    const double start = n.require_scalar(0, "start of the range").get_f64(0),
                 limit = n.require_scalar(1, "limit of the range").get_f64(0),
                 delta = n.require_scalar(2, "delta of the range").get_f64(0);
    const double steps = std::ceil((limit - start) / delta);
    if (!(steps < 1e9)) n.bad("range", "fewer than 1e9 elements", std::to_string(steps));
    count = Dim(std::max<int64_t>(0, static_cast<int64_t>(steps)));
  } else {
    const Dim start = n.require_size(0, "start of the range"),
              limit = n.require_size(1, "limit of the range"),
              delta = n.require_size(2, "delta of the range");
    const Interval steps = n.bounds_of(delta);
    if (steps.lo <= 0 && steps.hi >= 0) n.bad("delta", "never 0", delta.to_string());
    const bool up = steps.lo > 0;
    const Dim distance = up ? limit - start : start - limit, pace = up ? delta : Dim(0) - delta;
    const auto exact = divide_exactly(distance, pace);
    count = n.larger(exact ? *exact : ceildiv(distance, pace), Dim(0));
  }
  const ValueId index =
      n.add(Op::iota, {}, {{"shape", Shape{count}}, {"axis", int64_t{0}}, {"dtype", dtype}});
  const ValueId scaled = n.add(Op::mul, {index, n.reshape(n.in(2), {})});
  n.out(0, n.add(Op::add, {scaled, n.reshape(n.in(0), {})}));
}

// column - row of a matrix [rows, columns].
ValueId diagonal_number(NodeContext& n, const Dim& rows, const Dim& columns) {
  const Shape shape = {rows, columns};
  const ValueId row = n.add(Op::iota, {}, {{"shape", shape}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
  const ValueId column = n.add(Op::iota, {}, {{"shape", shape}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
  return n.add(Op::sub, {column, row});
}

void trilu(NodeContext& n) {
  if (n.rank(0) < 2) n.bad("x", "rank >= 2", std::to_string(n.rank(0)));
  const size_t rank = static_cast<size_t>(n.rank(0));
  const ValueId diagonal = diagonal_number(n, n.shape(0)[rank - 2], n.shape(0)[rank - 1]);
  const ValueId k = n.has(1) ? n.reshape(n.in(1), {}) : n.iscalar(DType::i64, 0);
  const ValueId keep = n.add(n.attr_int("upper", 1) != 0 ? Op::ge : Op::le, {diagonal, k});
  n.out(0, n.add(Op::select, {keep, n.in(0), n.cast(n.iscalar(DType::i64, 0), n.dtype(0))}));
}

void eye_like(NodeContext& n) {
  if (n.rank(0) != 2) n.bad("x", "rank 2", std::to_string(n.rank(0)));
  DType dtype = n.dtype(0);
  if (n.has_attr("dtype")) {
    const auto wanted = dtype_from_onnx(static_cast<int>(n.attr_int("dtype", 0)));
    if (!wanted) n.unsupported("data type " + data_type_name(static_cast<int>(n.attr_int("dtype", 0))));
    dtype = *wanted;
  }
  const ValueId diagonal = diagonal_number(n, n.shape(0)[0], n.shape(0)[1]);
  n.out(0, n.cast(n.add(Op::eq, {diagonal, n.iscalar(DType::i64, n.attr_int("k", 0))}), dtype));
}

}  // namespace

std::vector<OpRule> fill_rules() {
  return {
      {"Shape", shape},       {"Size", size},        {"ConstantOfShape", constant_of_shape},
      {"Constant", constant}, {"Range", range},      {"Range", range, 1, kContrib},  // of opsets before 11
      {"Trilu", trilu},       {"EyeLike", eye_like},
  };
}

}  // namespace aicf::onnx
