#include "ir/decompose/emitter.h"

namespace aicf {

ValueId Emitter::op(Op op, std::vector<ValueId> operands, Attrs attrs) {
  return graph_.add(op, std::move(operands), std::move(attrs), origin_);
}

Values Emitter::ops(Op op, std::vector<ValueId> operands, Attrs attrs, std::vector<Graph> bodies) {
  const NodeId node = graph_.add_node(op, std::move(operands), std::move(attrs), std::move(bodies), origin_);
  return graph_.node(node).results;
}

ValueId Emitter::size(const Dim& size, DType dtype) {
  if (const auto value = size.constant())
    return is_float(dtype) ? scalar(dtype, static_cast<double>(*value)) : scalar_int(dtype, *value);
  return op(Op::size_of, {}, {{"size", Shape{size}}, {"dtype", dtype}});
}

ValueId Emitter::cast(ValueId x, DType to) { return dtype(x) == to ? x : op(Op::cast, {x}, {{"dtype", to}}); }

ValueId Emitter::reshape(ValueId x, Shape to) {
  return shape(x) == to ? x : op(Op::reshape, {x}, {{"shape", std::move(to)}});
}

ValueId Emitter::widen(ValueId x) {
  const bool narrow = x != kNoValue && (dtype(x) == DType::f16 || dtype(x) == DType::bf16);
  return narrow ? cast(x, DType::f32) : x;
}

ValueId Emitter::reduce(Op reduction, ValueId x, const Ints& axes, bool keepdims) {
  return op(reduction, {x}, {{"axes", axes}, {"keepdims", keepdims}});
}

ValueId Emitter::mean(ValueId x, const Ints& axes, bool keepdims) {
  Dim count(1);
  for (int64_t axis : axes) count = count * shape(x)[static_cast<size_t>(axis)];
  const ValueId sum = reduce(Op::reduce_sum, x, axes, keepdims);
  return div(sum, size(count, dtype(x)));
}

ValueId Emitter::slice_last(ValueId x, const Dim& start, const Dim& limit) {
  const Shape& sizes = shape(x);
  if (start == Dim(0) && limit == sizes.back()) return x;
  Shape starts(sizes.size(), Dim(0)), limits = sizes;
  starts.back() = start;
  limits.back() = limit;
  return op(Op::slice, {x},
            {{"starts", std::move(starts)}, {"limits", std::move(limits)}, {"steps", Ints(sizes.size(), 1)}});
}

ValueId Emitter::concat_last(std::vector<ValueId> xs) {
  const int64_t axis = rank(xs[0]) - 1;
  return op(Op::concat, std::move(xs), {{"axis", axis}});
}

ValueId Emitter::along_channels(ValueId vector, int64_t rank) {
  Shape to(static_cast<size_t>(rank) - 1, Dim(1));
  to[0] = shape(vector)[0];
  return reshape(vector, std::move(to));
}

Ints axes_from(int64_t first, int64_t rank) {
  Ints axes;
  for (int64_t axis = first; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

}  // namespace aicf
