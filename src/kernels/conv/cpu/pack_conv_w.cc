#include "kernels/conv/cpu/pack_conv_w.h"

#include <algorithm>

#include "base/dim.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/conv/windows.h"
#include "kernels/matmul/cpu/gemm.h"

namespace aicf {
namespace {

constexpr std::string_view kPackName = "pack_conv_w_f32";
constexpr int64_t kRoundedColumns = 48;  // at every level no fewer than packed_panel_width() adds up to

struct PackPlan {
  int64_t groups, group_maps, channels, positions, panels;  // panels of a group
};

int64_t padded(int64_t group_maps) {
  return checked_add(group_maps, kRoundedColumns - 1) / kRoundedColumns * kRoundedColumns;
}

// Offset of a kernel position, counted in row-major order.
int64_t position_offset(const TensorArg& w, int64_t position) {
  int64_t offset = 0;
  for (int axis = w.rank - 1; axis >= 2; --axis) {
    offset += position % w.sizes[axis] * w.strides[axis];
    position /= w.sizes[axis];
  }
  return offset;
}

void run_pack_tile(const BoundCall& call, int64_t tile, std::byte*) {
  const PackPlan& plan = stored_plan<PackPlan>(call);
  const int64_t nr = conv_gemm_isa(call.isa, plan.group_maps).nr_f32, k = plan.channels * plan.positions;
  const TensorArg& w = call.inputs[0];
  const int64_t group = tile / plan.panels, first = tile % plan.panels * nr;
  const int64_t count = std::min(nr, plan.group_maps - first);
  const int64_t width = packed_panel_width(nr, first, plan.group_maps);
  const float* from = static_cast<const float*>(w.data) + (group * plan.group_maps + first) * w.strides[0];
  float* to =
      static_cast<float*>(call.outputs[0].data) + packed_conv_group(group, plan.group_maps, k) + first * k;
  for (int64_t position = 0; position < plan.positions; ++position) {
    const float* at = from + position_offset(w, position);
    for (int64_t channel = 0; channel < plan.channels; ++channel, to += width) {
      for (int64_t j = 0; j < count; ++j) to[j] = at[j * w.strides[0] + channel * w.strides[1]];
      std::fill(to + count, to + width, 0.0f);
    }
  }
}

}  // namespace

int64_t packed_conv_w_bytes(int64_t groups, int64_t maps, int64_t k) {
  const int64_t columns = checked_mul(groups, padded(groups > 0 ? maps / groups : 0));
  return checked_mul(checked_mul(columns, k), sizeof(float));
}

int64_t packed_conv_group(int64_t group, int64_t group_maps, int64_t k) {
  return group * padded(group_maps) * k;
}

bool can_run_pack_conv_w(const Problem& problem) {
  return problem.inputs.size() == 1 && problem.inputs[0].dtype == DType::f32 &&
         problem.inputs[0].sizes.size() >= 3 &&
         problem.inputs[0].sizes.size() <= static_cast<size_t>(kSpatialAxes) + 2;
}

void prepare_pack_conv_w(BoundCall& call) {
  check_counts(call, kPackName, 1, 1, 1, 0);
  check_step(call.program == nullptr, kPackName, "program", "none", 1);
  const TensorArg &w = call.inputs[0], &out = call.outputs[0];
  check_dtype(w, DType::f32, kPackName, "w");
  check_sizes(w, kPackName, "w");
  check_step(w.rank >= 3 && w.rank <= kSpatialAxes + 2, kPackName, "rank of w", "3..5", w.rank);
  check_dtype(out, DType::u8, kPackName, "packed");
  check_rank(out, 1, kPackName, "packed");
  const int64_t groups = call.params[0];
  check_step(groups >= 1 && w.sizes[0] % groups == 0, kPackName, "groups", "a divisor of the output channels",
             groups);
  PackPlan plan = {groups, w.sizes[0] / groups, w.sizes[1], 1, 0};
  for (int axis = 2; axis < w.rank; ++axis) plan.positions = checked_mul(plan.positions, w.sizes[axis]);
  const int64_t k = checked_mul(plan.channels, plan.positions);
  const int64_t bytes = packed_conv_w_bytes(groups, w.sizes[0], k);
  check_step(out.sizes[0] >= bytes && (out.strides[0] == 1 || out.sizes[0] <= 1), kPackName, "packed bytes",
             ">= " + std::to_string(bytes) + ", dense", out.sizes[0]);
  plan.panels = ceil_div(plan.group_maps, conv_gemm_isa(call.isa, plan.group_maps).nr_f32);
  store_plan(call, plan);
  call.run = run_pack_tile;
  call.tiles = k == 0 ? 0 : groups * plan.panels;
  call.scratch_bytes = 0;
}

}  // namespace aicf
