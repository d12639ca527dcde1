#include "kernels/work.h"

#include <algorithm>

namespace aicf {
namespace {

// Elements of a window that lie at addresses of their own.
double distinct_elements(const TensorArg& arg) {
  double count = 1;
  for (int i = 0; i < arg.rank; ++i)
    if (arg.sizes[i] == 0 || arg.strides[i] != 0) count *= static_cast<double>(arg.sizes[i]);
  return count;
}

double all_elements(const TensorArg& arg) {
  double count = 1;
  for (int i = 0; i < arg.rank; ++i) count *= static_cast<double>(arg.sizes[i]);
  return count;
}

double size_at(const TensorArg& arg, int from_end) {
  return from_end <= arg.rank ? static_cast<double>(arg.sizes[arg.rank - from_end]) : 1;
}

// Of one filter. Packed weights have lost their shape; their step's params end with the sizes of the kernel.
double filter_elements(const std::vector<TensorArg>& inputs, const std::vector<int64_t>& params) {
  const TensorArg &x = inputs[0], &weight = inputs[1];
  if (weight.dtype != DType::u8)
    return all_elements(weight) /
           static_cast<double>(std::max<int64_t>(weight.rank > 0 ? weight.sizes[0] : 1, 1));
  if (params.size() < 2 || x.rank < 2 || params[0] < 0 || static_cast<size_t>(params[0]) >= params.size())
    return 0;
  double count = static_cast<double>(x.sizes[1]) / static_cast<double>(std::max<int64_t>(params[1], 1));
  for (size_t i = params.size() - static_cast<size_t>(params[0]); i < params.size(); ++i)
    count *= static_cast<double>(params[i]);
  return count;
}

// Of attention's params {causal, has mask[, window]}: how many keys a query sees at most, but for causality.
double keys_in_window(double keys, const std::vector<int64_t>& params) {
  if (params.size() < 3) return keys;
  const auto window = static_cast<double>(params[2]);
  return std::min(keys, params[0] != 0 ? window : 2 * window - 1);
}

}  // namespace

Work work_of(std::string_view kernel, const std::vector<TensorArg>& inputs,
             const std::vector<TensorArg>& outputs, const std::vector<int64_t>& params) {
  Work work;
  for (const auto* args : {&inputs, &outputs})
    for (const TensorArg& arg : *args) work.bytes += distinct_elements(arg) * dtype_bytes(arg.dtype);
  if (inputs.empty() || outputs.empty()) return work;
  const TensorArg &x = inputs[0], &out = outputs[0];
  if (kernel == "matmul_attention") {
    work.flops = 2 * all_elements(out) * (3 * size_at(x, 1) + 2 * size_at(out, 2));
  } else if (kernel.starts_with("matmul")) {
    work.flops = 2 * all_elements(out) * size_at(x, 1);
  } else if (kernel.starts_with("attention") && inputs.size() >= 3) {
    work.flops = 2 * (all_elements(x) + all_elements(out)) * keys_in_window(size_at(inputs[1], 2), params);
  } else if (kernel.starts_with("conv") && inputs.size() >= 2) {
    work.flops = 2 * all_elements(out) * filter_elements(inputs, params);
  }
  return work;
}

}  // namespace aicf
