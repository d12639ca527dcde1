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

// Of halves in f32, so that a gradient of several operations rounds once, as the composite that it is.
ValueId x_of(const Vjp& v, size_t i = 0) { return v.wide(v.x(i)); }
ValueId y_of(const Vjp& v) { return v.wide(v.y()); }
ValueId dy_of(const Vjp& v) { return v.wide(v.dy()); }

// dy times a function of x or y, which is as wide.
Values scaled(const Vjp& v, ValueId factor) { return {v.e.mul(dy_of(v), factor)}; }

// A two-operand rule's results, of which the unwanted are never built.
template <typename First, typename Second>
Values both(const Vjp& v, First first, Second second) {
  return {v.wants(0) ? first() : kNoValue, v.wants(1) ? second() : kNoValue};
}

}  // namespace

Values vjp_neg(const Vjp& v) { return {neg(v, v.dy())}; }
Values vjp_abs(const Vjp& v) { return scaled(v, v.e.op(Op::sign, {x_of(v)})); }
Values vjp_exp(const Vjp& v) { return scaled(v, y_of(v)); }
Values vjp_expm1(const Vjp& v) { return scaled(v, v.e.exp(x_of(v))); }
Values vjp_log(const Vjp& v) { return {v.e.div(dy_of(v), x_of(v))}; }
Values vjp_log1p(const Vjp& v) { return {v.e.div(dy_of(v), plus(v, x_of(v), 1))}; }
Values vjp_sqrt(const Vjp& v) { return {v.e.div(v.times(dy_of(v), 0.5), y_of(v))}; }
Values vjp_rsqrt(const Vjp& v) { return scaled(v, v.e.mul(v.times(y_of(v), -0.5), square(v, y_of(v)))); }
Values vjp_sin(const Vjp& v) { return scaled(v, v.e.op(Op::cos, {x_of(v)})); }
Values vjp_cos(const Vjp& v) { return scaled(v, neg(v, v.e.op(Op::sin, {x_of(v)}))); }
Values vjp_tan(const Vjp& v) { return scaled(v, plus(v, square(v, y_of(v)), 1)); }
Values vjp_asin(const Vjp& v) { return scaled(v, v.e.op(Op::rsqrt, {one_minus_square(v, x_of(v))})); }
Values vjp_acos(const Vjp& v) { return {neg(v, vjp_asin(v)[0])}; }
Values vjp_atan(const Vjp& v) { return {v.e.div(dy_of(v), plus(v, square(v, x_of(v)), 1))}; }
Values vjp_sinh(const Vjp& v) { return scaled(v, v.e.op(Op::cosh, {x_of(v)})); }
Values vjp_cosh(const Vjp& v) { return scaled(v, v.e.op(Op::sinh, {x_of(v)})); }
Values vjp_tanh(const Vjp& v) { return scaled(v, one_minus_square(v, y_of(v))); }
Values vjp_asinh(const Vjp& v) { return scaled(v, v.e.op(Op::rsqrt, {plus(v, square(v, x_of(v)), 1)})); }
Values vjp_acosh(const Vjp& v) {
  return scaled(v, v.e.op(Op::rsqrt, {v.e.mul(plus(v, x_of(v), -1), plus(v, x_of(v), 1))}));
}
Values vjp_atanh(const Vjp& v) { return {v.e.div(dy_of(v), one_minus_square(v, x_of(v)))}; }
Values vjp_erf(const Vjp& v) {
  const ValueId bell = v.e.exp(neg(v, square(v, x_of(v))));
  return {v.e.mul(dy_of(v), v.times(bell, 2 * std::numbers::inv_sqrtpi))};
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
  const ValueId dx = v.e.div(dy_of(v), x_of(v, 1));
  return both(v, [&] { return dx; }, [&] { return neg(v, v.e.mul(dx, y_of(v))); });
}

namespace {

// x = n y + result, so the derivative to y is -n; n is recovered exactly by rounding the quotient.
Values remainder_gradients(const Vjp& v) {
  return both(
      v, [&] { return dy_of(v); },
      [&] {
        const ValueId multiple = v.e.div(v.e.sub(y_of(v), x_of(v)), x_of(v, 1));
        return v.e.mul(dy_of(v), v.e.op(Op::round, {multiple}));
      });
}

}  // namespace

Values vjp_rem(const Vjp& v) { return remainder_gradients(v); }
Values vjp_mod(const Vjp& v) { return remainder_gradients(v); }

Values vjp_pow(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId x = x_of(v), y = x_of(v, 1), zero = v.number(x, 0);
  return both(
      v,
      [&] {
        const ValueId slope = e.mul(y, e.op(Op::pow, {x, plus(v, y, -1)}));
        return e.mul(dy_of(v), e.select(e.op(Op::eq, {y, zero}), zero, slope));
      },
      [&] {
        const ValueId flat = e.op(Op::bit_and, {e.op(Op::eq, {x, zero}), e.op(Op::ge, {y, zero})});
        return e.mul(dy_of(v), e.select(flat, zero, e.mul(y_of(v), e.op(Op::log, {x}))));
      });
}

Values vjp_atan2(const Vjp& v) {
  const ValueId y = x_of(v), x = x_of(v, 1);
  const ValueId share = v.e.div(dy_of(v), v.e.add(square(v, x), square(v, y)));
  return both(v, [&] { return v.e.mul(share, x); }, [&] { return neg(v, v.e.mul(share, y)); });
}

namespace {

// dy where x `wins` over y, half of it where they are equal.
ValueId winner_share(const Vjp& v, Op wins, ValueId x, ValueId y) {
  const ValueId half = v.times(dy_of(v), 0.5), zero = v.number(dy_of(v), 0);
  return v.e.select(v.e.op(wins, {x, y}), dy_of(v), v.e.select(v.e.op(Op::eq, {x, y}), half, zero));
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
