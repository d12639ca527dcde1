// Attention whose gradients are computed by a kernel that can use them leaves the sums of its rows, on a GPU.
#include <algorithm>

#include "calls/call_windows.h"
#include "calls/legality.h"
#include "calls/rule_site.h"
#include "kernels/common/kernel.h"

namespace aicf {
namespace {

constexpr size_t kOut = 3;  // among the inputs of attention_backward: q, k, v, out, dout, and a mask or none

// Whether a call made a gradient's `out` from the same operands in the same way. A library would not leave
// the sums.
bool is_forward(const KernelCall& call, const KernelCall& backward) {
  const RowCall *row = row_call(call), &own = *row_call(backward);
  const auto mask = call.inputs.begin() + kOut, backward_mask = backward.inputs.begin() + kOut + 2;
  return row != nullptr && facts_of(row->row).row_sums == RowSums::kLeft &&
         call.inputs.size() + 2 == backward.inputs.size() && call.outputs[0] == backward.inputs[kOut] &&
         std::equal(call.inputs.begin(), mask, backward.inputs.begin()) &&
         std::equal(mask, call.inputs.end(), backward_mask) && row->params == own.params &&
         row->fparams == own.fparams;
}

// Sums are f32: not enough for gradients in f64.
bool takes_sums(const KernelCall& backward) {
  const RowCall* row = row_call(backward);
  return row != nullptr && facts_of(row->row).row_sums == RowSums::kTaken &&
         backward.inputs[0].dtype != DType::f64;
}

}  // namespace

void share_attention_sums(const RuleSite& site) {
  const Legality legality(site.graph);
  for (KernelCall& backward : site.graph.calls) {
    if (!takes_sums(backward)) continue;
    for (const size_t at : legality.writers(backward.inputs[kOut].root)) {
      KernelCall& forward = site.graph.calls[at];
      if (!is_forward(forward, backward)) continue;
      const Shape& q = backward.inputs[0].sizes;
      if (forward.outputs.size() == 1)
        forward.outputs.push_back(add_temp(site.graph, {DType::f32, {q[0], q[1], q[2]}}, "attention sums"));
      backward.inputs.push_back(forward.outputs[1]);
      break;
    }
  }
}

}  // namespace aicf
