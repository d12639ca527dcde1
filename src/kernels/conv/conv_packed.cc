// Convolution with packed weights: rows of the contraction are output positions and are read where they lie
// if the channels of x are neighbours in memory (channels-last), otherwise through a copy of one group of
// rows.
#include <algorithm>
#include <cstring>

#include "kernels/conv/conv_plan.h"
#include "kernels/conv/conv_rows_of.h"
#include "kernels/conv/conv_store.h"
#include "kernels/conv/pack_conv_w.h"
#include "kernels/kernel.h"
#include "kernels/matmul/gemm_types.h"
#include "kernels/matmul/step_check.h"
#include "kernels/tile/tile_rows.h"

namespace aicf {
namespace {

constexpr const char* kName = "conv_f32_packed";
constexpr int64_t kColumnTile = 192;  // 256 × 192 × 4 bytes of weights: a fifth of a 1 MiB L2 cache
constexpr int64_t kRowTile = 128;
constexpr int64_t kWantedTiles = 24;
constexpr double kSmallestTile = 2e6;  // flops, about 20 µs of one core
constexpr int64_t kShortSegment = 8;   // shorter segments cost more than copying the row

// First input position under the window of an output position.
struct Corner {
  int64_t at[kSpatialAxes];
  int64_t offset;  // elements of x; may lie outside
  int64_t inside;  // 1 if the whole window lies in the input
  int64_t across;  // 1 if it does along the last axis
};

struct Scratch {
  Corner* corners;     // of the tile's pixels
  float* zeros;        // what padding reads: kGemmDepth zeros
  float* copies;       // kConvRows rows of kGemmDepth steps
  const float** rows;  // kGemmDepth × kConvRows
  int64_t* lengths;    // kGemmDepth
  float* bias;         // of the tile's columns
  float* c;
  std::byte* program;
};

Scratch scratch_of(const ConvPlan& plan, std::byte* at) {
  Scratch scratch;
  const auto take = [&](int64_t bytes) {
    std::byte* taken = at;
    at += round_up(bytes, 64);
    return taken;
  };
  scratch.corners = reinterpret_cast<Corner*>(take(plan.row_tile * static_cast<int64_t>(sizeof(Corner))));
  scratch.zeros = reinterpret_cast<float*>(take(kGemmDepth * 4));
  scratch.copies = reinterpret_cast<float*>(take(kConvRows * kGemmDepth * 4));
  scratch.rows = reinterpret_cast<const float**>(take(kGemmDepth * kConvRows * 8));
  scratch.lengths = reinterpret_cast<int64_t*>(take(kGemmDepth * 8));
  scratch.bias = reinterpret_cast<float*>(take(plan.column_tile * 4));
  scratch.c = reinterpret_cast<float*>(take(plan.row_tile * plan.column_tile * 4));
  scratch.program = at;
  return scratch;
}

int64_t scratch_bytes(const ConvPlan& plan) {
  std::byte base{};
  const Scratch scratch = scratch_of(plan, &base);
  return scratch.program - &base;
}

struct Job {
  const BoundCall& call;
  const ConvPlan& plan;
  const ConvRowsIsa& isa;
  Scratch scratch;
  ConvTile tile;   // row, rows: output channels; pixel, pixels
  const float* x;  // the group's channels in the batch
};

ConvTile tile_at(const ConvPlan& plan, int64_t index) {
  ConvTile tile;
  // Pixels run fastest: tiles that run at the same time share their weights.
  tile.pixel = index % plan.column_tiles * plan.row_tile;
  index /= plan.column_tiles;
  tile.row = index % plan.row_tiles * plan.column_tile;
  index /= plan.row_tiles;
  tile.group = index % plan.groups;
  tile.batch = index / plan.groups;
  tile.rows = std::min(plan.column_tile, plan.group_maps - tile.row);
  tile.pixels = std::min(plan.row_tile, plan.pixels - tile.pixel);
  return tile;
}

void find_corners(const Job& job) {
  const WindowAxis* axis = job.plan.windows.axis;
  if (job.plan.x_is_matrix) {  // `at` is asked for windows on the border only
    for (int64_t i = 0; i < job.tile.pixels; ++i) {
      Corner& corner = job.scratch.corners[i];
      corner.offset = (job.tile.pixel + i) * axis[2].in_stride;
      corner.inside = corner.across = 1;
    }
    return;
  }
  int64_t x = job.tile.pixel % axis[2].out, y = job.tile.pixel / axis[2].out % axis[1].out,
          z = job.tile.pixel / axis[2].out / axis[1].out;
  for (int64_t i = 0; i < job.tile.pixels; ++i) {
    const int64_t at[kSpatialAxes] = {axis[0].position(z, 0), axis[1].position(y, 0), axis[2].position(x, 0)};
    Corner& corner = job.scratch.corners[i];
    corner.offset = 0;
    corner.inside = 1;
    for (int a = 0; a < kSpatialAxes; ++a) {
      corner.at[a] = at[a];
      corner.offset += at[a] * axis[a].in_stride;
      const int64_t last = at[a] + (axis[a].kernel - 1) * axis[a].dilation;
      corner.across = at[a] >= 0 && last < axis[a].in;
      corner.inside &= corner.across;
    }
    if (++x < axis[2].out) continue;
    x = 0;
    if (++y < axis[1].out) continue;
    y = 0;
    ++z;
  }
}

// A kernel position on its way through the kernel: distances from the corner, in positions and in elements of
// x.
struct Tap {
  int64_t index[kSpatialAxes], at[kSpatialAxes], offset;
};

void set_distances(const ConvPlan& plan, Tap& tap) {
  tap.offset = 0;
  for (int a = 0; a < kSpatialAxes; ++a) {
    tap.at[a] = tap.index[a] * plan.windows.axis[a].dilation;
    tap.offset += tap.at[a] * plan.windows.axis[a].in_stride;
  }
}

Tap tap_at(const ConvPlan& plan, int64_t position) {
  Tap tap;
  for (int a = kSpatialAxes - 1; a >= 0; --a) {
    tap.index[a] = position % plan.windows.axis[a].kernel;
    position /= plan.windows.axis[a].kernel;
  }
  set_distances(plan, tap);
  return tap;
}

void advance(const ConvPlan& plan, Tap& tap, int64_t positions) {
  tap.index[2] += positions;
  for (int a = kSpatialAxes - 1; a > 0 && tap.index[a] == plan.windows.axis[a].kernel; --a) {
    tap.index[a] = 0;
    ++tap.index[a - 1];
  }
  set_distances(plan, tap);
}

// Channel 0 of x under a tap, or null in the padding.
const float* under(const Job& job, const Corner& corner, const Tap& tap) {
  bool inside = corner.inside != 0;
  if (!inside) {
    inside = true;
    for (int a = 0; a < kSpatialAxes; ++a)
      inside = inside && job.plan.windows.axis[a].inside(corner.at[a] + tap.at[a]);
  }
  return inside ? job.x + corner.offset + tap.offset : nullptr;
}

// How many kernel positions of the last axis a segment of these rows may cover: their channels must follow
// one another in memory, and none may lie in the padding.
int64_t positions_in_line(const Job& job, int64_t first, int64_t count) {
  const WindowAxis& across = job.plan.windows.axis[2];
  const bool dense = job.plan.x_channel == 1 && across.dilation * across.in_stride == job.plan.group_channels;
  if (!dense) return 1;
  for (int64_t i = first; i < first + count; ++i)
    if (!job.scratch.corners[i].across) return 1;
  return across.kernel;
}

// Steps [k, k + depth) of `count` rows as segments that end with a kernel position, or with `positions` of
// them.
int64_t point_rows(const Job& job, int64_t first, int64_t count, int64_t positions, int64_t k,
                   int64_t depth) {
  const int64_t unit = job.plan.group_channels * positions;
  if (unit == job.plan.k) {  // one segment serves all of K
    const Tap tap = {};
    for (int64_t i = 0; i < count; ++i) {
      const float* at = under(job, job.scratch.corners[first + i], tap);
      job.scratch.rows[i] = at == nullptr ? job.scratch.zeros : at + k;
    }
    job.scratch.lengths[0] = depth;
    return 1;
  }
  Tap tap = tap_at(job.plan, k / unit * positions);
  int64_t segments = 0, skipped = k % unit;
  for (int64_t done = 0; done < depth; ++segments) {
    const float** rows = job.scratch.rows + segments * kConvRows;
    for (int64_t i = 0; i < count; ++i) {
      const float* at = under(job, job.scratch.corners[first + i], tap);
      rows[i] = at == nullptr ? job.scratch.zeros : at + skipped;
    }
    const int64_t length = std::min(unit - skipped, depth - done);
    job.scratch.lengths[segments] = length;
    done += length;
    skipped = 0;
    if (done < depth) advance(job.plan, tap, positions);
  }
  return segments;
}

void copy_floats(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) std::memcpy(to + i, from + i, 4 * sizeof(float));
  for (; i < count; ++i) to[i] = from[i];
}

// Kernel positions along the last axis for one corner, all inside the input: [position][channel] from any
// strides.
void copy_positions(const Job& job, const float* from, int64_t positions, float* to) {
  const ConvPlan& plan = job.plan;
  const int64_t step = plan.windows.axis[2].dilation * plan.windows.axis[2].in_stride;
  const int64_t channels = plan.group_channels;
  if (plan.x_channel == 1 && step == channels) return copy_floats(from, positions * channels, to);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const float* at = from + channel * plan.x_channel;
    float* out = to + channel;
    for (int64_t i = 0; i < positions; ++i) out[i * channels] = at[i * step];
  }
}

void copy_one(const Job& job, const float* from, int64_t channel, int64_t count, float* to) {
  if (from == nullptr) {
    std::fill_n(to, count, 0.0f);
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = from[(channel + i) * job.plan.x_channel];
}

void copy_row(const Job& job, const Corner& corner, int64_t k, int64_t depth, float* to) {
  const ConvPlan& plan = job.plan;
  const int64_t channels = plan.group_channels, line = channels * plan.windows.axis[2].kernel;
  Tap tap = tap_at(plan, k / channels);
  int64_t channel = k % channels;
  for (int64_t done = 0; done < depth;) {
    const float* from = under(job, corner, tap);
    const bool whole_line = corner.inside && channel == 0 && tap.index[2] == 0 && depth - done >= line;
    const int64_t positions = whole_line ? plan.windows.axis[2].kernel : 1;
    int64_t count = line;
    if (whole_line) {
      copy_positions(job, from, positions, to + done);
    } else {
      count = std::min(channels - channel, depth - done);
      copy_one(job, from, channel, count, to + done);
    }
    done += count;
    channel = 0;
    if (done < depth) advance(plan, tap, positions);
  }
}

int64_t copy_rows(const Job& job, int64_t first, int64_t count, int64_t k, int64_t depth) {
  for (int64_t i = 0; i < count; ++i) {
    float* to = job.scratch.copies + i * kGemmDepth;
    copy_row(job, job.scratch.corners[first + i], k, depth, to);
    job.scratch.rows[i] = to;
  }
  job.scratch.lengths[0] = depth;
  return 1;
}

// Rows in place where their segments are long enough, else copied.
int64_t find_rows(const Job& job, int64_t first, int64_t count, int64_t k, int64_t depth) {
  const int64_t positions = positions_in_line(job, first, count);
  const bool in_place = job.plan.x_channel == 1 || job.plan.group_channels == 1;
  if (in_place && positions * job.plan.group_channels >= kShortSegment)
    return point_rows(job, first, count, positions, k, depth);
  return copy_rows(job, first, count, k, depth);
}

void add_bias(const Job& job, int64_t first, int64_t count) {
  if (!job.plan.has_bias) return;
  job.isa.add_bias(job.scratch.c + first * job.plan.column_tile, job.plan.column_tile, count, job.tile.rows,
                   job.scratch.bias);
}

void gather_bias(const Job& job) {
  if (!job.plan.has_bias) return;
  const int64_t stride = job.plan.bias_stride;
  const float* bias = static_cast<const float*>(job.call.inputs[2].data) +
                      (job.tile.group * job.plan.group_maps + job.tile.row) * stride;
  for (int64_t j = 0; j < job.tile.rows; ++j) job.scratch.bias[j] = bias[j * stride];
}

// One block of k for all rows of the tile; after the last one rows are finished while they are in the L1
// cache.
void run_steps(const Job& job, int64_t k, int64_t depth, ConvRowStore& store) {
  const ConvPlan& plan = job.plan;
  const bool last = k + depth >= plan.k;
  ConvRowsBlock block;
  block.rows = job.scratch.rows;
  block.lengths = job.scratch.lengths;
  block.b = static_cast<const float*>(job.call.inputs[1].data) +
            packed_conv_group(job.tile.group, plan.group_maps, plan.k) + job.tile.row * plan.k +
            k * job.isa.nr;
  block.panel_stride = plan.k * job.isa.nr;
  block.ldc = plan.column_tile;
  block.n = job.tile.rows;
  block.first = k == 0;
  const int64_t groups = ceil_div(job.tile.pixels, job.isa.mr);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * job.tile.pixels / groups;
    block.m = (g + 1) * job.tile.pixels / groups - first;
    block.c = job.scratch.c + first * block.ldc;
    block.segments = depth == 0 ? 0 : find_rows(job, first, block.m, k, depth);
    if (last) store.prefetch(first, block.m);
    job.isa.run(block);
    if (!last) continue;
    add_bias(job, first, block.m);
    store.run(first, block.m);
  }
}

void run_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  Job job{call, plan, conv_rows_isa(call.isa), scratch_of(plan, scratch), tile_at(plan, index), nullptr};
  job.x = static_cast<const float*>(call.inputs[0].data) + job.tile.batch * plan.x_batch +
          job.tile.group * plan.group_channels * plan.x_channel;
  find_corners(job);
  gather_bias(job);
  std::fill_n(job.scratch.zeros, kGemmDepth, 0.0f);
  ConvRowStore store(call, plan, job.tile, job.scratch.c, plan.column_tile, job.scratch.program);
  int64_t k = 0;
  do {  // once even for K = 0: the empty sum is stored
    const int64_t depth = std::min(kGemmDepth, plan.k - k);
    run_steps(job, k, depth, store);
    k += depth;
  } while (k < plan.k);
}

void choose_tiles(ConvPlan& plan, int64_t mr, int64_t nr) {
  int64_t pixel_tiles = std::max<int64_t>(1, ceil_div(plan.pixels, kRowTile));
  int64_t map_tiles = std::max<int64_t>(1, ceil_div(plan.group_maps, std::max(nr, kColumnTile / nr * nr)));
  const double others = static_cast<double>(plan.batch) * static_cast<double>(plan.groups);
  for (;;) {
    plan.row_tile =
        std::max<int64_t>(1, std::min(plan.pixels, round_up(ceil_div(plan.pixels, pixel_tiles), mr)));
    plan.column_tile = std::max(nr, round_up(ceil_div(plan.group_maps, map_tiles), nr));
    plan.column_tiles = plan.pixels == 0 ? 0 : ceil_div(plan.pixels, plan.row_tile);
    plan.row_tiles = plan.group_maps == 0 ? 0 : ceil_div(plan.group_maps, plan.column_tile);
    const double cost = 2.0 * static_cast<double>(plan.row_tile) * static_cast<double>(plan.column_tile) *
                        static_cast<double>(plan.k);
    if (others * static_cast<double>(plan.row_tiles * plan.column_tiles) >= kWantedTiles ||
        cost <= kSmallestTile)
      return;
    // Many rows share the panels they stream: rather fewer columns than fewer rows.
    if (plan.column_tile > nr && 2 * plan.column_tile > plan.row_tile)
      map_tiles = std::max(map_tiles * 2, plan.row_tiles + 1);
    else if (plan.row_tile > mr)
      pixel_tiles = std::max(pixel_tiles * 2, plan.column_tiles + 1);
    else if (plan.column_tile > nr)
      map_tiles = std::max(map_tiles * 2, plan.row_tiles + 1);
    else
      return;
  }
}

}  // namespace

bool can_run_conv_f32_packed(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty()) return false;
  const size_t rank = problem.inputs[0].sizes.size();
  return problem.inputs[0].dtype == DType::f32 && problem.inputs[1].dtype == DType::u8 &&
         problem.inputs[1].sizes.size() == 1 && rank >= 3 && rank <= kSpatialAxes + 2;
}

void prepare_conv_f32_packed(BoundCall& call) {
  check_counts(call, kName, 2, kMaxTileOperands + 2, call.params.size(), 0);
  check_dtype(call.inputs[0], DType::f32, kName, "x");
  if (!call.program) check_dtype(call.outputs[0], DType::f32, kName, "result");
  ConvPlan plan = plan_conv(call, true, kName);
  const TensorArg& w = call.inputs[1];
  check_dtype(w, DType::u8, kName, "packed w");
  check_rank(w, 1, kName, "packed w");
  const int64_t bytes = packed_conv_w_bytes(plan.groups, checked_mul(plan.groups, plan.group_maps), plan.k);
  check_step(w.sizes[0] >= bytes && (w.strides[0] == 1 || bytes <= 1), kName, "packed bytes",
             ">= " + std::to_string(bytes) + ", dense", w.sizes[0]);
  const ConvRowsIsa& isa = conv_rows_isa(call.isa);
  choose_tiles(plan, isa.mr, isa.nr);
  call.scratch_bytes =
      scratch_bytes(plan) + (call.program != nullptr ? tile_rows_scratch_bytes(*call.program) : 0);
  call.tiles = plan.batch * plan.groups * plan.row_tiles * plan.column_tiles;
  call.run = run_tile;
  store_plan(call, plan);
}

}  // namespace aicf
