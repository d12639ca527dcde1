// Pointwise composites.
#include <numbers>

#include "ir/decompose/emitter.h"

namespace aicf {

Values decompose_relu(Emitter& e, const Node&, const Values& x) {
  return {e.op(Op::max, {x[0], e.scalar(e.dtype(x[0]), 0)})};
}

Values decompose_leaky_relu(Emitter& e, const Node& node, const Values& x) {
  const ValueId wide = e.widen(x[0]);
  const DType dtype = e.dtype(wide);
  const ValueId scaled = e.mul(wide, e.scalar(dtype, node.attrs.get_float("alpha")));
  const ValueId keep = e.op(Op::ge, {wide, e.scalar(dtype, 0)});
  return {e.cast(e.select(keep, wide, scaled), e.dtype(x[0]))};
}

// The exponential sees min(x, 0) only: large x must not make an infinity on the side that is not chosen,
// whose derivative would turn into NaN.
Values decompose_elu(Emitter& e, const Node& node, const Values& x) {
  const ValueId wide = e.widen(x[0]);
  const ValueId zero = e.scalar(e.dtype(wide), 0);
  const ValueId decay = e.op(Op::expm1, {e.op(Op::min, {wide, zero})});
  const ValueId scaled = e.mul(decay, e.scalar(e.dtype(wide), node.attrs.get_float("alpha")));
  return {e.cast(e.select(e.op(Op::gt, {wide, zero}), wide, scaled), e.dtype(x[0]))};
}

Values decompose_sigmoid(Emitter& e, const Node&, const Values& x) {
  const ValueId wide = e.widen(x[0]), one = e.scalar(e.dtype(wide), 1);
  const ValueId decay = e.exp(e.op(Op::neg, {wide}));
  return {e.cast(e.div(one, e.add(decay, one)), e.dtype(x[0]))};
}

// By the sigmoid that kernels have as one instruction, which takes less than a division.
Values decompose_silu(Emitter& e, const Node&, const Values& x) {
  const ValueId wide = e.widen(x[0]);
  return {e.cast(e.mul(wide, e.op(Op::sigmoid, {wide})), e.dtype(x[0]))};
}

Values decompose_gelu(Emitter& e, const Node& node, const Values& x) {
  const ValueId wide = e.widen(x[0]);
  const auto number = [&](double value) { return e.scalar(e.dtype(wide), value); };
  ValueId bend;
  if (node.attrs.get_str("approximate") == "tanh") {
    const ValueId square = e.mul(wide, wide);
    const ValueId stretch = e.add(number(1), e.mul(square, number(0.044715)));
    const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
    bend = e.op(Op::tanh, {e.mul(e.mul(wide, number(scale)), stretch)});
  } else {
    bend = e.op(Op::erf, {e.mul(wide, number(1 / std::numbers::sqrt2))});
  }
  const ValueId half = e.mul(wide, number(0.5));
  return {e.cast(e.mul(half, e.add(bend, number(1))), e.dtype(x[0]))};
}

Values decompose_softplus(Emitter& e, const Node&, const Values& x) {
  const ValueId wide = e.widen(x[0]);
  const ValueId tail = e.op(Op::log1p, {e.exp(e.op(Op::neg, {e.op(Op::abs, {wide})}))});
  return {e.cast(e.add(e.op(Op::max, {wide, e.scalar(e.dtype(wide), 0)}), tail), e.dtype(x[0]))};
}

Values decompose_stop_gradient(Emitter&, const Node&, const Values& x) { return {x[0]}; }

Values decompose_clamp(Emitter& e, const Node&, const Values& x) {
  return {e.op(Op::min, {e.op(Op::max, {x[0], x[1]}), x[2]})};
}

}  // namespace aicf
