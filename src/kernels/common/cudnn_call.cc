#include "kernels/common/cudnn_call.h"

#include <algorithm>

#include "kernels/common/call_words.h"

namespace aicf {
namespace {

constexpr size_t kMostKnobs = 64;
constexpr int64_t kMostEngines = 1 << 20, kMostKnobTypes = 1 << 20;
constexpr int64_t kVector = 8;  // halves of 16 bytes

bool parse_knobs(std::string_view text, std::vector<std::pair<int64_t, int64_t>>& knobs) {
  if (text.ends_with(',')) return false;
  Words list(text, ',');
  while (!list.done()) {
    Words knob(list.next(), ':');
    std::pair<int64_t, int64_t> parsed;
    if (!parse_number(knob.next(), parsed.first) || !parse_number(knob.next(), parsed.second)) return false;
    if (!knob.done() || parsed.first < 0 || parsed.first > kMostKnobTypes || knobs.size() == kMostKnobs)
      return false;
    knobs.push_back(parsed);
  }
  return !knobs.empty();
}

bool parse_input(std::string_view text, int& number) {
  return parse_number(text, number) && number >= 0 && number < kMostLibraryInputs;
}

// ---- operands

bool has_sizes(const TensorArg& arg) {
  return std::all_of(arg.sizes, arg.sizes + arg.rank,
                     [](int64_t size) { return size > 0 && size <= INT32_MAX; });
}

bool same_sizes(const TensorArg& a, const TensorArg& b) {
  return a.rank == b.rank && std::equal(a.sizes, a.sizes + a.rank, b.sizes);
}

// With channels innermost; false if they are not.
bool make_channels_last(TensorArg& arg) {
  int64_t dense = arg.sizes[1];
  if (arg.sizes[1] == 1) arg.strides[1] = 1;
  if (arg.strides[1] != 1) return false;
  for (int axis = arg.rank - 1; axis >= 0; --axis) {
    if (axis == 1) continue;
    if (arg.sizes[axis] == 1) arg.strides[axis] = dense;
    if (arg.strides[axis] < dense || arg.strides[axis] > INT64_MAX / arg.sizes[axis]) return false;
    dense = arg.strides[axis] * arg.sizes[axis];
  }
  return true;
}

// A number per channel as a tensor of the result's rank.
std::optional<TensorArg> channel_row(const TensorArg& arg, const TensorArg& out) {
  const int channel = arg.rank == 1 ? 0 : 1;
  if (arg.dtype != out.dtype || (arg.rank != 1 && arg.rank != out.rank)) return std::nullopt;
  if (arg.sizes[channel] != out.sizes[1] || (arg.strides[channel] != 1 && out.sizes[1] != 1))
    return std::nullopt;
  for (int axis = 0; axis < arg.rank; ++axis)
    if (axis != channel && arg.strides[axis] != 0 && arg.sizes[axis] != 1) return std::nullopt;
  TensorArg row = out;
  row.data = arg.data;
  for (int axis = 0; axis < out.rank; ++axis) {
    row.sizes[axis] = axis == 1 ? out.sizes[1] : 1;
    row.strides[axis] = axis == 1 ? 1 : out.sizes[1];
  }
  return row;
}

const TensorArg* input_of(const BoundCall& step, int number, size_t own) {
  const auto index = static_cast<size_t>(number);
  return index >= own && index < step.inputs.size() ? &step.inputs[index] : nullptr;
}

// The lists of the row's params; sizes of the result follow from them.
bool read_windows(const BoundCall& step, CudnnConv& conv) {
  const int64_t spatial = conv.x.rank - 2;
  if (step.params.size() != static_cast<size_t>(3 + 4 * spatial) || step.params[0] != spatial) return false;
  auto at = step.params.begin() + 3;
  for (auto* list : {&conv.strides, &conv.low, &conv.high, &conv.dilations}) {
    list->assign(at, at + spatial);
    at += spatial;
  }
  constexpr int64_t kMost = 1 << 20;
  for (size_t i = 0; i < static_cast<size_t>(spatial); ++i) {
    const int64_t stride = conv.strides[i], low = conv.low[i], high = conv.high[i],
                  step_of = conv.dilations[i];
    if (stride < 1 || low < 0 || high < 0 || step_of < 1) return false;
    if (std::max({stride, low, high, step_of, conv.w.sizes[i + 2]}) > kMost) return false;
    const int64_t reach = conv.x.sizes[i + 2] + low + high - step_of * (conv.w.sizes[i + 2] - 1) - 1;
    if (reach < 0 || conv.out.sizes[i + 2] != reach / stride + 1) return false;
  }
  return true;
}

}  // namespace

std::string to_string(const CudnnCall& call) {
  std::string text = std::to_string(call.version) + (call.op == CudnnOp::kConv ? " conv" : " attention");
  if (call.bias >= 0) text += " bias " + std::to_string(call.bias);
  if (call.addend >= 0) text += " add " + std::to_string(call.addend);
  if (call.relu) text += " relu";
  text += " workspace " + std::to_string(call.workspace_bytes) + " engine " + std::to_string(call.engine);
  for (size_t i = 0; i < call.knobs.size(); ++i)
    text += (i == 0 ? " knobs " : ",") + std::to_string(call.knobs[i].first) + ":" +
            std::to_string(call.knobs[i].second);
  return text;
}

std::optional<CudnnCall> parse_cudnn_call(std::string_view text) {
  CudnnCall call;
  Words words(text);
  if (!parse_number(words.next(), call.version) || call.version < 0) return std::nullopt;
  const std::string_view op = words.next();
  if (op != "conv" && op != "attention") return std::nullopt;
  call.op = op == "conv" ? CudnnOp::kConv : CudnnOp::kAttention;
  bool has_engine = false;
  while (!words.done()) {
    const std::string_view word = words.next();
    bool sound = true;
    if (word == "relu") {
      call.relu = true;
    } else if (word == "bias") {
      sound = parse_input(words.next(), call.bias);
    } else if (word == "add") {
      sound = parse_input(words.next(), call.addend);
    } else if (word == "workspace") {
      sound = parse_number(words.next(), call.workspace_bytes) && call.workspace_bytes >= 0 &&
              call.workspace_bytes <= kMostLibraryWorkspace;
    } else if (word == "knobs") {
      sound = call.knobs.empty() && parse_knobs(words.next(), call.knobs);
    } else {
      sound = word == "engine" && parse_number(words.next(), call.engine) && call.engine >= 0 &&
              call.engine <= kMostEngines;
      has_engine = sound;
    }
    if (!sound) return std::nullopt;
  }
  return has_engine ? std::optional(call) : std::nullopt;
}

bool same_meaning(const CudnnCall& a, const CudnnCall& b) {
  return a.op == b.op && a.bias == b.bias && a.addend == b.addend && a.relu == b.relu;
}

std::optional<CudnnConv> cudnn_conv(const CudnnCall& call, const BoundCall& step) {
  if (call.op != CudnnOp::kConv || step.inputs.size() < 2 || step.outputs.empty()) return std::nullopt;
  CudnnConv conv;
  conv.x = step.inputs[0];
  conv.w = step.inputs[1];
  conv.out = step.outputs[0];
  if (conv.x.rank < 4 || conv.x.rank > 5 || conv.w.rank != conv.x.rank || conv.out.rank != conv.x.rank)
    return std::nullopt;
  for (TensorArg* arg : {&conv.x, &conv.w, &conv.out})
    if (arg->dtype != conv.x.dtype || !is_half(arg->dtype) || !has_sizes(*arg) || !make_channels_last(*arg))
      return std::nullopt;
  if (!read_windows(step, conv)) return std::nullopt;
  const int64_t groups = step.params[1];
  if (groups < 1 || conv.x.sizes[1] % groups != 0 || conv.x.sizes[1] / groups != conv.w.sizes[1] ||
      conv.w.sizes[0] != conv.out.sizes[1] || conv.w.sizes[0] % groups != 0 ||
      conv.x.sizes[0] != conv.out.sizes[0])
    return std::nullopt;
  if (step.params[2] != 0 && call.bias != 2) return std::nullopt;  // the convolution's own
  if (call.bias >= 0) {
    const TensorArg* bias = input_of(step, call.bias, 2);
    const auto row = bias != nullptr ? channel_row(*bias, conv.out) : std::nullopt;
    if (!row) return std::nullopt;
    conv.bias = *row;
  }
  if (call.addend < 0) return conv;
  const TensorArg* addend = input_of(step, call.addend, 2);
  if (addend == nullptr || addend->dtype != conv.out.dtype || !same_sizes(*addend, conv.out))
    return std::nullopt;
  conv.addend = *addend;
  return make_channels_last(conv.addend) ? std::optional(conv) : std::nullopt;
}

std::optional<CudnnAttention> cudnn_attention(const CudnnCall& call, const BoundCall& step) {
  if (call.op != CudnnOp::kAttention || call.bias >= 0 || call.addend >= 0 || call.relu) return std::nullopt;
  // Every row sees every key, and the sums of rows are not asked for.
  if (step.inputs.size() != 3 || step.outputs.size() != 1 || step.params != std::vector<int64_t>{0, 0} ||
      step.fparams.size() != 2 || step.fparams[1] != 0)
    return std::nullopt;
  CudnnAttention a{step.inputs[0], step.inputs[1], step.inputs[2], step.outputs[0], step.fparams[0]};
  for (TensorArg* arg : {&a.q, &a.k, &a.v, &a.out}) {
    if (arg->rank != 4 || arg->dtype != a.q.dtype || !is_half(arg->dtype) || !has_sizes(*arg))
      return std::nullopt;
    if (arg->strides[3] != 1 || arg->sizes[3] % kVector != 0 || arg->sizes[3] > 128) return std::nullopt;
    for (int axis = 0; axis < 3; ++axis) {
      if (arg->sizes[axis] == 1) arg->strides[axis] = arg->sizes[3];
      if (arg->strides[axis] <= 0 || arg->strides[axis] % kVector != 0) return std::nullopt;
    }
  }
  const int64_t *q = a.q.sizes, *k = a.k.sizes, *v = a.v.sizes, *out = a.out.sizes;
  const bool fits = q[0] == k[0] && q[0] == v[0] && q[0] == out[0] && k[1] == v[1] && q[1] == out[1] &&
                    q[1] % k[1] == 0 && k[2] == v[2] && q[2] == out[2] && q[3] == k[3] && v[3] == out[3];
  return fits ? std::optional(a) : std::nullopt;
}

bool cudnn_takes(const CudnnCall& call, const BoundCall& step) {
  return call.op == CudnnOp::kConv ? cudnn_conv(call, step).has_value()
                                   : cudnn_attention(call, step).has_value();
}

}  // namespace aicf
