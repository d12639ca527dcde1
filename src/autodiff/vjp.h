// What a derivative rule sees and the few helpers rules share. A rule, vjp_<op>, takes a node of its op with
// the gradients of its results and appends the nodes that compute the gradients of its operands (the product
// of the gradient vector with the op's Jacobian, "vjp"). derivatives.def has a row for every op; one that
// names a rule nobody wrote fails to link.
#pragma once

#include <string_view>
#include <vector>

#include "ir/decompose/emitter.h"

namespace aicf {

// One application of a rule. A rule returns one value per operand, kNoValue where no gradient is wanted or
// where it is zero. A returned gradient may still have the broadcast shape of a pointwise op, and may be
// wider than the operand (f32 for f16 and bf16): the caller sums and rounds it to the operand's type.
struct Vjp {
  Emitter& e;
  const Node& node;
  const Values& dys;                // gradient of each result, kNoValue where it is zero; never all
  const std::vector<bool>& wanted;  // per operand

  ValueId x(size_t i = 0) const { return node.operands[i]; }
  ValueId y(size_t i = 0) const { return node.results[i]; }
  ValueId dy(size_t i = 0) const { return dys[i]; }
  bool wants(size_t i) const { return wanted[i]; }
  const Attrs& attrs() const { return node.attrs; }
  // Of a value in f32 for f16 and bf16.
  ValueId wide(ValueId value) const { return e.widen(value); }
  // A scalar constant of the dtype of `like`.
  ValueId number(ValueId like, double value) const { return e.scalar(e.dtype(like), value); }
  ValueId times(ValueId value, double factor) const { return e.mul(value, number(value, factor)); }
};

// What a composite's rule returns where its decomposition's derivative must serve.
inline const Values kDifferentiateDecomposition = {};

enum class DerivativeKind {
  kRule,        // vjp_<op>
  kDecomposed,  // the composite's decomposition, the region's body is differentiated
  kZero,        // piecewise constant, or results without gradients: nothing flows back
  kNone,        // not differentiable: an error on the path
};
struct Derivative {
  Op op;
  DerivativeKind kind;
  std::string_view text;       // a formula, or the reason
  Values (*rule)(const Vjp&);  // kRule only
};
const Derivative& derivative_of(Op op);
// The cell of the generated op list.
std::string derivative_text(Op op);

#define AICF_VJP(op, text) Values vjp_##op(const Vjp& v);
#define AICF_DECOMPOSED(op, text)
#define AICF_ZERO(op, text)
#define AICF_NO_DERIVATIVE(op, text)
#include "autodiff/derivatives.def"

// Sums x to a shape that broadcasts to x's.
ValueId sum_to(Emitter& e, ValueId x, const Shape& target);
// A tensor of zeros, or of another number.
ValueId filled(Emitter& e, DType dtype, const Shape& shape, double value = 0);
// The result of a reduction over `axes` (of a tensor of shape `full`) spread over those axes again.
ValueId spread(Emitter& e, ValueId reduced, const Ints& axes, const Shape& full);
// x[starts:limits] and its opposite: zeros of shape `full` with x at `starts`.
ValueId cut(Emitter& e, ValueId x, const Shape& starts, const Shape& limits);
ValueId place(Emitter& e, ValueId x, const Shape& starts, const Shape& full);
// Exchanges axes of x by `perm`; x itself if that is no change.
ValueId permute(Emitter& e, ValueId x, const Ints& perm);
// The opposite of gather: a tensor of shape `full` where dy's slices are added at the indices along axis, in
// their row-major order; f32 for f16 and bf16.
ValueId add_at(Emitter& e, ValueId dy, ValueId indices, int64_t axis, const Shape& full);
// All axes of a rank but one.
Ints axes_except(int64_t axis, int64_t rank);

}  // namespace aicf
