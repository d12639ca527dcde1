// Normalisations.
#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

// (x - mean) / sqrt(var + epsilon) over axes; the variance from the differences, not from sums of squares,
// which cancel.
ValueId standardize(Emitter& e, ValueId x, const Ints& axes, double epsilon) {
  const ValueId centered = e.sub(x, e.mean(x, axes, true));
  const ValueId variance = e.mean(e.mul(centered, centered), axes, true);
  return e.mul(centered, e.op(Op::rsqrt, {e.add(variance, e.scalar(e.dtype(x), epsilon))}));
}

// y * scale + bias, each if present.
ValueId affine(Emitter& e, ValueId y, ValueId scale, ValueId bias) {
  if (scale != kNoValue) y = e.mul(y, scale);
  return bias == kNoValue ? y : e.add(y, bias);
}

}  // namespace

Values decompose_layer_norm(Emitter& e, const Node& node, const Values& x) {
  const Ints axes = axes_from(node.attrs.get_int("axis"), e.rank(x[0]));
  const ValueId y = standardize(e, e.widen(x[0]), axes, node.attrs.get_float("epsilon"));
  return {e.cast(affine(e, y, e.widen(x[1]), e.widen(x[2])), e.dtype(x[0]))};
}

Values decompose_rms_norm(Emitter& e, const Node& node, const Values& x) {
  const ValueId wide = e.widen(x[0]);
  const Ints axes = axes_from(node.attrs.get_int("axis"), e.rank(wide));
  const ValueId square = e.mean(e.mul(wide, wide), axes, true);
  const ValueId epsilon = e.scalar(e.dtype(wide), node.attrs.get_float("epsilon"));
  const ValueId y = e.mul(wide, e.op(Op::rsqrt, {e.add(square, epsilon)}));
  return {e.cast(affine(e, y, e.widen(x[1]), kNoValue), e.dtype(x[0]))};
}

Values decompose_batch_norm(Emitter& e, const Node& node, const Values& x) {
  const int64_t rank = e.rank(x[0]);
  const ValueId wide = e.widen(x[0]);
  const ValueId epsilon = e.scalar(e.dtype(wide), node.attrs.get_float("epsilon"));
  const ValueId factor = e.mul(e.op(Op::rsqrt, {e.add(e.widen(x[4]), epsilon)}), e.widen(x[1]));
  // One multiplication and one addition per element: what depends on the channel alone is computed apart.
  const ValueId shift = e.sub(e.widen(x[2]), e.mul(e.widen(x[3]), factor));
  const ValueId y = affine(e, wide, e.along_channels(factor, rank), e.along_channels(shift, rank));
  return {e.cast(y, e.dtype(x[0]))};
}

Values decompose_batch_norm_train(Emitter& e, const Node& node, const Values& x) {
  const int64_t rank = e.rank(x[0]);
  const DType dtype = e.dtype(x[0]);
  const ValueId wide = e.widen(x[0]);
  Ints axes = {0};
  for (int64_t axis = 2; axis < rank; ++axis) axes.push_back(axis);
  const ValueId mean = e.mean(wide, axes, false);
  const ValueId centered = e.sub(wide, e.along_channels(mean, rank));
  const ValueId variance = e.mean(e.mul(centered, centered), axes, false);
  const ValueId epsilon = e.scalar(e.dtype(wide), node.attrs.get_float("epsilon"));
  const ValueId factor = e.mul(e.op(Op::rsqrt, {e.add(variance, epsilon)}), e.widen(x[1]));
  const ValueId y =
      affine(e, centered, e.along_channels(factor, rank), e.along_channels(e.widen(x[2]), rank));
  return {e.cast(y, dtype), e.cast(mean, dtype), e.cast(variance, dtype)};
}

Values decompose_group_norm(Emitter& e, const Node& node, const Values& x) {
  const int64_t groups = node.attrs.get_int("groups"), rank = e.rank(x[0]);
  const ValueId wide = e.widen(x[0]);
  const Shape shape = e.shape(wide);
  Dim members = floordiv(shape[1], groups);
  for (size_t axis = 2; axis < shape.size(); ++axis) members = members * shape[axis];
  const ValueId grouped = e.reshape(wide, {shape[0], groups, members});
  const ValueId y = e.reshape(standardize(e, grouped, {2}, node.attrs.get_float("epsilon")), shape);
  const auto channels = [&](ValueId vector) {
    return vector == kNoValue ? kNoValue : e.along_channels(e.widen(vector), rank);
  };
  return {e.cast(affine(e, y, channels(x[1]), channels(x[2])), e.dtype(x[0]))};
}

}  // namespace aicf
