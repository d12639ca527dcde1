// Scans and sorting.
#include "autodiff/vjp.h"

namespace aicf {
namespace {

ValueId run(const Vjp& v, Op op, ValueId x, bool from_other_end) {
  const bool reverse = v.attrs().get_bool("reverse") != from_other_end;
  return v.e.op(op, {x},
                {{"axis", v.attrs().get_int("axis")},
                 {"exclusive", v.attrs().get_bool("exclusive")},
                 {"reverse", reverse}});
}

}  // namespace

Values vjp_cumsum(const Vjp& v) { return {run(v, Op::cumsum, v.dy(), true)}; }

// dx_i = sum over the later j of dy_j times the product of the factors of y_j other than x_i. Up to the first
// zero that is y_j / x_i; for the first zero itself the products run on with a 1 in its place; after it all
// are 0.
Values vjp_cumprod(const Vjp& v) {
  Emitter& e = v.e;
  const ValueId x = v.wide(v.x()), dy = v.wide(v.dy()), zero = v.number(x, 0), one = v.number(x, 1);
  const ValueId is_zero = e.op(Op::eq, {x, zero});
  const ValueId seen =
      e.op(Op::cumsum, {e.cast(is_zero, DType::i64)},
           {{"axis", v.attrs().get_int("axis")}, {"reverse", v.attrs().get_bool("reverse")}});
  const ValueId none_yet = e.op(Op::eq, {seen, e.scalar_int(DType::i64, 0)});
  const ValueId first = e.op(Op::bit_and, {is_zero, e.op(Op::eq, {seen, e.scalar_int(DType::i64, 1)})});
  const ValueId before = run(v, Op::cumsum, e.mul(dy, v.wide(v.y())), true);
  const ValueId without_first = run(v, Op::cumprod, e.select(first, one, x), false);
  const ValueId at_first = run(v, Op::cumsum, e.mul(dy, without_first), true);
  const ValueId divided = e.div(before, e.select(is_zero, one, x));
  return {e.select(first, at_first, e.select(none_yet, divided, zero))};
}

namespace {

// Both give the index that each result element came from, and no index twice on a line.
Values put_back(const Vjp& v) {
  const Shape full = v.e.shape(v.x());
  const ValueId zeros = filled(v.e, v.e.dtype(v.dy()), full);
  return {v.e.op(Op::scatter_elements, {zeros, v.y(1), v.dy()}, {{"axis", v.attrs().get_int("axis")}})};
}

}  // namespace

Values vjp_sort(const Vjp& v) { return put_back(v); }
Values vjp_top_k(const Vjp& v) { return put_back(v); }

}  // namespace aicf
