// Reductions and softmax with its relatives.
#include "autodiff/vjp.h"

namespace aicf {
namespace {

// dy over the reduced axes again, in a wide dtype.
ValueId spread_dy(const Vjp& v) {
  const Shape full = v.e.shape(v.x());
  return spread(v.e, v.wide(v.dy()), v.attrs().get_ints("axes"), full);
}

// The result with the reduced axes kept, so that it broadcasts against x.
ValueId kept_y(const Vjp& v, ValueId y) {
  Shape kept = v.e.shape(v.x());
  for (int64_t axis : v.attrs().get_ints("axes")) kept[static_cast<size_t>(axis)] = Dim(1);
  return v.e.reshape(y, kept);
}

}  // namespace

Values vjp_reduce_sum(const Vjp& v) {
  const Shape full = v.e.shape(v.x());
  return {spread(v.e, v.dy(), v.attrs().get_ints("axes"), full)};
}

Values vjp_reduce_mean(const Vjp& v) {
  const Shape full = v.e.shape(v.x());
  const Ints& axes = v.attrs().get_ints("axes");
  Dim count(1);
  for (int64_t axis : axes) count = count * full[static_cast<size_t>(axis)];
  const ValueId dy = v.wide(v.dy());
  return {spread(v.e, v.e.div(dy, v.e.size(count, v.e.dtype(dy))), axes, full)};
}

// Without division by a factor that is zero: one zero alone gets the product of the others, several make
// every product zero.
Values vjp_reduce_prod(const Vjp& v) {
  Emitter& e = v.e;
  const Ints& axes = v.attrs().get_ints("axes");
  const ValueId x = v.wide(v.x()), zero = v.number(x, 0), one = v.number(x, 1);
  const ValueId is_zero = e.op(Op::eq, {x, zero});
  const ValueId filled_x = e.select(is_zero, one, x);
  const ValueId product = e.reduce(Op::reduce_prod, filled_x, axes, true);
  const ValueId zeros = e.reduce(Op::reduce_sum, e.cast(is_zero, DType::i64), axes, true);
  const ValueId others = e.sub(zeros, e.cast(is_zero, DType::i64));
  const ValueId slope =
      e.select(e.op(Op::eq, {others, e.scalar_int(DType::i64, 0)}), e.div(product, filled_x), zero);
  return {e.mul(spread_dy(v), slope)};
}

namespace {

Values extremum_gradient(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId dy = v.wide(v.dy()), y = kept_y(v, v.y());
  const ValueId best = e.op(Op::eq, {v.x(), y});
  const ValueId count = e.reduce(Op::reduce_sum, e.cast(best, e.dtype(dy)), v.attrs().get_ints("axes"), true);
  const ValueId share = e.div(kept_y(v, dy), count);
  return {e.select(best, share, v.number(dy, 0))};
}

}  // namespace

Values vjp_reduce_max(const Vjp& v) { return extremum_gradient(v); }
Values vjp_reduce_min(const Vjp& v) { return extremum_gradient(v); }

// An infinite result is not subtracted: a row of -infinity has gradient 0, not NaN.
Values vjp_reduce_logsumexp(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId x = v.wide(v.x()), y = kept_y(v, v.wide(v.y()));
  const ValueId shift = e.select(e.op(Op::is_inf, {y}), v.number(y, 0), y);
  return {e.mul(kept_y(v, v.wide(v.dy())), e.exp(e.sub(x, shift)))};
}

Values vjp_softmax(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId y = v.wide(v.y()), dy = v.wide(v.dy());
  const ValueId mean = e.reduce(Op::reduce_sum, e.mul(dy, y), {v.attrs().get_int("axis")}, true);
  return {e.mul(y, e.sub(dy, mean))};
}

Values vjp_log_softmax(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId dy = v.wide(v.dy());
  const ValueId total = e.reduce(Op::reduce_sum, dy, {v.attrs().get_int("axis")}, true);
  return {e.sub(dy, e.mul(e.exp(v.wide(v.y())), total))};
}

// The label's own class is found by comparing indices: no scatter, one region.
Values vjp_cross_entropy(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId logits = v.wide(v.x(0)), labels = e.cast(v.x(1), DType::i64);
  const DType dtype = e.dtype(logits);
  const Dim rows = e.shape(logits)[0], classes = e.shape(logits)[1];
  const ValueId kept = e.op(Op::ne, {labels, e.scalar_int(DType::i64, v.attrs().get_int("ignore_index"))});
  const ValueId count = e.reduce(Op::reduce_sum, e.cast(kept, DType::i64), {0}, false);
  const ValueId divisor = e.cast(e.op(Op::max, {count, e.scalar_int(DType::i64, 1)}), dtype);
  const ValueId share = e.select(kept, e.div(v.wide(v.dy()), divisor), e.scalar(dtype, 0));

  const ValueId chances = e.op(Op::softmax, {logits}, {{"axis", int64_t{1}}});
  // In i32, which holds every class; a label that does not fit has failed before this is read.
  const ValueId index =
      e.op(Op::iota, {}, {{"shape", Shape{1, classes}}, {"axis", int64_t{1}}, {"dtype", DType::i32}});
  const ValueId own = e.op(Op::eq, {index, e.reshape(e.cast(labels, DType::i32), {rows, 1})});
  const ValueId slope = e.select(own, e.sub(chances, e.scalar(dtype, 1)), chances);
  return {e.mul(slope, e.reshape(share, {rows, 1})), kNoValue};
}

Values vjp_linear_cross_entropy(const Vjp& v) {
  const Values results =
      v.e.ops(Op::linear_cross_entropy_backward, {v.x(0), v.x(1), v.x(2), v.dy()}, v.attrs());
  return {results[1], results[2], kNoValue};
}

}  // namespace aicf
