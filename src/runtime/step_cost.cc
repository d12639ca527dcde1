#include "runtime/step_cost.h"

#include <algorithm>

namespace aicf {
namespace {

// Elements of a window that lie at addresses of their own.
int64_t distinct_elements(const TensorRef& ref, const SymbolValues& sizes) {
  int64_t count = 1;
  for (size_t i = 0; i < ref.sizes.size(); ++i)
    if (const int64_t size = evaluate(ref.sizes[i], sizes); size == 0 || evaluate(ref.strides[i], sizes) != 0)
      count = checked_mul(count, size);
  return count;
}

int64_t size_at(const TensorRef& ref, size_t from_end, const SymbolValues& sizes) {
  return from_end <= ref.sizes.size() ? evaluate(ref.sizes[ref.sizes.size() - from_end], sizes) : 1;
}

int64_t all_elements(const TensorRef& ref, const SymbolValues& sizes) {
  return element_count(evaluate(ref.sizes, sizes));
}

}  // namespace

StepCost step_cost(const Step& step, const SymbolValues& sizes) {
  StepCost cost;
  for (const auto* refs : {&step.inputs, &step.outputs})
    for (const TensorRef& ref : *refs)
      cost.bytes =
          checked_add(cost.bytes, checked_mul(distinct_elements(ref, sizes), dtype_bytes(ref.dtype)));
  if (step.inputs.empty() || step.outputs.empty()) return cost;
  const TensorRef &x = step.inputs[0], &out = step.outputs[0];
  if (step.kernel.starts_with("matmul")) {
    cost.flops = 2 * checked_mul(all_elements(out, sizes), size_at(x, 1, sizes));
  } else if (step.kernel.starts_with("attention") && step.inputs.size() >= 3) {
    const int64_t keys = size_at(step.inputs[1], 2, sizes);
    const int64_t scores = checked_mul(all_elements(x, sizes), keys);  // times D already
    cost.flops = 2 * checked_add(scores, checked_mul(all_elements(out, sizes), keys));
  } else if (step.kernel.starts_with("conv") && step.inputs.size() >= 2) {
    const TensorRef& weight = step.inputs[1];
    const int64_t taps = all_elements(weight, sizes) / std::max<int64_t>(evaluate(weight.sizes[0], sizes), 1);
    cost.flops = 2 * checked_mul(all_elements(out, sizes), taps);
  }
  return cost;
}

}  // namespace aicf
