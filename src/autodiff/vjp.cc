#include "autodiff/vjp.h"

#include "base/error.h"

namespace aicf {
namespace {

constexpr Derivative kDerivatives[] = {
#define AICF_VJP(op, text) {Op::op, DerivativeKind::kRule, text, &vjp_##op},
#define AICF_DECOMPOSED(op, text) {Op::op, DerivativeKind::kDecomposed, text, nullptr},
#define AICF_ZERO(op, text) {Op::op, DerivativeKind::kZero, text, nullptr},
#define AICF_NO_DERIVATIVE(op, text) {Op::op, DerivativeKind::kNone, text, nullptr},
#include "autodiff/derivatives.def"
};

constexpr bool rows_follow_ops() {
  for (size_t i = 0; i < std::size(kDerivatives); ++i)
    if (kDerivatives[i].op != static_cast<Op>(i)) return false;
  return std::size(kDerivatives) == kOpCount;
}
static_assert(rows_follow_ops(), "derivatives.def has one row for each op of ops.def, in the same order");

}  // namespace

const Derivative& derivative_of(Op op) { return kDerivatives[static_cast<size_t>(op)]; }

std::string derivative_text(Op op) {
  const Derivative& row = derivative_of(op);
  switch (row.kind) {
    case DerivativeKind::kRule:
      return std::string(row.text);
    case DerivativeKind::kDecomposed:
      return row.text.empty() ? "by decomposition" : "by decomposition; " + std::string(row.text);
    case DerivativeKind::kZero:
      return "zero: " + std::string(row.text);
    case DerivativeKind::kNone:
      return "none: " + std::string(row.text);
  }
  return "";
}

ValueId sum_to(Emitter& e, ValueId x, const Shape& target) {
  const Shape shape = e.shape(x);
  AICF_CHECK(target.size() <= shape.size(), "a broadcast never lowers the rank");
  const size_t added = shape.size() - target.size();
  Ints axes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (i < added || (target[i - added] == Dim(1) && !(shape[i] == Dim(1))))
      axes.push_back(static_cast<int64_t>(i));
  if (axes.empty()) return x;
  return e.reshape(e.reduce(Op::reduce_sum, x, axes, false), target);
}

ValueId filled(Emitter& e, DType dtype, const Shape& shape, double value) {
  const ValueId scalar = e.scalar(dtype, value);
  return shape.empty() ? scalar : e.op(Op::broadcast_to, {scalar}, {{"shape", shape}});
}

ValueId spread(Emitter& e, ValueId reduced, const Ints& axes, const Shape& full) {
  Shape kept = full;
  for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = Dim(1);
  const ValueId line = e.reshape(reduced, kept);
  return kept == full ? line : e.op(Op::broadcast_to, {line}, {{"shape", full}});
}

ValueId cut(Emitter& e, ValueId x, const Shape& starts, const Shape& limits) {
  if (limits == e.shape(x) && starts == Shape(starts.size(), Dim(0))) return x;
  return e.op(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", Ints(starts.size(), 1)}});
}

ValueId place(Emitter& e, ValueId x, const Shape& starts, const Shape& full) {
  const Shape shape = e.shape(x);
  if (shape == full) return x;
  Shape high;
  for (size_t i = 0; i < full.size(); ++i) high.push_back(full[i] - starts[i] - shape[i]);
  return e.op(Op::pad, {x}, {{"low", starts}, {"high", high}});
}

ValueId permute(Emitter& e, ValueId x, const Ints& perm) {
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != static_cast<int64_t>(i)) return e.op(Op::transpose, {x}, {{"perm", perm}});
  return x;
}

Ints axes_except(int64_t axis, int64_t rank) {
  Ints axes;
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) axes.push_back(i);
  return axes;
}

}  // namespace aicf
