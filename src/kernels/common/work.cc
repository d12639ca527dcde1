#include "kernels/common/work.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

namespace aicf {
namespace {

double all_elements(const TensorArg& arg) {
  double count = 1;
  for (int i = 0; i < arg.rank; ++i) count *= static_cast<double>(arg.sizes[i]);
  return count;
}

// An axis of stride 0 has one element, and windows that overlap, as those of a view that slides, reach no
// further than from their first element to their last.
double distinct_elements(const TensorArg& arg) { return aicf::distinct_elements(arg, {0}); }

double size_at(const TensorArg& arg, int from_end) {
  return from_end <= arg.rank ? static_cast<double>(arg.sizes[arg.rank - from_end]) : 1;
}

int64_t param(const std::vector<int64_t>& params, size_t at) { return at < params.size() ? params[at] : 0; }

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

// One axis of a convolution's windows.
struct WindowAxis {
  int64_t x, out, kernel, stride, low, dilation;

  // The outputs whose element of x at position k of the kernel is no padding: from first to last.
  std::pair<int64_t, int64_t> outputs_of(int64_t k) const {
    const auto floor_div = [](int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); };
    return {std::max<int64_t>(0, -floor_div(k * dilation - low, stride)),
            std::min(out - 1, floor_div(x - 1 + low - k * dilation, stride))};
  }

  // Pairs of an output and a position of the kernel whose element of x is no padding.
  double taps() const {
    double count = 0;
    for (int64_t k = 0; k < kernel; ++k) {
      const auto [first, last] = outputs_of(k);
      count += static_cast<double>(std::max<int64_t>(0, last - first + 1));
    }
    return count;
  }

  // Elements of x that lie in some window: a stride may pass others by.
  double read() const {
    double count = 0;
    std::unordered_map<int64_t, int64_t> ends;  // of the elements counted, by what they leave after strides
    for (int64_t k = 0; k < kernel; ++k) {
      const auto [first, last] = outputs_of(k);
      if (last < first) continue;
      int64_t from = first * stride + k * dilation - low;
      const int64_t to = last * stride + k * dilation - low;
      const auto [end, fresh] = ends.try_emplace(from % stride, to);
      if (!fresh) from = std::max(from, end->second + stride);
      if (from > to) continue;
      count += static_cast<double>((to - from) / stride + 1);
      end->second = to;
    }
    return count;
  }
};

// Empty where the windows do not have the form of the op: weights in another order, params unknown.
std::vector<WindowAxis> window_axes(const TensorArg& x, const TensorArg& weight, const TensorArg& out,
                                    const std::vector<int64_t>& params) {
  const auto rank = static_cast<size_t>(std::clamp<int64_t>(param(params, 0), 0, kMaxRank));
  const size_t lists = 3 + 4 * rank;  // then the sizes of the kernel, of packed weights
  const bool packed = weight.dtype == DType::u8;
  const auto has_rank = [&](const TensorArg& arg) { return arg.rank == static_cast<int>(rank) + 2; };
  const bool known = has_rank(x) && has_rank(out) &&
                     (packed ? params.size() >= lists + rank
                             : params.size() >= lists && has_rank(weight) &&
                                   weight.sizes[1] * std::max<int64_t>(params[1], 1) == x.sizes[1]);
  std::vector<WindowAxis> axes;
  for (size_t i = 0; known && i < rank; ++i)
    axes.push_back({x.sizes[2 + i], out.sizes[2 + i],
                    packed ? params[params.size() - rank + i] : weight.sizes[2 + i],
                    std::max<int64_t>(params[3 + i], 1), params[3 + rank + i], params[3 + 3 * rank + i]});
  return axes;
}

// Multiply-adds of a convolution: those with padding are none where the windows are known.
double conv_products(const std::vector<TensorArg>& inputs, const TensorArg& out,
                     const std::vector<int64_t>& params) {
  const TensorArg& x = inputs[0];
  const std::vector<WindowAxis> axes = window_axes(x, inputs[1], out, params);
  if (axes.empty()) return all_elements(out) * filter_elements(inputs, params);
  double count = static_cast<double>(out.sizes[0]) * static_cast<double>(out.sizes[1]) *
                 (static_cast<double>(x.sizes[1]) / static_cast<double>(std::max<int64_t>(params[1], 1)));
  for (const WindowAxis& axis : axes) count *= axis.taps();
  return count;
}

// Elements of x that a convolution of it reads.
double conv_reads(const TensorArg& x, const TensorArg& weight, const TensorArg& out,
                  const std::vector<int64_t>& params) {
  const std::vector<WindowAxis> axes = window_axes(x, weight, out, params);
  if (axes.empty()) return distinct_elements(x);
  double count = static_cast<double>(x.sizes[0]) * static_cast<double>(x.sizes[1]);
  for (const WindowAxis& axis : axes) count *= axis.read();
  return std::min(count, distinct_elements(x));
}

// The sum of clamp(i + shift, 0, most) over i in [0, count).
double clamped_sum(double count, double shift, double most) {
  const auto below = [&](double end) {
    const double inside = std::clamp(end, 0.0, most + 1);
    return inside * (inside - 1) / 2 + std::max(0.0, end - inside) * (end > 0 ? most : 0);
  };
  return below(count + shift) - below(shift);
}

struct Attended {
  double pairs = 0;  // of a query and a key that it sees
  double keys = 0;   // that some query sees
};

// By params {causal, has_mask, window} of attention: docs/ops.md says which keys these leave.
Attended attended(double queries, double keys, const std::vector<int64_t>& params) {
  const bool causal = param(params, 0) != 0;
  const auto window = static_cast<double>(param(params, 2));
  const double shift = keys - queries;  // the last query is as late as the last key
  double pairs = queries * keys;
  if (causal)
    pairs = clamped_sum(queries, shift + 1, keys);
  else if (window > 0)
    pairs = clamped_sum(queries, shift + window, keys);
  if (window > 0) pairs -= clamped_sum(queries, shift - window + 1, keys);
  const double first = window > 0 ? std::clamp(shift - window + 1, 0.0, keys) : 0;
  return {std::max(0.0, pairs), queries > 0 ? keys - first : 0};
}

double flops_of(WorkForm form, const std::vector<TensorArg>& inputs, const TensorArg& out,
                const std::vector<int64_t>& params) {
  const TensorArg& x = inputs[0];
  switch (form) {
    case WorkForm::kProjectedAttention: {
      const double length = std::max(1.0, size_at(out, 2));
      return 2 * all_elements(out) *
             (3 * size_at(x, 1) + 2 * attended(length, length, params).pairs / length);
    }
    case WorkForm::kPair:
      return 4 * all_elements(out) * size_at(x, 1);
    case WorkForm::kProduct:
      return 2 * all_elements(out) * size_at(x, 1);
    case WorkForm::kAttention:
    case WorkForm::kAttentionBackward: {
      if (inputs.size() < 3) return 0;
      const double queries = size_at(x, 2), rows = all_elements(x) / std::max(1.0, size_at(x, 1) * queries);
      const double pairs = rows * attended(queries, size_at(inputs[1], 2), params).pairs;
      const double depth = size_at(x, 1), value_depth = size_at(inputs[2], 1);
      // Scores again, weights' gradients and three products of the gradients.
      if (form == WorkForm::kAttentionBackward) return 2 * pairs * (3 * depth + 2 * value_depth);
      return 2 * pairs * (depth + value_depth);
    }
    case WorkForm::kConvTranspose:
      return inputs.size() < 2 ? 0 : 2 * all_elements(x) * filter_elements(inputs, params);
    case WorkForm::kConv:
      return inputs.size() < 2 ? 0 : 2 * conv_products(inputs, out, params);
    case WorkForm::kConvWeightGradient:  // as of the convolution from x and w to dy
      return inputs.size() < 2 ? 0 : 2 * conv_products({x, out}, inputs[1], params);
    case WorkForm::kRecurrent:
    case WorkForm::kRecurrentBackward: {
      const size_t w = form == WorkForm::kRecurrent ? 2 : 0;
      return w < inputs.size() ? 2 * size_at(out, 3) * size_at(out, 2) * all_elements(inputs[w]) : 0;
    }
    default:
      return 0;
  }
}

// Elements of the updates that a program makes for a scatter.
double message_elements(const std::vector<TensorArg>& inputs, const TensorArg& out) {
  if (inputs.size() < 2 || out.rank == 0) return 0;
  return distinct_elements(inputs[1]) * all_elements(out) /
         static_cast<double>(std::max<int64_t>(out.sizes[0], 1));
}

// How many of an operand's elements a call cannot do without, where these are not all.
double touched_elements(WorkForm form, const std::vector<TensorArg>& inputs,
                        const std::vector<TensorArg>& outputs, const std::vector<int64_t>& params,
                        size_t input) {
  const double all = distinct_elements(inputs[input]);
  if (outputs.empty()) return all;
  const double written = all_elements(outputs[0]);
  switch (form) {
    case WorkForm::kSize:
      return 0;
    // A table may be larger than what is taken of it; padding may be negative; a stride may pass elements by.
    case WorkForm::kGather:
    case WorkForm::kPad:
      return input == 0 ? std::min(all, written) : all;
    case WorkForm::kGatheredRegion:
      return static_cast<int64_t>(input) != param(params, 1)
                 ? all
                 : std::min(all, size_at(inputs[input], 1) * distinct_elements(inputs.back()));
    case WorkForm::kIndexedRegion:
      return param(params, 1 + input) > 0 ? std::min(all, written) : all;
    case WorkForm::kConv:
      return input == 0 && inputs.size() > 1 ? conv_reads(inputs[0], inputs[1], outputs[0], params) : all;
    case WorkForm::kConvWeightGradient:
      return input == 0 && inputs.size() > 1 ? conv_reads(inputs[0], outputs[0], inputs[1], params) : all;
    case WorkForm::kPool: {
      if (input != 0 || params.size() < 3) return all;
      double window = 1;
      for (int64_t i = 0; i < params[0]; ++i)
        window *= static_cast<double>(param(params, 3 + static_cast<size_t>(i)));
      return std::min(all, written * window);
    }
    // A scatter, and a cache that is appended to, may be done in place: the old elements stay where they are.
    case WorkForm::kScatter:
      return input == 0 ? 0 : all;
    case WorkForm::kMessages:
      return input == 0 ? 0 : std::min(all, message_elements(inputs, outputs[0]));
    case WorkForm::kAppend:
      return input == 5 || input == 6 ? 0 : all;
    case WorkForm::kAttention:
    case WorkForm::kAttentionBackward: {
      if (inputs.size() < 3 || (input != 1 && input != 2)) return all;
      const double keys = size_at(inputs[1], 2);
      return keys == 0 ? 0 : all * attended(size_at(inputs[0], 2), keys, params).keys / keys;
    }
    default:
      return all;
  }
}

// Whether indices say which of the operand's rows are read, and how often.
bool picks_by_data(WorkForm form, const std::vector<int64_t>& params, size_t input) {
  if (form == WorkForm::kGatheredRegion) return static_cast<int64_t>(input) == param(params, 1);
  if (form == WorkForm::kIndexedRegion) return param(params, 1 + input) > 0;
  return (form == WorkForm::kGather && input == 0) || (form == WorkForm::kMessages && input > 1);
}

double written_elements(WorkForm form, const std::vector<TensorArg>& inputs, const TensorArg& out,
                        size_t output) {
  const double all = distinct_elements(out);
  if (form == WorkForm::kScatter && inputs.size() >= 3) return std::min(all, all_elements(inputs[2]));
  if (form == WorkForm::kMessages && output == 0) return std::min(all, message_elements(inputs, out));
  // Its outputs are the rotated queries and the two caches, which take the new keys and values.
  if (form == WorkForm::kAppend && output > 0 && inputs.size() > output)
    return std::min(all, all_elements(inputs[output]));
  return all;
}

}  // namespace

double distinct_elements(const TensorArg& window, const std::vector<int64_t>& offsets) {
  if (all_elements(window) == 0 || offsets.empty()) return 0;
  const auto [first, last] = std::minmax_element(offsets.begin(), offsets.end());
  double count = static_cast<double>(offsets.size()), span = 1 + static_cast<double>(*last - *first);
  for (int i = 0; i < window.rank; ++i) {
    if (window.strides[i] != 0) count *= static_cast<double>(window.sizes[i]);
    span += static_cast<double>(window.sizes[i] - 1) * std::abs(static_cast<double>(window.strides[i]));
  }
  return std::min(count, span);
}

Work work_of(WorkForm form, const std::vector<TensorArg>& inputs, const std::vector<TensorArg>& outputs,
             const std::vector<int64_t>& params) {
  Work work;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double bytes = touched_elements(form, inputs, outputs, params, i) * dtype_bytes(inputs[i].dtype);
    work.bytes += bytes;
    if (!picks_by_data(form, params, i)) work.sure_bytes += bytes;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double bytes = written_elements(form, inputs, outputs[i], i) * dtype_bytes(outputs[i].dtype);
    work.bytes += bytes;
    if (form != WorkForm::kScatter && form != WorkForm::kMessages) work.sure_bytes += bytes;
  }
  if (!inputs.empty() && !outputs.empty()) work.flops = flops_of(form, inputs, outputs[0], params);
  return work;
}

}  // namespace aicf
