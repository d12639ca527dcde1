// Attention: a composite of its own, so that a target can compute it without the scores ever being stored.
#include "autodiff/vjp.h"

namespace aicf {

Values vjp_attention(const Vjp& v) {
  if (v.wants(3)) return kDifferentiateDecomposition;
  const Values operands = {v.x(0), v.x(1), v.x(2), v.y(), v.dy(), v.x(3)};
  Attrs attrs = v.attrs();
  attrs.set("tf32", false);  // no kernel multiplies the gradient so (docs/precision.md)
  Values gradients = v.e.ops(Op::attention_backward, operands, attrs);
  gradients.push_back(kNoValue);
  return gradients;
}

Values vjp_attention_lse(const Vjp& v) {
  return v.dy(1) == kNoValue ? vjp_attention(v) : kDifferentiateDecomposition;
}

}  // namespace aicf
