#include "kernels/conv/cpu/conv_plan.h"

#include <algorithm>

#include "base/dim.h"
#include "kernels/common/step_check.h"

namespace aicf {
namespace {

ConvView view_of(const TensorArg& tensor, const TensorArg& result, const Windows& windows, const char* name) {
  int64_t strides[kMaxRank];
  broadcast_strides(tensor, result.sizes, result.rank, name, strides);
  ConvView view = {strides[0], strides[1], {}, 1};
  const int missing = kSpatialAxes - (result.rank - 2);
  for (int a = missing; a < kSpatialAxes; ++a) view.spatial[a] = strides[2 + a - missing];
  // An axis of one position has no stride that counts; it takes the one that lets its neighbours collapse.
  int64_t wanted = 0;
  bool started = false;
  for (int a = kSpatialAxes - 1; a >= 0; --a) {
    if (windows.axis[a].out == 1) {
      if (!started) view.spatial[a] = 0;
      continue;
    }
    if (!started) {
      started = true;
      view.spatial[kSpatialAxes - 1] = view.spatial[a];
    } else if (view.spatial[a] != wanted) {
      view.collapsed = 0;
    }
    wanted = view.spatial[a] * windows.axis[a].out;
  }
  return view;
}

void add_operands(ConvPlan& plan, const BoundCall& call, size_t first, const char* name) {
  const TensorArg& result = call.outputs[0];
  for (const TensorArg& output : call.outputs) {
    check_rank(output, result.rank, name, "output");
    for (int i = 0; i < result.rank; ++i)
      check_step(output.sizes[i] == result.sizes[i], name, "output size", std::to_string(result.sizes[i]),
                 output.sizes[i]);
  }
  if (call.program) {
    check_epilogue(call, first, name);
    for (size_t i = first; i < call.inputs.size(); ++i)
      plan.operand[plan.operands++] = view_of(call.inputs[i], result, plan.windows, name);
  } else {
    check_step(call.inputs.size() == first, name, "inputs", std::to_string(first),
               static_cast<int64_t>(call.inputs.size()));
    check_step(call.outputs.size() == 1, name, "outputs", "1", static_cast<int64_t>(call.outputs.size()));
  }
  for (const TensorArg& output : call.outputs)
    plan.operand[plan.operands++] = view_of(output, result, plan.windows, name);
}

bool is_matrix(const Windows& windows) {
  int64_t wanted = windows.axis[kSpatialAxes - 1].in_stride;
  for (int a = kSpatialAxes - 1; a >= 0; --a) {
    const WindowAxis& axis = windows.axis[a];
    if (axis.kernel != 1 || axis.stride != 1 || axis.low != 0 || axis.high != 0) return false;
    if (axis.in != 1 && axis.in_stride != wanted) return false;
    wanted *= axis.in;
  }
  return true;
}

void set_weights(ConvPlan& plan, const TensorArg& w) {
  const int missing = kSpatialAxes - (w.rank - 2);
  plan.w_map = w.strides[0];
  plan.w_channel = w.strides[1];
  for (int a = missing; a < kSpatialAxes; ++a) plan.w_kernel[a] = w.strides[2 + a - missing];
  plan.w_dense = w.sizes[1] == 1 || w.strides[1] == 1;
  int64_t wanted = w.sizes[1];
  for (int i = w.rank - 1; i >= 2; --i) {
    if (w.sizes[i] != 1 && w.strides[i] != wanted) plan.w_dense = 0;
    wanted *= w.sizes[i];
  }
}

}  // namespace

ConvParams read_conv_params(const BoundCall& call, ConvParams::Form form, const char* name) {
  const auto count = static_cast<int64_t>(call.params.size());
  check_step(count >= 3, name, "params", ">= 3", count);
  const int64_t* p = call.params.data();
  ConvParams params = {p[0], p[1], p[2], {}, nullptr, nullptr};
  check_step(params.spatial >= 1 && params.spatial <= kSpatialAxes, name, "spatial axes", "1..3",
             params.spatial);
  const int64_t lists = form == ConvParams::kPlain ? 4 : 5;
  check_step(count == 3 + lists * params.spatial, name, "params", std::to_string(3 + lists * params.spatial),
             count);
  check_step(params.groups >= 1, name, "groups", ">= 1", params.groups);
  check_step(params.has_bias == 0 || params.has_bias == 1, name, "has_bias", "0 or 1", params.has_bias);
  const int64_t* list = p + 3;
  params.windows = {params.spatial, list, list + params.spatial, list + 2 * params.spatial,
                    list + 3 * params.spatial};
  if (form == ConvParams::kTransposed) params.output_padding = list + 4 * params.spatial;
  if (form == ConvParams::kPacked) params.kernel = list + 4 * params.spatial;
  return params;
}

void check_bias(const BoundCall& call, const ConvParams& params, int64_t maps, const char* name) {
  if (!params.has_bias) return;
  check_dtype(call.inputs[2], call.inputs[0].dtype, name, "bias");
  check_rank(call.inputs[2], 1, name, "bias");
  check_step(call.inputs[2].sizes[0] == maps, name, "size of bias", std::to_string(maps),
             call.inputs[2].sizes[0]);
}

ConvPlan plan_conv(const BoundCall& call, bool packed, const char* name) {
  const ConvParams params = read_conv_params(call, packed ? ConvParams::kPacked : ConvParams::kPlain, name);
  const size_t first = params.has_bias ? 3 : 2;
  check_step(call.inputs.size() >= first, name, "inputs", ">= " + std::to_string(first),
             static_cast<int64_t>(call.inputs.size()));
  const TensorArg &x = call.inputs[0], &w = call.inputs[1], &out = call.outputs[0];
  check_rank(x, static_cast<int>(params.spatial) + 2, name, "x");
  if (!packed) {
    check_rank(w, x.rank, name, "w");
    check_dtype(w, x.dtype, name, "w");
  }
  ConvPlan plan = {};
  plan.windows = make_windows(x, out, packed ? params.kernel : w.sizes + 2, params.windows, name);
  check_window_counts(plan.windows, false, name);
  plan.groups = params.groups;
  const int64_t maps = packed ? out.sizes[1] : w.sizes[0];
  check_step(maps % params.groups == 0, name, "output channels", "a multiple of groups", maps);
  check_step(x.sizes[1] % params.groups == 0, name, "channels of x", "a multiple of groups", x.sizes[1]);
  plan.group_channels = x.sizes[1] / params.groups;
  plan.group_maps = maps / params.groups;
  plan.batch = x.sizes[0];
  if (!packed)
    check_step(plan.group_channels == w.sizes[1], name, "channels of x", "groups times those of w",
               x.sizes[1]);
  check_step(out.sizes[0] == x.sizes[0], name, "batch of the output", std::to_string(x.sizes[0]),
             out.sizes[0]);
  check_step(out.sizes[1] == maps, name, "channels of the output", std::to_string(maps), out.sizes[1]);
  check_bias(call, params, maps, name);
  plan.has_bias = params.has_bias;
  plan.bias_stride = params.has_bias ? call.inputs[2].strides[0] : 0;
  plan.k = checked_mul(plan.group_channels,
                       checked_mul(plan.windows.axis[0].kernel,
                                   checked_mul(plan.windows.axis[1].kernel, plan.windows.axis[2].kernel)));
  plan.pixels = plan.windows.out_count();
  plan.x_batch = x.strides[0];
  plan.x_channel = x.strides[1];
  plan.x_is_matrix = is_matrix(plan.windows);
  if (!packed) set_weights(plan, w);
  add_operands(plan, call, first, name);
  return plan;
}

}  // namespace aicf
