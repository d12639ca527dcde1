// Convolution as a contraction: rows of w times panels gathered from the windows of x (implicit GEMM).
#include <algorithm>
#include <cstring>

#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/conv/cpu/conv_store.h"
#include "kernels/matmul/cpu/gemm.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {
namespace {

constexpr int64_t kColumnTile = 192;
constexpr int64_t kRowTile = 256;  // every row tile gathers its windows again
constexpr int64_t kWantedTiles = 8;
constexpr double kSmallestTile = 2e6;  // flops
constexpr int64_t kPadding = 16;       // elements between copied rows of w

template <class T>
struct Job {
  const BoundCall& call;
  const ConvPlan& plan;
  const GemmIsa& isa;
  std::byte* scratch;
  ConvTile tile;
  int64_t nr;
  int64_t k = 0, depth = 0;
};

ConvTile tile_at(const ConvPlan& plan, int64_t index) {
  ConvTile tile;
  tile.row = index % plan.row_tiles * plan.row_tile;
  index /= plan.row_tiles;
  tile.pixel = index % plan.column_tiles * plan.column_tile;
  index /= plan.column_tiles;
  tile.group = index % plan.groups;
  tile.batch = index / plan.groups;
  tile.rows = std::min(plan.row_tile, plan.group_maps - tile.row);
  tile.pixels = std::min(plan.column_tile, plan.pixels - tile.pixel);
  return tile;
}

// Steps of K as (kernel position, channel).
struct Tap {
  int64_t channel, at[kSpatialAxes];
};

Tap tap_at(const ConvPlan& plan, int64_t k) {
  Tap tap = {};
  if (plan.k == 0) return tap;
  tap.channel = k % plan.group_channels;
  k /= plan.group_channels;
  for (int a = kSpatialAxes - 1; a >= 0; --a) {
    tap.at[a] = k % plan.windows.axis[a].kernel;
    k /= plan.windows.axis[a].kernel;
  }
  return tap;
}

void advance(const ConvPlan& plan, Tap& tap) {
  if (++tap.channel < plan.group_channels) return;
  tap.channel = 0;
  for (int a = kSpatialAxes - 1; a >= 0; --a) {
    if (++tap.at[a] < plan.windows.axis[a].kernel) return;
    tap.at[a] = 0;
  }
}

template <class T>
void set_left(const Job<T>& job, GemmBlock<T>& block) {
  const ConvPlan& plan = job.plan;
  const TensorArg& w = job.call.inputs[1];
  const int64_t first = (job.tile.group * plan.group_maps + job.tile.row) * plan.w_map;
  if (plan.w_offset < 0) {
    block.a = static_cast<const T*>(w.data) + first + job.k;
    block.lda = plan.w_map;
    return;
  }
  T* to = reinterpret_cast<T*>(job.scratch + plan.w_offset);
  block.a = to;
  block.lda = kGemmDepth + kPadding;
  Tap tap = tap_at(plan, job.k);
  for (int64_t k = 0; k < job.depth; ++k, advance(plan, tap)) {
    int64_t from = first + tap.channel * plan.w_channel;
    for (int a = 0; a < kSpatialAxes; ++a) from += tap.at[a] * plan.w_kernel[a];
    for (int64_t i = 0; i < job.tile.rows; ++i)
      to[i * block.lda + k] = load_element<T>(w.data, w.dtype, from + i * plan.w_map);
  }
}

// Neighbouring pixels of one output row that go into one panel.
struct Segment {
  int64_t column, count, at[kSpatialAxes];
};

int split_rows(const Windows& windows, int64_t pixel, int64_t count, Segment* segments) {
  int n = 0;
  const int64_t width = windows.axis[2].out, height = windows.axis[1].out;
  for (int64_t column = 0; column < count;) {
    const int64_t p = pixel + column, x = p % width;
    const int64_t length = std::min(count - column, width - x);
    segments[n++] = {column, length, {p / width / height, p / width % height, x}};
    column += length;
  }
  return n;
}

template <class T>
void copy_strided(T* to, const void* data, DType dtype, int64_t from, int64_t stride, int64_t count) {
  if (stride == 1 && (dtype == DType::f32 || dtype == DType::f64)) {
    const T* source = static_cast<const T*>(data) + from;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) std::memcpy(to + i, source + i, 4 * sizeof(T));
    for (; i < count; ++i) to[i] = source[i];
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = load_element<T>(data, dtype, from + i * stride);
}

// One kernel position under the pixels of a segment; zeros where it lies in the padding.
template <class T>
void gather(const Job<T>& job, const Segment& segment, const Tap& tap, int64_t base, T* to) {
  const Windows& windows = job.plan.windows;
  const WindowAxis& across = windows.axis[2];
  const int64_t z = windows.axis[0].position(segment.at[0], tap.at[0]),
                y = windows.axis[1].position(segment.at[1], tap.at[1]);
  if (!windows.axis[0].inside(z) || !windows.axis[1].inside(y)) {
    std::fill_n(to, segment.count, T(0));
    return;
  }
  const int64_t x = across.position(segment.at[2], tap.at[2]), step = across.stride;
  const int64_t skip = x >= 0 ? 0 : step == 1 ? -x : ceil_div(-x, step);
  const int64_t limit = x >= across.in ? 0 : step == 1 ? across.in - x : (across.in - 1 - x) / step + 1;
  const int64_t begin = std::min(skip, segment.count), end = std::max(begin, std::min(limit, segment.count));
  std::fill(to, to + begin, T(0));
  const int64_t from = base + z * windows.axis[0].in_stride + y * windows.axis[1].in_stride +
                       (x + begin * step) * across.in_stride;
  const TensorArg& input = job.call.inputs[0];
  copy_strided(to + begin, input.data, input.dtype, from, step * across.in_stride, end - begin);
  std::fill(to + end, to + segment.count, T(0));
}

template <class T>
void gather_panel(const Job<T>& job, int64_t column, T* to) {
  const ConvPlan& plan = job.plan;
  const int64_t count = std::min(job.nr, job.tile.pixels - column);
  Segment segments[kWidestPanel];
  const int n = split_rows(plan.windows, job.tile.pixel + column, count, segments);
  const int64_t first = job.tile.batch * plan.x_batch + job.tile.group * plan.group_channels * plan.x_channel;
  Tap tap = tap_at(plan, job.k);
  for (int64_t k = 0; k < job.depth; ++k, advance(plan, tap), to += job.nr) {
    for (int s = 0; s < n; ++s)
      gather(job, segments[s], tap, first + tap.channel * plan.x_channel, to + segments[s].column);
    std::fill(to + count, to + job.nr, T(0));
  }
}

template <class T>
void set_right(const Job<T>& job, GemmBlock<T>& block) {
  T* to = reinterpret_cast<T*>(job.scratch + job.plan.x_offset);
  block.b = to;
  block.ldb = job.nr;
  block.panel_stride = kGemmDepth * job.nr;
  const TensorArg& x = job.call.inputs[0];
  if (job.plan.x_is_matrix && !is_half(x.dtype)) {
    GemmPack<T> pack;
    pack.n_stride = job.plan.windows.axis[2].in_stride;
    pack.from = static_cast<const T*>(x.data) + job.tile.batch * job.plan.x_batch +
                (job.tile.group * job.plan.group_channels + job.k) * job.plan.x_channel +
                job.tile.pixel * pack.n_stride;
    pack.k_stride = job.plan.x_channel;
    pack.depth = job.depth;
    pack.n = job.tile.pixels;
    pack.to = to;
    pack.panel_stride = block.panel_stride;
    run_pack(job.isa, pack);
    return;
  }
  for (int64_t column = 0; column < job.tile.pixels; column += job.nr)
    gather_panel(job, column, to + column / job.nr * block.panel_stride);
}

template <class T>
void run_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  const GemmIsa& isa = gemm_isa(call.isa);
  Job<T> job{call, plan, isa, scratch, tile_at(plan, index), panel_columns<T>(isa)};
  GemmBlock<T> block = {};
  block.m = job.tile.rows;
  block.n = job.tile.pixels;
  block.padded = plan.c_offset >= 0;
  const ConvView& result = plan.operand[plan.operands - 1];
  const int64_t map = job.tile.group * plan.group_maps + job.tile.row;
  block.c = block.padded ? reinterpret_cast<T*>(scratch + plan.c_offset)
                         : static_cast<T*>(call.outputs[0].data) + job.tile.batch * result.batch +
                               map * result.channel + job.tile.pixel;
  block.ldc = block.padded ? plan.column_tile : result.channel;
  do {  // once even for K = 0: the empty sum is stored
    job.depth = std::min(kGemmDepth, plan.k - job.k);
    block.depth = job.depth;
    block.first = job.k == 0;
    set_left(job, block);
    set_right(job, block);
    run_block(isa, block);
    job.k += job.depth;
  } while (job.k < plan.k);
  add_conv_bias(call, plan, job.tile, block.c, block.ldc);
  if (block.padded) store_conv_tile(call, plan, job.tile, block.c, block.ldc, scratch);
}

void choose_tiles(ConvPlan& plan, int64_t mr, int64_t nr) {
  int64_t row_tiles = std::max<int64_t>(1, ceil_div(plan.group_maps, kRowTile));
  int64_t column_tiles = std::max<int64_t>(1, ceil_div(plan.pixels, std::max(nr, kColumnTile / nr * nr)));
  const double others = static_cast<double>(plan.batch) * static_cast<double>(plan.groups);
  for (;;) {
    plan.row_tile =
        std::min(std::max<int64_t>(plan.group_maps, 1), round_up(ceil_div(plan.group_maps, row_tiles), mr));
    plan.row_tile = std::max<int64_t>(plan.row_tile, 1);
    plan.column_tile = std::max(nr, round_up(ceil_div(plan.pixels, column_tiles), nr));
    plan.row_tiles = plan.group_maps == 0 ? 0 : ceil_div(plan.group_maps, plan.row_tile);
    plan.column_tiles = plan.pixels == 0 ? 0 : ceil_div(plan.pixels, plan.column_tile);
    const double cost = 2.0 * static_cast<double>(plan.row_tile) * static_cast<double>(plan.column_tile) *
                        static_cast<double>(plan.k);
    if (others * static_cast<double>(plan.row_tiles * plan.column_tiles) >= kWantedTiles ||
        cost <= kSmallestTile)
      return;
    if (plan.column_tile > nr)
      column_tiles = std::max(column_tiles * 2, plan.column_tiles + 1);
    else if (plan.row_tile > mr)
      row_tiles = std::max(row_tiles * 2, plan.row_tiles + 1);
    else
      return;
  }
}

template <class T>
void prepare_gemm(BoundCall& call, const char* name) {
  ConvPlan plan = plan_conv(call, false, name);
  const GemmIsa& isa = gemm_isa(call.isa);
  const int64_t nr = panel_columns<T>(isa), bytes = sizeof(T);
  choose_tiles(plan, isa.mr, nr);
  int64_t used = 0;
  const auto take = [&](bool wanted, int64_t size) {
    const int64_t at = used;
    if (wanted) used += round_up(size, 64);
    return wanted ? at : -1;
  };
  const bool narrow = is_half(call.inputs[0].dtype);
  const ConvView& result = plan.operand[plan.operands - 1];
  const bool plain = result.collapsed && (result.spatial[2] == 1 || plan.pixels == 1);
  plan.w_offset = take(narrow || !plan.w_dense, plan.row_tile * (kGemmDepth + kPadding) * bytes);
  plan.x_offset = take(true, kGemmDepth * plan.column_tile * bytes);
  plan.c_offset = take(narrow || call.program || !plain, plan.row_tile * plan.column_tile * bytes);
  plan.program_offset =
      take(call.program != nullptr, call.program ? tile_rows_scratch_bytes(*call.program) : 0);
  call.scratch_bytes = used;
  call.tiles = plan.batch * plan.groups * plan.row_tiles * plan.column_tiles;
  call.run = run_tile<T>;
  store_plan(call, plan);
}

bool fits(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty()) return false;
  const size_t rank = problem.inputs[0].sizes.size();
  return problem.inputs[0].dtype == problem.inputs[1].dtype && !asks_tf32(problem.params) && rank >= 3 &&
         rank <= kSpatialAxes + 2;
}

void check_conv_types(const BoundCall& call, const char* name) {
  check_step(call.inputs.size() >= 2, name, "inputs", ">= 2", static_cast<int64_t>(call.inputs.size()));
  check_counts(call, name, 2, kMaxTileOperands + 2, call.params.size(), 0);
  if (!call.program) check_dtype(call.outputs[0], call.inputs[0].dtype, name, "result");
}

}  // namespace

bool can_run_conv_f32(const Problem& problem) {
  return fits(problem) && problem.inputs[0].dtype == DType::f32;
}
bool can_run_conv_half(const Problem& problem) { return fits(problem) && is_half(problem.inputs[0].dtype); }
bool can_run_conv_f64(const Problem& problem) {
  return fits(problem) && problem.inputs[0].dtype == DType::f64;
}

void prepare_conv_f32(BoundCall& call) {
  check_conv_types(call, "conv_f32");
  check_dtype(call.inputs[0], DType::f32, "conv_f32", "x");
  prepare_gemm<float>(call, "conv_f32");
}

void prepare_conv_half(BoundCall& call) {
  check_conv_types(call, "conv_half");
  if (!is_half(call.inputs[0].dtype))
    bad_step("conv_half", "dtype of x", "f16 or bf16", std::string(dtype_name(call.inputs[0].dtype)));
  prepare_gemm<float>(call, "conv_half");
}

void prepare_conv_f64(BoundCall& call) {
  check_conv_types(call, "conv_f64");
  check_dtype(call.inputs[0], DType::f64, "conv_f64", "x");
  check_step(call.program == nullptr, "conv_f64", "epilogue", "none", 1);
  prepare_gemm<double>(call, "conv_f64");
}

}  // namespace aicf
