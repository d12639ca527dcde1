// Pointwise composites. Each has a rule of its own where the decomposition's derivative would meet infinity
// times zero (sigmoid, silu, elu at large |x|), lose digits, or recompute what the result already holds.
#include <numbers>

#include "autodiff/vjp.h"

namespace aicf {
Values vjp_relu(const Vjp& v) {
  const ValueId zero = v.number(v.dy(), 0);
  return {v.e.select(v.e.op(Op::gt, {v.y(), zero}), v.dy(), zero)};
}

Values vjp_leaky_relu(const Vjp& v) {
  const ValueId x = v.x(), dy = v.wide(v.dy());
  const ValueId keep = v.e.op(Op::gt, {x, v.number(x, 0)});
  return {v.e.select(keep, dy, v.times(dy, v.attrs().get_float("alpha")))};
}

Values vjp_elu(const Vjp& v) {
  const ValueId x = v.wide(v.x()), dy = v.wide(v.dy()), zero = v.number(x, 0);
  const ValueId slope = v.times(v.e.exp(v.e.op(Op::min, {x, zero})), v.attrs().get_float("alpha"));
  return {v.e.select(v.e.op(Op::gt, {x, zero}), dy, v.e.mul(dy, slope))};
}

Values vjp_sigmoid(const Vjp& v) {
  const ValueId y = v.wide(v.y());
  return {v.e.mul(v.wide(v.dy()), v.e.mul(y, v.e.sub(v.number(y, 1), y)))};
}

Values vjp_silu(const Vjp& v) {
  const ValueId x = v.wide(v.x()), s = v.e.op(Op::sigmoid, {x}), one = v.number(x, 1);
  const ValueId slope = v.e.mul(s, v.e.add(v.e.mul(x, v.e.sub(one, s)), one));
  return {v.e.mul(v.wide(v.dy()), slope)};
}

namespace {

// Phi(x) + x phi(x), the normal distribution and its density.
ValueId gelu_slope(const Vjp& v, ValueId x) {
  const ValueId bend = v.e.op(Op::erf, {v.times(x, 1 / std::numbers::sqrt2)});
  const ValueId phi = v.times(v.e.add(bend, v.number(x, 1)), 0.5);
  const ValueId bell = v.e.exp(v.times(v.e.mul(x, x), -0.5));
  const double density = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // 1 / sqrt(2 pi)
  return v.e.add(phi, v.e.mul(x, v.times(bell, density)));
}

// gelu(x) = x s(w) with s the logistic function and w = 2 c x (1 + a x^2): s + x s (1 - s) w'. Constants are
// multiplied here, and x s is gelu(x): the fewest operations beside it.
ValueId gelu_tanh_slope(const Vjp& v, ValueId x) {
  const double a = 0.044715, c = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const ValueId square = v.e.mul(x, x), first = v.number(x, 2 * c);
  const ValueId w = v.e.mul(x, v.e.add(first, v.times(square, 2 * c * a)));
  const ValueId s = v.e.op(Op::sigmoid, {w});
  const ValueId dw = v.e.add(first, v.times(square, 6 * c * a));
  const ValueId rest = v.e.mul(v.e.mul(x, s), v.e.sub(v.number(x, 1), s));
  return v.e.add(s, v.e.mul(rest, dw));
}

}  // namespace

// The slope is what a forward pass keeps for the backward pass, so it is rounded to the operand's type, as
// the operand itself would be.
Values vjp_gelu(const Vjp& v) {
  const ValueId x = v.wide(v.x());
  const bool tanh = v.attrs().get_str("approximate") == "tanh";
  const ValueId slope = tanh ? gelu_tanh_slope(v, x) : gelu_slope(v, x);
  return {v.e.mul(v.wide(v.dy()), v.wide(v.e.cast(slope, v.e.dtype(v.x()))))};
}

Values vjp_softplus(const Vjp& v) { return {v.e.mul(v.wide(v.dy()), v.e.op(Op::sigmoid, {v.wide(v.x())}))}; }

Values vjp_clamp(const Vjp& v) {
  const ValueId x = v.x(0), low = v.x(1), high = v.x(2), zero = v.number(v.dy(), 0);
  const ValueId above = v.e.op(Op::ge, {x, low}), below = v.e.op(Op::le, {x, high});
  const auto where = [&](ValueId condition) { return v.e.select(condition, v.dy(), zero); };
  const auto both = [&](ValueId a, ValueId b) { return v.e.op(Op::bit_and, {a, b}); };
  const ValueId raised = v.e.op(Op::max, {x, low});
  const ValueId capped = v.e.op(Op::gt, {raised, high});
  return {v.wants(0) ? where(both(above, below)) : kNoValue,
          v.wants(1) ? where(both(v.e.op(Op::lt, {x, low}), v.e.op(Op::le, {low, high}))) : kNoValue,
          v.wants(2) ? where(capped) : kNoValue};
}

}  // namespace aicf
