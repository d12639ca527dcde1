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

}  // namespace

Values vjp_layer_norm(const Vjp& v) { return norm_gradients(v, true); }
Values vjp_rms_norm(const Vjp& v) { return norm_gradients(v, false); }

// The sums that are the gradients of scale and bias give those of x, too: r scale (dy - mean(dy) -
// z mean(dy z)).
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
  if (dy != kNoValue) {
    const ValueId sum = e.reduce(Op::reduce_sum, dy, axes, true);
    const ValueId along = e.reduce(Op::reduce_sum, e.mul(dy, s.z), axes, true);
    if (v.wants(0)) {
      const ValueId g = e.sub(e.sub(dy, e.div(sum, count)), e.mul(s.z, e.div(along, count)));
      add(e.mul(g, e.mul(s.r, v.wide(e.along_channels(v.x(1), rank)))));
    }
    if (v.wants(1)) gradients[1] = e.reshape(along, {channels});
    if (v.wants(2)) gradients[2] = e.reshape(sum, {channels});
  }
  if (v.wants(0) && dmean != kNoValue) add(spread(e, e.div(dmean, count), axes, shape));
  if (v.wants(0) && dvar != kNoValue) {
    const ValueId centered = e.div(s.z, s.r), twice = e.mul(dvar, v.number(x, 2));
    add(e.mul(centered, e.along_channels(e.div(twice, count), rank)));
  }
  return gradients;
}

// With x - m, m the mean of a channel in space, in the place of z: sums of dy and dy (x - m) in space serve
// all three gradients, and what remains of x's is dy a + (x - m) b + c, whose numbers belong to a channel.
Values vjp_group_norm(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId x = v.wide(v.x(0)), dy = v.wide(v.dy());
  const int64_t groups = v.attrs().get_int("groups");
  const GroupMoments moments = group_moments(e, x, groups, v.attrs().get_float("epsilon"));
  const ValueId differences = e.sub(x, moments.channel_mean);
  const Ints space = axes_from(2, e.rank(x));
  const Shape shape = e.shape(x), grouped = e.shape(moments.apart);
  Dim members = grouped[2];
  for (int64_t axis : space) members = members * shape[static_cast<size_t>(axis)];
  const ValueId sums = e.reshape(e.reduce(Op::reduce_sum, dy, space, true), grouped);
  const ValueId products = e.reshape(e.reduce(Op::reduce_sum, e.mul(dy, differences), space, true), grouped);
  // Of dy z.
  const ValueId along = e.mul(e.add(products, e.mul(moments.apart, sums)), moments.r);
  Values gradients(3, kNoValue);
  if (v.wants(0)) {
    const ValueId scale = v.wide(by_group(e, v.x(1), groups));
    const auto weighted = [&](ValueId value) { return scale == kNoValue ? value : e.mul(value, scale); };
    const ValueId count = e.size(members, e.dtype(x));
    const auto mean = [&](ValueId value) {
      return e.div(e.reduce(Op::reduce_sum, weighted(value), {2}, true), count);
    };
    const ValueId a = scale == kNoValue ? to_channels(e, moments.r, moments) : e.mul(moments.r, scale);
    const ValueId b = e.op(Op::neg, {e.mul(e.mul(moments.r, moments.r), mean(along))});
    const ValueId c = e.sub(e.mul(moments.apart, b), e.mul(moments.r, mean(sums)));
    const auto in_space = [&](ValueId value) { return along_space(e, value, shape); };
    gradients[0] = e.add(
        e.add(e.mul(dy, in_space(a)), e.mul(differences, in_space(to_channels(e, b, moments)))), in_space(c));
  }
  const auto over_batch = [&](ValueId value) {
    return e.reshape(e.reduce(Op::reduce_sum, value, {0}, true), {shape[1]});
  };
  if (v.wants(1)) gradients[1] = over_batch(along);
  if (v.wants(2)) gradients[2] = over_batch(sums);
  return gradients;
}

}  // namespace aicf
