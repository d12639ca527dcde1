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
  const ValueId mean = e.mean(wide, axes, true);
  const ValueId centered = e.sub(wide, mean);
  const ValueId variance = e.mean(e.mul(centered, centered), axes, true);
  const ValueId epsilon = e.scalar(e.dtype(wide), node.attrs.get_float("epsilon"));
  const ValueId factor =
      e.mul(e.op(Op::rsqrt, {e.add(variance, epsilon)}), e.widen(e.along_channels(x[1], rank)));
  const ValueId y = affine(e, centered, factor, e.widen(e.along_channels(x[2], rank)));
  const Shape channels = {e.shape(wide)[1]};
  return {e.cast(y, dtype), e.cast(e.reshape(mean, channels), dtype),
          e.cast(e.reshape(variance, channels), dtype)};
}

GroupMoments group_moments(Emitter& e, ValueId x, int64_t groups, double epsilon) {
  const Ints space = axes_from(2, e.rank(x));
  const Shape shape = e.shape(x);
  const Shape grouped = {shape[0], Dim(groups), floordiv(shape[1], groups)};
  GroupMoments found;
  found.channel_mean = e.mean(x, space, true);
  const ValueId differences = e.sub(x, found.channel_mean);
  const ValueId within = e.reshape(e.mean(e.mul(differences, differences), space, true), grouped);
  const ValueId means = e.reshape(found.channel_mean, grouped);
  found.mean = e.mean(means, {2}, true);
  found.apart = e.sub(means, found.mean);
  const ValueId variance = e.mean(e.add(within, e.mul(found.apart, found.apart)), {2}, true);
  found.r = e.op(Op::rsqrt, {e.add(variance, e.scalar(e.dtype(x), epsilon))});
  return found;
}

ValueId by_group(Emitter& e, ValueId channels, int64_t groups) {
  if (channels == kNoValue) return channels;
  const Dim count = e.shape(channels)[0];
  return e.reshape(channels, {Dim(1), Dim(groups), floordiv(count, groups)});
}

ValueId to_channels(Emitter& e, ValueId of_group, const GroupMoments& moments) {
  const ValueId one = e.scalar(e.dtype(of_group), 1);
  return e.mul(of_group, e.op(Op::broadcast_to, {one}, {{"shape", e.shape(moments.apart)}}));
}

ValueId along_space(Emitter& e, ValueId grouped, const Shape& like) {
  Shape to(like.size(), Dim(1));
  to[0] = like[0], to[1] = like[1];
  return e.reshape(grouped, std::move(to));
}

// What depends on the channel alone is computed apart. An element is centred by an addition: the difference
// that the variance is made from would be stored for it.
Values decompose_group_norm(Emitter& e, const Node& node, const Values& x) {
  const int64_t groups = node.attrs.get_int("groups");
  const ValueId wide = e.widen(x[0]);
  const GroupMoments moments = group_moments(e, wide, groups, node.attrs.get_float("epsilon"));
  const ValueId scale = e.widen(by_group(e, x[1], groups)), bias = e.widen(by_group(e, x[2], groups));
  const ValueId factor = scale == kNoValue ? to_channels(e, moments.r, moments) : e.mul(moments.r, scale);
  ValueId shift = e.mul(moments.apart, factor);
  if (bias != kNoValue) shift = e.add(shift, bias);
  const Shape shape = e.shape(wide);
  const ValueId centered = e.add(wide, e.op(Op::neg, {moments.channel_mean}));
  const ValueId y = affine(e, centered, along_space(e, factor, shape), along_space(e, shift, shape));
  return {e.cast(y, e.dtype(x[0]))};
}

}  // namespace aicf
