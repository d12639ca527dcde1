#include "kernels/work.h"

#include <algorithm>

#include "base/dim.h"

namespace aicf {
namespace {

// Elements of a window that lie at addresses of their own.
int64_t distinct_elements(const TensorArg& arg) {
  int64_t count = 1;
  for (int i = 0; i < arg.rank; ++i)
    if (arg.sizes[i] == 0 || arg.strides[i] != 0) count = checked_mul(count, arg.sizes[i]);
  return count;
}

int64_t all_elements(const TensorArg& arg) {
  int64_t count = 1;
  for (int i = 0; i < arg.rank; ++i) count = checked_mul(count, arg.sizes[i]);
  return count;
}

int64_t size_at(const TensorArg& arg, int from_end) {
  return from_end <= arg.rank ? arg.sizes[arg.rank - from_end] : 1;
}

}  // namespace

Work work_of(std::string_view kernel, const std::vector<TensorArg>& inputs,
             const std::vector<TensorArg>& outputs) {
  Work work;
  for (const auto* args : {&inputs, &outputs})
    for (const TensorArg& arg : *args)
      work.bytes = checked_add(work.bytes, checked_mul(distinct_elements(arg), dtype_bytes(arg.dtype)));
  if (inputs.empty() || outputs.empty()) return work;
  const TensorArg &x = inputs[0], &out = outputs[0];
  if (kernel.starts_with("matmul")) {
    work.flops = 2 * checked_mul(all_elements(out), size_at(x, 1));
  } else if (kernel.starts_with("attention") && inputs.size() >= 3) {
    const int64_t keys = size_at(inputs[1], 2);
    const int64_t scores = checked_mul(all_elements(x), keys);  // times D already
    work.flops = 2 * checked_add(scores, checked_mul(all_elements(out), keys));
  } else if (kernel.starts_with("conv") && inputs.size() >= 2) {
    const TensorArg& weight = inputs[1];
    const int64_t taps = all_elements(weight) / std::max<int64_t>(weight.rank > 0 ? weight.sizes[0] : 1, 1);
    work.flops = 2 * checked_mul(all_elements(out), taps);
  }
  return work;
}

}  // namespace aicf
