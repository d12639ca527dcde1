// Depthwise convolution: one input and one output channel per group. Output rows are accumulated tap by tap.
#include <algorithm>

#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/conv/cpu/conv_store.h"
#include "kernels/conv/cpu/depthwise_row.h"
#include "kernels/isa.h"
#include "kernels/kernel.h"
#include "kernels/step_check.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {

AICF_DECLARE_PER_ISA(extern const DepthwiseIsa kDepthwiseIsa)

namespace {

constexpr const char* kName = "conv_f32_depthwise";
constexpr int64_t kTilePixels = 8192;  // 32 KiB of sums
constexpr int64_t kWantedTiles = 16;

struct OutputRow {
  int64_t z, y;
};

// Outputs [begin, end) of a row whose window position k of the last axis lies inside the input.
KernelRange inside_range(const WindowAxis& axis, int64_t k) {
  const int64_t first = axis.position(0, k), last = axis.in - 1 - first;
  return {std::min(first < 0 ? ceil_div(-first, axis.stride) : 0, axis.out),
          last < 0 ? 0 : std::min(axis.out, last / axis.stride + 1)};
}

// Adds the taps of kernel row (kz, ky), whose input row begins at `x`, to a row of sums.
void add_kernel_row(const DepthwiseIsa& isa, const WindowAxis& axis, const float* x, const float* w,
                    int64_t w_stride, float* sums) {
  for (int64_t k = 0; k < axis.kernel; ++k) {
    const int64_t first = axis.position(0, k);
    const auto [begin, end] = inside_range(axis, k);
    if (begin >= end) continue;
    isa.add_tap(sums + begin, x + (first + begin * axis.stride) * axis.in_stride,
                axis.stride * axis.in_stride, end - begin, w[k * w_stride]);
  }
}

constexpr int64_t kMaxKernelRows = 64;
constexpr int64_t kExactNumbers = 1 << 24;  // of outputs, which the rows compare as f32

// Whether rows of outputs go through the vectors of DepthwiseIsa::sum_row.
bool sums_rows(const ConvPlan& plan) {
  const WindowAxis& across = plan.windows.axis[2];
  return across.in_stride == 1 && across.stride <= 2 && across.kernel <= kMaxRowTaps &&
         across.out < kExactNumbers &&
         plan.windows.axis[0].kernel * plan.windows.axis[1].kernel <= kMaxKernelRows &&
         plan.windows.axis[0].in_stride >= 0 && plan.windows.axis[1].in_stride >= 0;
}

// Calls add(offset in x, weights) for the kernel rows inside the input, in order.
template <class Add>
void each_kernel_row(const ConvPlan& plan, const float* w, OutputRow row, Add add) {
  const WindowAxis &deep = plan.windows.axis[0], &down = plan.windows.axis[1];
  const KernelRange zs = kernel_range(deep, row.z), ys = kernel_range(down, row.y);
  for (int64_t kz = zs.begin; kz < zs.end; ++kz)
    for (int64_t ky = ys.begin; ky < ys.end; ++ky)
      add(deep.position(row.z, kz) * deep.in_stride + down.position(row.y, ky) * down.in_stride,
          w + kz * plan.w_kernel[0] + ky * plan.w_kernel[1]);
}

// What all rows of a channel share.
DepthwiseRow row_of(const ConvPlan& plan, const float* x) {
  const WindowAxis& across = plan.windows.axis[2];
  DepthwiseRow row = {};
  row.count = across.out;
  row.x = x;
  row.size = (plan.windows.axis[0].in - 1) * plan.windows.axis[0].in_stride +
             (plan.windows.axis[1].in - 1) * plan.windows.axis[1].in_stride + across.in;
  row.stride = across.stride;
  row.dilation = across.dilation;
  row.taps = across.kernel;
  row.w_stride = plan.w_kernel[2];
  for (int64_t k = 0; k < row.taps; ++k) {
    const KernelRange range = inside_range(across, k);
    row.begin[k] = range.begin, row.end[k] = range.end;
  }
  return row;
}

// `row` is what row_of gave, if sums_rows.
void sum_row(const DepthwiseIsa& isa, const ConvPlan& plan, DepthwiseRow* row, const float* x, const float* w,
             OutputRow at, float* sums) {
  const WindowAxis& across = plan.windows.axis[2];
  if (row == nullptr) {
    std::fill_n(sums, across.out, 0.0f);
    each_kernel_row(plan, w, at, [&](int64_t offset, const float* weights) {
      add_kernel_row(isa, across, x + offset, weights, plan.w_kernel[2], sums);
    });
    return;
  }
  int64_t offsets[kMaxKernelRows];
  const float* weights[kMaxKernelRows];
  row->rows = 0;
  each_kernel_row(plan, w, at, [&](int64_t offset, const float* from) {
    offsets[row->rows] = offset - across.low;
    weights[row->rows++] = from;
  });
  row->at = offsets, row->w = weights, row->sums = sums;
  isa.sum_row(*row);
}

void sum_channel(const DepthwiseIsa& isa, const ConvPlan& plan, const ConvTile& tile, const float* x,
                 const float* w, float* c) {
  const int64_t width = plan.windows.axis[2].out, height = plan.windows.axis[1].out;
  const bool whole_rows = sums_rows(plan);
  DepthwiseRow shared = {};
  if (whole_rows) shared = row_of(plan, x);
  for (int64_t done = 0; done < tile.pixels; done += width) {
    const int64_t row = (tile.pixel + done) / width;
    sum_row(isa, plan, whole_rows ? &shared : nullptr, x, w, {row / height, row % height}, c + done);
  }
}

// Channels are the rows of the tile, as if they were maps of one group.
void run_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  const DepthwiseIsa& isa = *AICF_PICK_ISA(call.isa, kDepthwiseIsa);
  ConvTile tile = {};
  tile.pixel = index % plan.column_tiles * plan.column_tile;
  tile.pixels = std::min(plan.column_tile, plan.pixels - tile.pixel);
  tile.group = index / plan.column_tiles % plan.row_tiles * plan.row_tile;
  tile.batch = index / plan.column_tiles / plan.row_tiles;
  tile.rows = std::min(plan.row_tile, plan.groups - tile.group);
  const float* x = static_cast<const float*>(call.inputs[0].data) + tile.batch * plan.x_batch +
                   tile.group * plan.x_channel;
  const float* w = static_cast<const float*>(call.inputs[1].data) + tile.group * plan.w_map;
  const ConvView& result = plan.operand[plan.operands - 1];
  const bool direct = plan.c_offset < 0;
  float* c = direct ? static_cast<float*>(call.outputs[0].data) + tile.batch * result.batch +
                          tile.group * result.channel + tile.pixel
                    : reinterpret_cast<float*>(scratch + plan.c_offset);
  const int64_t ldc = direct ? result.channel : plan.column_tile;
  for (int64_t i = 0; i < tile.rows; ++i)
    sum_channel(isa, plan, tile, x + i * plan.x_channel, w + i * plan.w_map, c + i * ldc);
  add_conv_bias(call, plan, tile, c, ldc);
  if (!direct) store_conv_tile(call, plan, tile, c, ldc, scratch);
}

}  // namespace

bool can_run_conv_f32_depthwise(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.params.size() < 2 || problem.inputs[0].dtype != DType::f32)
    return false;
  const Shape &x = problem.inputs[0].sizes, &w = problem.inputs[1].sizes;
  return problem.inputs[1].dtype == DType::f32 && x.size() >= 3 && x.size() <= kSpatialAxes + 2 &&
         w.size() == x.size() && w[1] == Dim(1) && w[0] == problem.params[1];
}

void prepare_conv_f32_depthwise(BoundCall& call) {
  check_counts(call, kName, 2, kMaxTileOperands + 2, call.params.size(), 0);
  check_dtype(call.inputs[0], DType::f32, kName, "x");
  if (!call.program) check_dtype(call.outputs[0], DType::f32, kName, "result");
  ConvPlan plan = plan_conv(call, false, kName);
  check_step(plan.group_channels == 1, kName, "input channels per group", "1", plan.group_channels);
  check_step(plan.group_maps == 1, kName, "output channels per group", "1", plan.group_maps);
  const int64_t width = std::max<int64_t>(plan.windows.axis[2].out, 1);
  plan.column_tile =
      std::min(std::max<int64_t>(1, kTilePixels / width) * width, round_up(plan.pixels, width));
  plan.column_tiles = ceil_div(plan.pixels, plan.column_tile);
  // Small channels share a tile, and what a tile costs before its first pixel.
  const int64_t together =
      std::min(kTilePixels / std::max<int64_t>(1, plan.column_tile), plan.groups / kWantedTiles);
  plan.row_tile = std::max<int64_t>(1, together);
  plan.row_tiles = ceil_div(plan.groups, plan.row_tile);
  const ConvView& result = plan.operand[plan.operands - 1];
  const bool plain = result.collapsed && (result.spatial[2] == 1 || plan.pixels == 1);
  const int64_t bytes = round_up(plan.row_tile * plan.column_tile * static_cast<int64_t>(sizeof(float)), 64);
  plan.c_offset = call.program || !plain ? 0 : -1;
  plan.program_offset = bytes;
  call.scratch_bytes =
      plan.c_offset < 0 ? 0 : bytes + (call.program ? tile_rows_scratch_bytes(*call.program) : 0);
  call.tiles = plan.batch * plan.row_tiles * plan.column_tiles;
  call.run = run_tile;
  store_plan(call, plan);
}

}  // namespace aicf
