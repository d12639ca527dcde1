// Means, softmax and their relatives.

#include "ir/decompose/emitter.h"

namespace aicf {

// An integer sum wraps in its own dtype; the division is in i64 so that the count never does.
Values decompose_reduce_mean(Emitter& e, const Node& node, const Values& x) {
  const Ints& axes = node.attrs.get_ints("axes");
  const bool keepdims = node.attrs.get_bool("keepdims");
  const DType dtype = e.dtype(x[0]);
  if (is_float(dtype)) return {e.cast(e.mean(e.widen(x[0]), axes, keepdims), dtype)};
  Dim count(1);
  for (int64_t axis : axes) count = count * e.shape(x[0])[static_cast<size_t>(axis)];
  const ValueId sum = e.cast(e.reduce(Op::reduce_sum, x[0], axes, keepdims), DType::i64);
  return {e.cast(e.div(sum, e.size(count, DType::i64)), dtype)};
}

// An infinite maximum is not subtracted, else infinity - infinity would hide the answer, which is that
// infinity.
Values decompose_reduce_logsumexp(Emitter& e, const Node& node, const Values& x) {
  const Ints& axes = node.attrs.get_ints("axes");
  const ValueId wide = e.widen(x[0]);
  const ValueId top = e.reduce(Op::reduce_max, wide, axes, true);
  const ValueId shift = e.select(e.op(Op::is_inf, {top}), e.scalar(e.dtype(wide), 0), top);
  const bool keepdims = node.attrs.get_bool("keepdims");
  const ValueId sum = e.reduce(Op::reduce_sum, e.exp(e.sub(wide, shift)), axes, keepdims);
  const ValueId log = e.op(Op::log, {sum});
  const Shape result_shape = e.shape(log);
  return {e.cast(e.add(log, e.reshape(shift, result_shape)), e.dtype(x[0]))};
}

namespace {

ValueId minus_max(Emitter& e, ValueId x, const Ints& axes) {
  return e.sub(x, e.reduce(Op::reduce_max, x, axes, true));
}

}  // namespace

Values decompose_softmax(Emitter& e, const Node& node, const Values& x) {
  const Ints axes = {node.attrs.get_int("axis")};
  const ValueId powers = e.exp(minus_max(e, e.widen(x[0]), axes));
  return {e.cast(e.div(powers, e.reduce(Op::reduce_sum, powers, axes, true)), e.dtype(x[0]))};
}

Values decompose_log_softmax(Emitter& e, const Node& node, const Values& x) {
  const Ints axes = {node.attrs.get_int("axis")};
  const ValueId shifted = minus_max(e, e.widen(x[0]), axes);
  const ValueId log = e.op(Op::log, {e.reduce(Op::reduce_sum, e.exp(shifted), axes, true)});
  return {e.cast(e.sub(shifted, log), e.dtype(x[0]))};
}

}  // namespace aicf
