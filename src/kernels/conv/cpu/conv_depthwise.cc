// Depthwise convolution: one input and one output channel per group. Where channels lie side by side, vectors
// hold channels of one output position; else they hold positions of an output row.
#include <algorithm>

#include "kernels/common/isa.h"
#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/conv/cpu/conv_store.h"
#include "kernels/conv/cpu/depthwise_row.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {

AICF_DECLARE_PER_ISA(extern const DepthwiseIsa kDepthwiseIsa)

namespace {

constexpr const char* kDepthwiseName = "conv_f32_depthwise";
constexpr int64_t kTilePixels = 8192;  // 32 KiB of sums
constexpr int64_t kWantedDepthwiseTiles = 16;

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

constexpr int64_t kMaxTaps = 128, kFewChannels = 12, kChannelTile = 128;

// Whether channels of an output position go through the vectors of DepthwiseIsa::sum_pixels.
bool sums_pixels(const ConvPlan& plan) {
  return plan.x_channel == 1 && plan.groups >= kFewChannels && plan.k <= kMaxTaps &&
         plan.windows.axis[2].in_stride != 1;
}

// The taps of the tile's channels side by side, `row_tile` floats for each; then the channels' bias.
void pack_taps(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, float* to) {
  const WindowAxis* axis = plan.windows.axis;
  const float* w = static_cast<const float*>(call.inputs[1].data) + tile.group * plan.w_map;
  for (int64_t z = 0; z < axis[0].kernel; ++z)
    for (int64_t y = 0; y < axis[1].kernel; ++y)
      for (int64_t x = 0; x < axis[2].kernel; ++x, to += plan.row_tile) {
        const float* tap = w + z * plan.w_kernel[0] + y * plan.w_kernel[1] + x * plan.w_kernel[2];
        for (int64_t i = 0; i < tile.rows; ++i) to[i] = tap[i * plan.w_map];
      }
  if (!plan.has_bias) return;
  const TensorArg& bias = call.inputs[2];
  for (int64_t i = 0; i < tile.rows; ++i)
    to[i] = load_element<float>(bias.data, bias.dtype, (tile.group + i) * plan.bias_stride);
}

// Positions of a row of outputs, from `at` on, that have all taps across, or one.
int64_t alike(const WindowAxis& across, int64_t at) {
  const KernelRange taps = kernel_range(across, at);
  if (taps.begin != 0 || taps.end != across.kernel) return 1;
  const int64_t last = across.in - 1 - across.position(0, across.kernel - 1);
  return std::min(across.out - 1, last / across.stride) - at + 1;
}

// The sums of output positions from `pixel` on, `most` at most; returns how many. `x` is that of the tile's
// first channel, `w` what pack_taps made.
int64_t sum_pixels(const DepthwiseIsa& isa, const ConvPlan& plan, int64_t pixel, int64_t most,
                   int64_t channels, const float* x, const float* w, float* sums) {
  const WindowAxis &deep = plan.windows.axis[0], &down = plan.windows.axis[1], &across = plan.windows.axis[2];
  const int64_t at[] = {pixel / across.out / down.out, pixel / across.out % down.out, pixel % across.out};
  const KernelRange zs = kernel_range(deep, at[0]), ys = kernel_range(down, at[1]),
                    xs = kernel_range(across, at[2]);
  const float *inputs[kMaxTaps], *weights[kMaxTaps];
  int64_t taps = 0;
  for (int64_t kz = zs.begin; kz < zs.end; ++kz)
    for (int64_t ky = ys.begin; ky < ys.end; ++ky)
      for (int64_t kx = xs.begin; kx < xs.end; ++kx) {
        inputs[taps] = x + deep.position(at[0], kz) * deep.in_stride +
                       down.position(at[1], ky) * down.in_stride +
                       across.position(at[2], kx) * across.in_stride;
        weights[taps++] = w + ((kz * down.kernel + ky) * across.kernel + kx) * plan.row_tile;
      }
  const int64_t count = std::min(most, alike(across, at[2]));
  isa.sum_pixels(
      {sums, plan.row_tile, count, across.stride * across.in_stride, channels, taps, inputs, weights});
  return count;
}

ConvTile tile_of(const ConvPlan& plan, int64_t index) {
  ConvTile tile = {};
  tile.pixel = index % plan.column_tiles * plan.column_tile;
  tile.pixels = std::min(plan.column_tile, plan.pixels - tile.pixel);
  tile.group = index / plan.column_tiles % plan.row_tiles * plan.row_tile;
  tile.batch = index / plan.column_tiles / plan.row_tiles;
  tile.rows = std::min(plan.row_tile, plan.groups - tile.group);
  return tile;
}

void run_pixels_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  const DepthwiseIsa& isa = *AICF_PICK_ISA(call.isa, kDepthwiseIsa);
  const ConvTile tile = tile_of(plan, index);
  const float* x = static_cast<const float*>(call.inputs[0].data) + tile.batch * plan.x_batch + tile.group;
  float *w = reinterpret_cast<float*>(scratch + plan.w_offset),
        *c = reinterpret_cast<float*>(scratch + plan.c_offset);
  pack_taps(call, plan, tile, w);
  for (int64_t done = 0; done < tile.pixels;)
    done += sum_pixels(isa, plan, tile.pixel + done, tile.pixels - done, tile.rows, x, w,
                       c + done * plan.row_tile);
  const float* bias = plan.has_bias ? w + plan.k * plan.row_tile : nullptr;
  ConvRowStore(call, plan, tile, c, plan.row_tile, bias, scratch + plan.program_offset).run(0, tile.pixels);
}

// Channels are the rows of the tile, as if they were maps of one group.
void run_rows_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  const DepthwiseIsa& isa = *AICF_PICK_ISA(call.isa, kDepthwiseIsa);
  const ConvTile tile = tile_of(plan, index);
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
  return problem.inputs[1].dtype == DType::f32 && !asks_tf32(problem.params) && x.size() >= 3 &&
         x.size() <= kSpatialAxes + 2 && w.size() == x.size() && w[1] == Dim(1) && w[0] == problem.params[1];
}

namespace {

void prepare_pixels(BoundCall& call, ConvPlan& plan) {
  constexpr int64_t kFloat = sizeof(float), kLine = 64;
  plan.row_tile = std::min(kChannelTile, round_up(plan.groups, kLine / kFloat));
  plan.row_tiles = ceil_div(plan.groups, plan.row_tile);
  const int64_t wanted = ceil_div(plan.pixels, ceil_div(kWantedDepthwiseTiles, plan.row_tiles));
  plan.column_tile = std::clamp<int64_t>(wanted, 1, kTilePixels / plan.row_tile);
  plan.column_tiles = ceil_div(plan.pixels, plan.column_tile);
  plan.w_offset = 0;
  plan.c_offset = (plan.k + 1) * plan.row_tile * kFloat;
  plan.program_offset = plan.c_offset + plan.row_tile * plan.column_tile * kFloat;
  call.scratch_bytes = plan.program_offset + (call.program ? tile_rows_scratch_bytes(*call.program) : 0);
  call.tiles = plan.batch * plan.row_tiles * plan.column_tiles;
  call.run = run_pixels_tile;
  store_plan(call, plan);
}

}  // namespace

void prepare_conv_f32_depthwise(BoundCall& call) {
  check_counts(call, kDepthwiseName, 2, kMaxTileOperands + 2, call.params.size(), 0);
  check_dtype(call.inputs[0], DType::f32, kDepthwiseName, "x");
  if (!call.program) check_dtype(call.outputs[0], DType::f32, kDepthwiseName, "result");
  ConvPlan plan = plan_conv(call, false, kDepthwiseName);
  check_step(plan.group_channels == 1, kDepthwiseName, "input channels per group", "1", plan.group_channels);
  check_step(plan.group_maps == 1, kDepthwiseName, "output channels per group", "1", plan.group_maps);
  if (sums_pixels(plan)) return prepare_pixels(call, plan);
  const int64_t width = std::max<int64_t>(plan.windows.axis[2].out, 1);
  plan.column_tile =
      std::min(std::max<int64_t>(1, kTilePixels / width) * width, round_up(plan.pixels, width));
  plan.column_tiles = ceil_div(plan.pixels, plan.column_tile);
  // Small channels share a tile, and what a tile costs before its first pixel.
  const int64_t together =
      std::min(kTilePixels / std::max<int64_t>(1, plan.column_tile), plan.groups / kWantedDepthwiseTiles);
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
  call.run = run_rows_tile;
  store_plan(call, plan);
}

}  // namespace aicf
