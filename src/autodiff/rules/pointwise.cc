// Pointwise primitives.
#include <numbers>

#include "autodiff/vjp.h"

namespace aicf {
namespace {

ValueId neg(const Vjp& v, ValueId x) { return v.e.op(Op::neg, {x}); }
ValueId square(const Vjp& v, ValueId x) { return v.e.mul(x, x); }
ValueId plus(const Vjp& v, ValueId x, double number) { return v.e.add(x, v.number(x, number)); }

// 1 - x^2 as a product, which keeps its digits where |x| is near 1.
ValueId one_minus_square(const Vjp& v, ValueId x) {
  return v.e.mul(v.e.sub(v.number(x, 1), x), plus(v, x, 1));
}

// dy times a function of x or y.
Values scaled(const Vjp& v, ValueId factor) { return {v.e.mul(v.dy(), factor)}; }

// A two-operand rule's results, of which the unwanted are never built.
template <typename First, typename Second>
Values both(const Vjp& v, First first, Second second) {
  return {v.wants(0) ? first() : kNoValue, v.wants(1) ? second() : kNoValue};
}

}  // namespace

Values vjp_neg(const Vjp& v) { return {neg(v, v.dy())}; }
Values vjp_abs(const Vjp& v) { return scaled(v, v.e.op(Op::sign, {v.x()})); }
Values vjp_exp(const Vjp& v) { return scaled(v, v.y()); }
Values vjp_expm1(const Vjp& v) { return scaled(v, v.e.exp(v.x())); }
Values vjp_log(const Vjp& v) { return {v.e.div(v.dy(), v.x())}; }
Values vjp_log1p(const Vjp& v) { return {v.e.div(v.dy(), plus(v, v.x(), 1))}; }
Values vjp_sqrt(const Vjp& v) { return {v.e.div(v.times(v.dy(), 0.5), v.y())}; }
Values vjp_rsqrt(const Vjp& v) { return scaled(v, v.e.mul(v.times(v.y(), -0.5), square(v, v.y()))); }
Values vjp_sin(const Vjp& v) { return scaled(v, v.e.op(Op::cos, {v.x()})); }
Values vjp_cos(const Vjp& v) { return scaled(v, neg(v, v.e.op(Op::sin, {v.x()}))); }
Values vjp_tan(const Vjp& v) { return scaled(v, plus(v, square(v, v.y()), 1)); }
Values vjp_asin(const Vjp& v) { return scaled(v, v.e.op(Op::rsqrt, {one_minus_square(v, v.x())})); }
Values vjp_acos(const Vjp& v) { return {neg(v, vjp_asin(v)[0])}; }
Values vjp_atan(const Vjp& v) { return {v.e.div(v.dy(), plus(v, square(v, v.x()), 1))}; }
Values vjp_sinh(const Vjp& v) { return scaled(v, v.e.op(Op::cosh, {v.x()})); }
Values vjp_cosh(const Vjp& v) { return scaled(v, v.e.op(Op::sinh, {v.x()})); }
Values vjp_tanh(const Vjp& v) { return scaled(v, one_minus_square(v, v.y())); }
Values vjp_asinh(const Vjp& v) { return scaled(v, v.e.op(Op::rsqrt, {plus(v, square(v, v.x()), 1)})); }
Values vjp_acosh(const Vjp& v) {
  return scaled(v, v.e.op(Op::rsqrt, {v.e.mul(plus(v, v.x(), -1), plus(v, v.x(), 1))}));
}
Values vjp_atanh(const Vjp& v) { return {v.e.div(v.dy(), one_minus_square(v, v.x()))}; }
Values vjp_erf(const Vjp& v) {
  const ValueId bell = v.e.exp(neg(v, square(v, v.wide(v.x()))));
  return {v.e.mul(v.wide(v.dy()), v.times(bell, 2 * std::numbers::inv_sqrtpi))};
}

Values vjp_cast(const Vjp& v) { return {v.e.cast(v.dy(), v.e.dtype(v.x()))}; }

Values vjp_add(const Vjp& v) { return {v.dy(), v.dy()}; }
Values vjp_sub(const Vjp& v) {
  return both(v, [&] { return v.dy(); }, [&] { return neg(v, v.dy()); });
}
Values vjp_mul(const Vjp& v) {
  return both(v, [&] { return v.e.mul(v.dy(), v.x(1)); }, [&] { return v.e.mul(v.dy(), v.x(0)); });
}
Values vjp_div(const Vjp& v) {
  const ValueId dx = v.e.div(v.dy(), v.x(1));
  return both(v, [&] { return dx; }, [&] { return neg(v, v.e.mul(dx, v.y())); });
}

namespace {

// x = n y + result, so the derivative to y is -n; n is recovered exactly by rounding the quotient.
Values remainder_gradients(const Vjp& v) {
  return both(
      v, [&] { return v.dy(); },
      [&] {
        const ValueId multiple = v.e.div(v.e.sub(v.y(), v.x(0)), v.x(1));
        return v.e.mul(v.dy(), v.e.op(Op::round, {multiple}));
      });
}

}  // namespace

Values vjp_rem(const Vjp& v) { return remainder_gradients(v); }
Values vjp_mod(const Vjp& v) { return remainder_gradients(v); }

Values vjp_pow(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId x = v.x(0), y = v.x(1), zero = v.number(x, 0);
  return both(
      v,
      [&] {
        const ValueId slope = e.mul(y, e.op(Op::pow, {x, plus(v, y, -1)}));
        return e.mul(v.dy(), e.select(e.op(Op::eq, {y, zero}), zero, slope));
      },
      [&] {
        const ValueId flat = e.op(Op::bit_and, {e.op(Op::eq, {x, zero}), e.op(Op::ge, {y, zero})});
        return e.mul(v.dy(), e.select(flat, zero, e.mul(v.y(), e.op(Op::log, {x}))));
      });
}

Values vjp_atan2(const Vjp& v) {
  const ValueId y = v.x(0), x = v.x(1);
  const ValueId share = v.e.div(v.dy(), v.e.add(square(v, x), square(v, y)));
  return both(v, [&] { return v.e.mul(share, x); }, [&] { return neg(v, v.e.mul(share, y)); });
}

namespace {

// dy where x `wins` over y, half of it where they are equal.
ValueId winner_share(const Vjp& v, Op wins, ValueId x, ValueId y) {
  const ValueId half = v.times(v.dy(), 0.5), zero = v.number(v.dy(), 0);
  return v.e.select(v.e.op(wins, {x, y}), v.dy(), v.e.select(v.e.op(Op::eq, {x, y}), half, zero));
}

}  // namespace

Values vjp_max(const Vjp& v) {
  return both(
      v, [&] { return winner_share(v, Op::gt, v.x(0), v.x(1)); },
      [&] { return winner_share(v, Op::gt, v.x(1), v.x(0)); });
}
Values vjp_min(const Vjp& v) {
  return both(
      v, [&] { return winner_share(v, Op::lt, v.x(0), v.x(1)); },
      [&] { return winner_share(v, Op::lt, v.x(1), v.x(0)); });
}

Values vjp_select(const Vjp& v) {
  const ValueId zero = v.number(v.dy(), 0);
  return {kNoValue, v.wants(1) ? v.e.select(v.x(0), v.dy(), zero) : kNoValue,
          v.wants(2) ? v.e.select(v.x(0), zero, v.dy()) : kNoValue};
}

}  // namespace aicf
