#include <algorithm>

#include "kernels/kernel.h"
#include "select/selector.h"

namespace aicf {
namespace {

constexpr size_t kOut = 3;  // among the inputs of attention_backward: q, k, v, out, dout

// The call that made a gradient's `out` from the same operands in the same way, or null.
KernelCall* forward_of(std::vector<KernelCall>& calls, const KernelCall& backward) {
  const RowCall& own = *row_call(backward);
  for (KernelCall& call : calls) {
    const RowCall* row = row_call(call);  // a library would not leave them
    if (row == nullptr || facts_of(row->row).row_sums != RowSums::kLeft) continue;
    const bool same = call.inputs.size() == kOut && call.outputs[0] == backward.inputs[kOut] &&
                      std::equal(call.inputs.begin(), call.inputs.end(), backward.inputs.begin()) &&
                      row->params == own.params && row->fparams == own.fparams;
    if (same) return &call;
  }
  return nullptr;
}

}  // namespace

void Selector::share_attention_sums() {
  for (KernelCall& backward : result_.calls) {
    const RowCall* row = row_call(backward);
    if (row == nullptr || facts_of(row->row).row_sums != RowSums::kTaken ||
        backward.inputs.size() != kOut + 2)
      continue;
    KernelCall* forward = forward_of(result_.calls, backward);
    if (forward == nullptr) continue;
    const Shape& q = backward.inputs[0].sizes;
    if (forward->outputs.size() == 1)
      forward->outputs.push_back(
          add_extra(ExtraValue::Kind::kTemp, {DType::f32, {q[0], q[1], q[2]}}, "attention sums"));
    backward.inputs.push_back(forward->outputs[1]);
  }
}

}  // namespace aicf
