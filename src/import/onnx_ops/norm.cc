// Normalisations.
#include <numeric>

#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

Ints axes_from(int64_t axis, int64_t rank) {
  Ints axes(static_cast<size_t>(rank - axis));
  std::iota(axes.begin(), axes.end(), axis);
  return axes;
}

ValueId mean_over(NodeContext& n, ValueId x, const Ints& axes) {
  return n.add(Op::reduce_mean, {x}, {{"axes", axes}, {"keepdims", true}});
}

// 1 / sqrt(x + epsilon)
ValueId inverse_deviation(NodeContext& n, ValueId variance, double epsilon) {
  return n.add(Op::rsqrt, {n.add(Op::add, {variance, n.scalar(n.dtype_of(variance), epsilon)})});
}

ValueId variance_over(NodeContext& n, ValueId x, ValueId mean, const Ints& axes) {
  const ValueId centered = n.add(Op::sub, {x, mean});
  return mean_over(n, n.add(Op::mul, {centered, centered}), axes);
}

// The shape of x from `axis` on, which scale and bias must have in our op; ONNX lets them broadcast to it.
ValueId as_normalized(NodeContext& n, size_t i, int64_t axis) {
  if (!n.has(i)) return kNoValue;
  const Shape shape = n.shape(0);
  return n.broadcast(n.in(i), Shape(shape.begin() + axis, shape.end()));
}

// Whether scale and bias fit our op: they vary only along the normalised axes.
bool fits_normalized(NodeContext& n, size_t i, int64_t axis) {
  return !n.has(i) || n.rank(i) <= n.rank(0) - axis;
}

// stash_type asks for f32 inside; our ops accumulate f16 and bf16 in f32 anyway.
void check_stash_type(NodeContext& n) {
  const int64_t stash = n.attr_int("stash_type", 1);
  if (stash != 1 && stash != 11) n.unsupported("stash_type=" + std::to_string(stash));
}

void layer_norm(NodeContext& n) {
  const int64_t axis = n.axis(n.attr_int("axis", -1), n.rank(0));
  const double epsilon = n.attr_float("epsilon", 1e-5);
  check_stash_type(n);
  const ValueId x = n.in(0);
  if (fits_normalized(n, 1, axis) && fits_normalized(n, 2, axis)) {
    n.out(0, n.add(Op::layer_norm, {x, as_normalized(n, 1, axis), as_normalized(n, 2, axis)},
                   {{"axis", axis}, {"epsilon", epsilon}}));
  } else {
    ValueId y = n.add(Op::layer_norm, {x}, {{"axis", axis}, {"epsilon", epsilon}});
    if (n.has(1)) y = n.add(Op::mul, {y, n.in(1)});
    if (n.has(2)) y = n.add(Op::add, {y, n.in(2)});
    n.out(0, y);
  }
  if (!n.wants(1) && !n.wants(2)) return;
  const Ints axes = axes_from(axis, n.rank(0));
  const ValueId wide = n.dtype(0) == DType::f64 ? x : n.cast(x, DType::f32);
  const ValueId mean = mean_over(n, wide, axes);
  if (n.wants(1)) n.out(1, mean);
  if (n.wants(2)) n.out(2, inverse_deviation(n, variance_over(n, wide, mean, axes), epsilon));
}

void rms_norm(NodeContext& n) {
  const int64_t axis = n.axis(n.attr_int("axis", -1), n.rank(0));
  check_stash_type(n);
  const Attrs attrs = {{"axis", axis}, {"epsilon", n.attr_float("epsilon", 1e-5)}};
  if (fits_normalized(n, 1, axis))
    return n.out(0, n.add(Op::rms_norm, {n.in(0), as_normalized(n, 1, axis)}, attrs));
  n.out(0, n.add(Op::mul, {n.add(Op::rms_norm, {n.in(0)}, attrs), n.in(1)}));
}

void instance_norm(NodeContext& n) {
  if (n.rank(0) < 2) n.bad("x", "rank >= 2", to_string(n.shape(0)));
  const auto channels = n.shape(0)[1].require_constant("channels of InstanceNormalization");
  n.out(0, n.add(Op::group_norm, {n.in(0), n.in(1), n.in(2)},
                 {{"groups", channels}, {"epsilon", n.attr_float("epsilon", 1e-5)}}));
}

void group_norm(NodeContext& n) {
  check_stash_type(n);
  n.out(0, n.add(Op::group_norm, {n.in(0), n.in(1), n.in(2)},
                 {{"groups", n.attr_int("num_groups")}, {"epsilon", n.attr_float("epsilon", 1e-5)}}));
}

// A vector [C] as [C, 1, ...], to meet x [N, C, ...].
ValueId per_channel(NodeContext& n, ValueId v, int rank) {
  Shape shape(static_cast<size_t>(std::max(rank - 1, 1)), Dim(1));
  const Shape own = n.shape_of(v);
  if (own.size() != 1) n.bad("values per channel", "rank 1", to_string(own));
  shape[0] = own[0];
  return n.reshape(v, shape);
}

// Training: normalised by the batch's own statistics, which are mixed into the running ones.
void batch_norm_training(NodeContext& n, double epsilon, double momentum) {
  const ValueId x = n.in(0);
  Ints axes = {0};
  for (int64_t i = 2; i < n.rank(0); ++i) axes.push_back(i);
  const ValueId mean = mean_over(n, x, axes), variance = variance_over(n, x, mean, axes);
  ValueId y = n.add(Op::mul, {n.add(Op::sub, {x, mean}), inverse_deviation(n, variance, epsilon)});
  y = n.add(Op::mul, {y, per_channel(n, n.cast(n.in(1), n.dtype(0)), n.rank(0))});
  n.out(0, n.add(Op::add, {y, per_channel(n, n.cast(n.in(2), n.dtype(0)), n.rank(0))}));
  auto mix = [&](ValueId running, ValueId batch) {
    const DType dtype = n.dtype_of(running);
    const ValueId flat = n.cast(n.reshape(batch, n.shape_of(running)), dtype);
    return n.add(Op::add, {n.add(Op::mul, {running, n.scalar(dtype, momentum)}),
                           n.add(Op::mul, {flat, n.scalar(dtype, 1.0 - momentum)})});
  };
  const ValueId running_mean = n.in(3), running_variance = n.in(4);
  if (n.wants(1)) n.out(1, mix(running_mean, mean));
  if (n.wants(2)) n.out(2, mix(running_variance, variance));
}

void batch_norm(NodeContext& n) {
  const double epsilon = n.attr_float("epsilon", 1e-5), momentum = n.attr_float("momentum", 0.9);
  if (n.attr_int("training_mode", 0) != 0) return batch_norm_training(n, epsilon, momentum);
  const DType dtype = n.dtype(0);
  n.out(0, n.add(Op::batch_norm,
                 {n.in(0), n.cast(n.in(1), dtype), n.cast(n.in(2), dtype), n.cast(n.in(3), dtype),
                  n.cast(n.in(4), dtype)},
                 {{"epsilon", epsilon}}));
}

void lp_norm(NodeContext& n) {
  const Ints axes = {n.axis(n.attr_int("axis", -1), n.rank(0))};
  const int64_t p = n.attr_int("p", 2);
  if (p != 1 && p != 2) n.unsupported("p=" + std::to_string(p));
  const ValueId x = n.widened(n.in(0));
  const ValueId magnitude = p == 1 ? n.add(Op::abs, {x}) : n.add(Op::mul, {x, x});
  ValueId norm = n.add(Op::reduce_sum, {magnitude}, {{"axes", axes}, {"keepdims", true}});
  if (p == 2) norm = n.add(Op::sqrt, {norm});
  const ValueId zero = n.scalar(n.dtype_of(x), 0);
  const ValueId y = n.add(Op::select, {n.add(Op::eq, {norm, zero}), zero, n.add(Op::div, {x, norm})});
  n.out(0, n.cast(y, n.dtype(0)));
}

// (x - mean) / (deviation + 1e-9), as the operator's function body has it.
void mean_variance_norm(NodeContext& n) {
  Ints axes;
  for (int64_t axis : n.attr_ints("axes", {0, 2, 3})) axes.push_back(n.axis(axis, n.rank(0)));
  const ValueId x = n.in(0), mean = mean_over(n, x, axes);
  const ValueId deviation = n.add(Op::sqrt, {variance_over(n, x, mean, axes)});
  n.out(0,
        n.add(Op::div, {n.add(Op::sub, {x, mean}), n.add(Op::add, {deviation, n.scalar(n.dtype(0), 1e-9)})}));
}

// x / (bias + alpha / size * sum of squares over the channel's neighbours)^beta
void local_response_norm(NodeContext& n) {
  const int64_t size = n.attr_int("size");
  if (size < 1 || n.rank(0) < 3) n.bad("x or size", "rank >= 3, size >= 1", std::to_string(size));
  const DType dtype = n.dtype(0);
  const Shape shape = n.shape(0);
  const ValueId x = n.in(0);
  const Dim rest = element_count(Shape(shape.begin() + 2, shape.end()));
  const ValueId squares = n.reshape(n.add(Op::mul, {x, x}), {shape[0], Dim(1), shape[1], rest});
  Array ones = n.generated(dtype, {1, 1, size, 1});
  for (int64_t i = 0; i < size; ++i) ones.set_f64(i, 1.0);
  const int64_t before = (size - 1) / 2;
  const ValueId sums = n.add(Op::conv, {squares, n.constant_of(ones), kNoValue},
                             {{"strides", Ints{1, 1}},
                              {"pads", Ints{before, 0, size - 1 - before, 0}},
                              {"dilations", Ints{1, 1}},
                              {"groups", int64_t{1}}});
  const double alpha = n.attr_float("alpha", 1e-4), beta = n.attr_float("beta", 0.75),
               bias = n.attr_float("bias", 1.0);
  const ValueId scaled =
      n.add(Op::mul, {n.reshape(sums, shape), n.scalar(dtype, alpha / static_cast<double>(size))});
  const ValueId base = n.add(Op::add, {scaled, n.scalar(dtype, bias)});
  n.out(0, n.add(Op::div, {x, n.add(Op::pow, {base, n.scalar(dtype, beta)})}));
}

// com.microsoft: layer norm of x + skip (+ bias); the sum is output 3.
void skip_layer_norm(NodeContext& n) {
  ValueId sum = n.add(Op::add, {n.in(0), n.in(1)});
  if (n.has(4)) sum = n.add(Op::add, {sum, n.in(4)});
  n.out(0, n.add(Op::layer_norm, {sum, n.in(2), n.in_or_none(3)},
                 {{"axis", int64_t{-1}}, {"epsilon", n.attr_float("epsilon", 1e-12)}}));
  if (n.wants(3)) n.out(3, sum);
}

}  // namespace

std::vector<OpRule> norm_rules() {
  return {
      {"LayerNormalization", layer_norm},
      {"RMSNormalization", rms_norm},
      {"InstanceNormalization", instance_norm},
      {"GroupNormalization", group_norm},
      {"BatchNormalization", batch_norm},
      {"LpNormalization", lp_norm},
      {"MeanVarianceNormalization", mean_variance_norm},
      {"LRN", local_response_norm},
      {"SkipLayerNormalization", skip_layer_norm, 1, kContrib},
  };
}

}  // namespace aicf::onnx
