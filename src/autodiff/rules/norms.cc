// Normalisations: z = (x - mean) r with r = 1 / sqrt(variance + epsilon), recomputed from x.
#include "autodiff/vjp.h"

namespace aicf {
namespace {

struct Standardized {
  ValueId z, r;
};

Standardized standardize(const Vjp& v, ValueId x, const Ints& axes, bool centered) {
  Emitter& e = v.e;
  if (centered) x = e.sub(x, e.mean(x, axes, true));
  const ValueId variance = e.mean(e.mul(x, x), axes, true);
  const ValueId epsilon = v.number(x, v.attrs().get_float("epsilon"));
  const ValueId r = e.op(Op::rsqrt, {e.add(variance, epsilon)});
  return {e.mul(x, r), r};
}

// From g, the gradient of z, that of x.
ValueId through_standardize(Emitter& e, const Standardized& s, ValueId g, const Ints& axes, bool centered) {
  const ValueId along = e.mul(s.z, e.mean(e.mul(g, s.z), axes, true));
  if (centered) g = e.sub(g, e.mean(g, axes, true));
  return e.mul(e.sub(g, along), s.r);
}

// layer_norm and rms_norm: scale and bias are shaped as the normalised axes, so the caller sums their
// gradients over the leading ones.
Values norm_gradients(const Vjp& v, bool centered) {
  Emitter& e = v.e;
  const ValueId x = v.wide(v.x(0)), dy = v.wide(v.dy());
  const Ints axes = axes_from(v.attrs().get_int("axis"), e.rank(x));
  const Standardized s = standardize(v, x, axes, centered);
  Values gradients(v.node.operands.size(), kNoValue);
  if (v.wants(0)) {
    const ValueId g = v.x(1) == kNoValue ? dy : e.mul(dy, v.wide(v.x(1)));
    gradients[0] = through_standardize(e, s, g, axes, centered);
  }
  if (v.wants(1)) gradients[1] = e.mul(dy, s.z);
  if (gradients.size() > 2 && v.wants(2)) gradients[2] = dy;
  return gradients;
}

// A tensor summed over all axes but the channels.
ValueId per_channel(Emitter& e, ValueId x) {
  return e.reduce(Op::reduce_sum, x, axes_except(1, e.rank(x)), false);
}

}  // namespace

Values vjp_layer_norm(const Vjp& v) { return norm_gradients(v, true); }
Values vjp_rms_norm(const Vjp& v) { return norm_gradients(v, false); }

Values vjp_batch_norm_train(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId x = v.wide(v.x(0)), dy = v.wide(v.dy(0)), dmean = v.wide(v.dy(1)), dvar = v.wide(v.dy(2));
  const int64_t rank = e.rank(x);
  const Ints axes = axes_except(1, rank);
  const Standardized s = standardize(v, x, axes, true);
  const Shape shape = e.shape(x);
  const Dim elements = element_count(shape);
  const Dim& channels = shape[1];
  const ValueId count = e.div(e.size(elements, e.dtype(x)), e.size(channels, e.dtype(x)));
  Values gradients(3, kNoValue);
  const auto add = [&](ValueId term) {
    gradients[0] = gradients[0] == kNoValue ? term : e.add(gradients[0], term);
  };
  if (v.wants(0)) {
    if (dy != kNoValue) {
      const ValueId g = e.mul(dy, e.along_channels(v.wide(v.x(1)), rank));
      add(through_standardize(e, s, g, axes, true));
    }
    if (dmean != kNoValue) add(spread(e, e.div(dmean, count), axes, shape));
    if (dvar != kNoValue) {
      const ValueId centered = e.div(s.z, s.r), twice = e.mul(dvar, v.number(x, 2));
      add(e.mul(centered, e.along_channels(e.div(twice, count), rank)));
    }
  }
  if (v.wants(1) && dy != kNoValue) gradients[1] = per_channel(e, e.mul(dy, s.z));
  if (v.wants(2) && dy != kNoValue) gradients[2] = per_channel(e, dy);
  return gradients;
}

Values vjp_group_norm(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId x = v.wide(v.x(0)), dy = v.wide(v.dy());
  const int64_t groups = v.attrs().get_int("groups"), rank = e.rank(x);
  const Shape shape = e.shape(x);
  Dim members = floordiv(shape[1], groups);
  for (size_t axis = 2; axis < shape.size(); ++axis) members = members * shape[axis];
  const Shape grouped = {shape[0], groups, members};
  const Standardized s = standardize(v, e.reshape(x, grouped), {2}, true);
  Values gradients(3, kNoValue);
  if (v.wants(0)) {
    const ValueId g = v.x(1) == kNoValue ? dy : e.mul(dy, e.along_channels(v.wide(v.x(1)), rank));
    gradients[0] = e.reshape(through_standardize(e, s, e.reshape(g, grouped), {2}, true), shape);
  }
  if (v.wants(1)) gradients[1] = per_channel(e, e.mul(dy, e.reshape(s.z, shape)));
  if (v.wants(2)) gradients[2] = per_channel(e, dy);
  return gradients;
}

}  // namespace aicf
