// Composites of a kind of their own: linear, one_hot, the AdamW step.
#include <cmath>

#include "ir/decompose/emitter.h"

namespace aicf {

Values decompose_linear(Emitter& e, const Node& node, const Values& x) {
  const Attrs attrs = {{"transpose_y", node.attrs.get_bool("transpose_w")},
                       {"tf32", node.attrs.get_bool("tf32")}};
  const bool is_vector = e.rank(x[0]) == 1;
  ValueId rows = x[0];
  if (is_vector) {
    const Dim depth = e.shape(x[0])[0];
    rows = e.reshape(x[0], {1, depth});
  }
  ValueId y = e.op(Op::matmul, {rows, x[1]}, attrs);
  if (is_vector) {
    const Dim columns = e.shape(y)[1];
    y = e.reshape(y, {columns});
  }
  return {x[2] == kNoValue ? y : e.add(y, x[2])};
}

Values decompose_one_hot(Emitter& e, const Node& node, const Values& x) {
  const DType dtype = e.dtype(x[0]);
  const Dim depth = node.attrs.get_dims("depth")[0];
  const int64_t axis = node.attrs.get_int("axis");
  const ValueId below = e.op(Op::lt, {x[0], e.scalar_int(dtype, 0)});
  const ValueId index = e.select(below, e.add(x[0], e.size(depth, dtype)), x[0]);
  Shape spread = e.shape(index), line(spread.size() + 1, Dim(1));
  spread.insert(spread.begin() + axis, Dim(1));
  line[static_cast<size_t>(axis)] = depth;
  const ValueId places = e.op(Op::iota, {}, {{"shape", line}, {"axis", axis}, {"dtype", dtype}});
  return {e.select(e.op(Op::eq, {e.reshape(index, spread), places}), x[1], x[2])};
}

namespace {

// old * beta + new * (1 - beta), the second factor rounded from f64: 1 - beta in f32 would lose three digits
// at 0.999.
ValueId moving_average(Emitter& e, ValueId old, ValueId fresh, double beta) {
  const DType dtype = e.dtype(old);
  return e.add(e.mul(old, e.scalar(dtype, beta)), e.mul(fresh, e.scalar(dtype, 1 - beta)));
}

// 1 - beta^step as -expm1(step * log(beta)), which keeps its digits where beta^step is near 1.
ValueId bias_correction(Emitter& e, ValueId step, double beta) {
  const ValueId power = e.mul(step, e.scalar(e.dtype(step), std::log(beta)));
  return e.op(Op::neg, {e.op(Op::expm1, {power})});
}

}  // namespace

Values decompose_adamw_step(Emitter& e, const Node& node, const Values& x) {
  const Attrs& attrs = node.attrs;
  const double beta1 = attrs.get_float("beta1"), beta2 = attrs.get_float("beta2");
  const DType dtype = e.dtype(x[0]);
  const ValueId param = e.widen(x[0]), grad = e.widen(x[1]), lr = e.widen(x[5]);
  const DType wide = e.dtype(param);
  const ValueId step = e.cast(x[4], wide);

  const ValueId m = moving_average(e, e.widen(x[2]), grad, beta1);
  const ValueId v = moving_average(e, e.widen(x[3]), e.mul(grad, grad), beta2);
  // The corrections, of one number each, are divided by before they meet the elements: those have one
  // division.
  const ValueId rate = e.div(lr, bias_correction(e, step, beta1));
  const ValueId scale = e.op(Op::rsqrt, {bias_correction(e, step, beta2)});
  const ValueId divisor =
      e.add(e.mul(e.op(Op::sqrt, {v}), scale), e.scalar(wide, attrs.get_float("epsilon")));
  const ValueId decay = e.mul(param, e.mul(lr, e.scalar(wide, attrs.get_float("weight_decay"))));
  const ValueId next = e.sub(param, e.add(e.div(e.mul(m, rate), divisor), decay));
  return {e.cast(next, dtype), e.cast(m, dtype), e.cast(v, dtype)};
}

}  // namespace aicf
