// Convolution with packed weights: rows of the contraction are output positions and are read where they lie
// if the channels of x are neighbours in memory (channels-last), otherwise through a copy of one group of
// rows.
#include <algorithm>

#include "kernels/common/kernel.h"
#include "kernels/common/step_check.h"
#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/conv/cpu/conv_rows.h"
#include "kernels/conv/cpu/conv_store.h"
#include "kernels/conv/cpu/pack_conv_w.h"
#include "kernels/matmul/cpu/gemm.h"
#include "kernels/matmul/cpu/gemm_next.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {
namespace {

constexpr const char* kPackedName = "conv_f32_packed";
// Bytes of the weights that a tile goes through for every group of rows: parts of a 1 MiB L2 cache, into
// which the next ones come at the same time if there are several blocks of k.
constexpr int64_t kWeights = 448 << 10, kWeightsOfBlocks = 288 << 10;
constexpr int64_t kPackedRowTile = 448, kRowTileOfBlocks = 224;  // the sums of the latter wait between blocks
constexpr int64_t kWantedPackedTiles = 12;
constexpr double kSmallestPackedTile = 2e6;  // flops, about 20 µs of one core
constexpr int64_t kNear = 1 << 20;           // bytes: smaller tensors are expected in L2 caches
constexpr int64_t kFewestGroups = 3;         // of rows in a tile: they share the panels that it streams
constexpr int64_t kTilesOfWorker = 2;        // at least, where the weights stream for every tile anew
// Fewer pixels are not split: each worker would stream all weights for a few rows. Tiles are this many panels
// wide then.
constexpr int64_t kFewPixels = 96, kNarrowTile = 3;

struct Scratch {
  std::byte* rows;  // of ConvRows
  float* bias;      // of the tile's columns
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
  scratch.rows = take(ConvRows::scratch_bytes(plan));
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

struct PackedJob {
  const BoundCall& call;
  const ConvPlan& plan;
  const GemmIsa& isa;
  Scratch scratch;
  ConvTile tile;       // row, rows: output channels; pixel, pixels
  FirstWeights after;  // what is read after this tile; no pieces: unknown
};

int64_t first_pixel(const ConvPlan& plan, int64_t tile) { return tile * plan.pixels / plan.column_tiles; }

// First output channel of a tile: that of a panel, except that tiles without a split of the pixels halve
// evenly; the first of a half and the last of the other begin or end there, wherever panels do.
int64_t first_map(const ConvPlan& plan, int64_t nr, int64_t tile) {
  if (plan.splits_pixels) return std::min(tile * plan.column_tile, plan.group_maps);
  const int64_t units = ceil_div(plan.group_maps, kFinishWidth);
  const auto share = [&](int64_t tiles) {
    return tiles * units / std::max<int64_t>(plan.row_tiles, 1) * kFinishWidth;
  };
  const int64_t half = share(plan.row_tiles / 2), at = (share(tile) + nr / 2) / nr * nr;
  if (2 * tile == plan.row_tiles) return half;
  return std::min(2 * tile < plan.row_tiles ? std::min(at, half) : std::max(at, half), plan.group_maps);
}

// Of output channels, the last tile those that are left.
int64_t map_count(const ConvPlan& plan, int64_t nr, int64_t tile) {
  const int64_t end = tile + 1 == plan.row_tiles ? plan.group_maps : first_map(plan, nr, tile + 1);
  return end - first_map(plan, nr, tile);
}

// Workers begin with neighbouring tiles. Each half of the pixels comes after the other, so that two workers
// share weights but no pixels and each reads what it wrote; within a half tiles that share weights are
// neighbours.
ConvTile packed_tile_at(const ConvPlan& plan, int64_t nr, int64_t index) {
  ConvTile tile;
  const auto take = [&](int64_t count) {
    const int64_t at = index % count;
    index /= count;
    return at;
  };
  const int64_t halves = plan.column_tiles % 2 == 0 ? 2 : 1, per_half = plan.column_tiles / halves;
  const int64_t in_half = take(per_half);
  const int64_t map_tile = take(plan.row_tiles);
  tile.row = first_map(plan, nr, map_tile);
  tile.group = take(plan.groups);
  const int64_t pixel_tile = take(halves) * per_half + in_half;
  tile.batch = index;
  tile.rows = map_count(plan, nr, map_tile);
  tile.pixel = first_pixel(plan, pixel_tile);
  tile.pixels = first_pixel(plan, pixel_tile + 1) - tile.pixel;
  return tile;
}

// The bias of the tile's channels, or null.
const float* gather_bias(const PackedJob& job) {
  if (!job.plan.has_bias) return nullptr;
  const int64_t stride = job.plan.bias_stride;
  const float* bias = static_cast<const float*>(job.call.inputs[2].data) +
                      (job.tile.group * job.plan.group_maps + job.tile.row) * stride;
  for (int64_t j = 0; j < job.tile.rows; ++j) job.scratch.bias[j] = bias[j * stride];
  return job.scratch.bias;
}

// Output channel `map` of the tile's group at step k; those behind it in its panel follow.
const float* weights_at(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, int64_t map,
                        int64_t k) {
  const int64_t nr = conv_gemm_isa(call.isa, plan.group_maps).nr_f32, skipped = map % nr;
  return static_cast<const float*>(call.inputs[1].data) +
         packed_conv_group(tile.group, plan.group_maps, plan.k) + (map - skipped) * plan.k +
         k * packed_panel_width(nr, map, plan.group_maps) + skipped;
}

FirstWeights weights_of(const BoundCall& call, const ConvPlan& plan, const ConvTile& tile, int64_t k) {
  const int64_t nr = conv_gemm_isa(call.isa, plan.group_maps).nr_f32,
                bytes = nr * static_cast<int64_t>(sizeof(float));
  return {reinterpret_cast<const std::byte*>(weights_at(call, plan, tile, tile.row, k)),
          ceil_div(tile.rows, nr), std::min(kGemmDepth, plan.k - k) * bytes, plan.k * bytes};
}

FirstWeights first_weights(const BoundCall& call, int64_t tile) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  return weights_of(call, plan, packed_tile_at(plan, conv_gemm_isa(call.isa, plan.group_maps).nr_f32, tile),
                    0);
}

// Next come the following steps of k, then the weights of the next tile, or those of the next call.
void set_next(const PackedJob& job, int64_t k, GemmBlock<float>& block) {
  const FirstWeights next = k < job.plan.k ? weights_of(job.call, job.plan, job.tile, k) : job.after;
  if (next.pieces > 0 && next.from != reinterpret_cast<const std::byte*>(block.b))
    fetch_next(next, job.isa.nr_f32, block);
}

// One block of k for all rows of the tile; after the last one rows are finished while they are in registers
// or in the L1 cache.
void run_steps(const PackedJob& job, int64_t k, int64_t depth, const ConvRows& rows, ConvRowStore& store) {
  const bool last = k + depth >= job.plan.k;
  GemmBlock<float> block = {};
  const int64_t nr = job.isa.nr_f32, last_panel = job.tile.row + (job.tile.rows - 1) / nr * nr;
  block.b = weights_at(job.call, job.plan, job.tile, job.tile.row, k);
  block.ldb = nr;
  block.last_b = weights_at(job.call, job.plan, job.tile, last_panel, k);
  block.last_ldb = packed_panel_width(nr, last_panel, job.plan.group_maps);
  block.panel_stride = job.plan.k * nr;
  block.ldc = job.plan.column_tile;
  block.n = job.tile.rows;
  block.tile_rows = job.tile.pixels;
  block.depth = depth;
  block.first = k == 0;
  block.padded = true;
  block.finish = last ? store.finish() : nullptr;
  set_next(job, k + depth, block);
  const int64_t groups = ceil_div(job.tile.pixels, job.isa.mr);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * job.tile.pixels / groups;
    block.m = (g + 1) * job.tile.pixels / groups - first;
    block.c = job.scratch.c + first * block.ldc;
    block.tile_row = first;
    rows.find(first, block);
    if (job.plan.fetches_x) {  // rows lie behind each other
      block.ahead = reinterpret_cast<const char*>(block.rows[0] + block.m * depth);
      block.ahead_bytes = block.m * depth * static_cast<int64_t>(sizeof(float));
    }
    const bool stores = last && block.finish == nullptr;
    if (stores) store.prefetch(first, block.m);
    run_block(job.isa, block);
    if (stores) store.run(first, block.m);
  }
}

void run_panels(const BoundCall& call, const ConvTile& tile, const FirstWeights& after, std::byte* scratch) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  const PackedJob job{call, plan, conv_gemm_isa(call.isa, plan.group_maps), scratch_of(plan, scratch),
                      tile, after};
  const float* x = static_cast<const float*>(call.inputs[0].data) + job.tile.batch * plan.x_batch +
                   job.tile.group * plan.group_channels * plan.x_channel;
  ConvRows rows(plan, job.tile, x, job.scratch.rows);
  ConvRowStore store(call, plan, job.tile, job.scratch.c, plan.column_tile, gather_bias(job),
                     job.scratch.program);
  int64_t k = 0;
  do {  // once even for K = 0: the empty sum is stored
    const int64_t depth = std::min(kGemmDepth, plan.k - k);
    rows.set_steps(k, depth);
    run_steps(job, k, depth, rows, store);
    k += depth;
  } while (k < plan.k);
}

// Micro-kernels begin with a panel's first column: what a tile has of one that it shares goes before.
void run_packed_tile(const BoundCall& call, int64_t index, std::byte* scratch) {
  const ConvPlan& plan = stored_plan<ConvPlan>(call);
  const int64_t nr = conv_gemm_isa(call.isa, plan.group_maps).nr_f32;
  const FirstWeights after = weights_after(call, index);
  ConvTile tile = packed_tile_at(plan, nr, index);
  const int64_t shared = std::min(tile.rows, round_up(tile.row, nr) - tile.row);
  if (shared > 0 && shared < tile.rows) {
    ConvTile part = tile;
    part.rows = shared;
    tile.row += shared;
    tile.rows -= shared;
    run_panels(call, part, weights_of(call, plan, tile, 0), scratch);
  }
  run_panels(call, tile, after, scratch);
}

int64_t most_columns(const ConvPlan& plan, int64_t nr) {
  const int64_t bytes = plan.k > kGemmDepth ? kWeightsOfBlocks : kWeights;
  const int64_t step =
      std::max<int64_t>(1, std::min(plan.k, kGemmDepth)) * static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(1, bytes / step / nr) * nr;
}

// Worth splitting, but not by pixels.
bool has_few_pixels(const ConvPlan& plan, int64_t nr) {
  const double tiles = static_cast<double>(plan.batch) * static_cast<double>(plan.groups);
  const double cost = 2.0 * static_cast<double>(plan.pixels) * static_cast<double>(plan.group_maps) *
                      static_cast<double>(plan.k);
  return plan.pixels <= kFewPixels && plan.group_maps > kNarrowTile * nr && tiles < kWantedPackedTiles &&
         cost > 2 * kSmallestPackedTile;
}

void choose_narrow_tiles(ConvPlan& plan, int64_t workers, int64_t nr) {
  plan.column_tiles = 1;
  plan.row_tile = plan.pixels;
  const int64_t wanted = std::min(kTilesOfWorker * workers, plan.group_maps / nr);
  plan.row_tiles = round_up(std::max(wanted, ceil_div(plan.group_maps, kNarrowTile * nr)), 2);
  plan.column_tile = 0;
  for (int64_t tile = 0; tile < plan.row_tiles; ++tile)
    plan.column_tile = std::max(plan.column_tile, round_up(map_count(plan, nr, tile), nr));
}

// Tiles for a few workers that halve evenly. Wide ones: a group of rows is found once for all columns of its
// tile and stays in the L1 cache meanwhile. Many rows share the weights that they stream.
void choose_packed_tiles(ConvPlan& plan, int64_t workers, int64_t mr, int64_t nr) {
  const double others = static_cast<double>(plan.batch) * static_cast<double>(plan.groups);
  plan.splits_pixels = !has_few_pixels(plan, nr);
  if (!plan.splits_pixels) return choose_narrow_tiles(plan, workers, nr);
  const int64_t rows = plan.k > kGemmDepth ? kRowTileOfBlocks : kPackedRowTile;
  plan.column_tiles = std::min(plan.pixels, round_up(ceil_div(plan.pixels, rows), 2));
  int64_t map_tiles = std::max<int64_t>(1, ceil_div(plan.group_maps, most_columns(plan, nr)));
  const int64_t wanted = plan.k > kGemmDepth ? kTilesOfWorker * workers : kWantedPackedTiles;
  for (;;) {
    plan.row_tile = plan.pixels == 0 ? 1 : ceil_div(plan.pixels, plan.column_tiles);
    plan.column_tile = std::max(nr, round_up(ceil_div(plan.group_maps, map_tiles), nr));
    plan.row_tiles = plan.group_maps == 0 ? 0 : ceil_div(plan.group_maps, plan.column_tile);
    const double cost = 2.0 * static_cast<double>(plan.row_tile) * static_cast<double>(plan.column_tile) *
                        static_cast<double>(plan.k);
    if (others * static_cast<double>(plan.row_tiles * plan.column_tiles) >= wanted ||
        cost <= kSmallestPackedTile)
      return;
    const bool columns_left = plan.column_tile > nr, rows_left = plan.row_tile >= kFewestGroups * 2 * mr;
    if (rows_left)
      plan.column_tiles *= 2;
    else if (columns_left)
      map_tiles = std::max(map_tiles * 2, plan.row_tiles + 1);
    else
      return;
  }
}

// Fetching what is in a near cache only costs time.
void choose_fetches(ConvPlan& plan) {
  const WindowAxis& across = plan.windows.axis[2];
  const bool rows_are_dense = plan.x_is_matrix && plan.x_channel == 1 && across.in_stride == plan.k;
  const auto is_far = [&](int64_t channels, int64_t pixels) {
    return static_cast<double>(plan.groups * channels) * static_cast<double>(pixels) * sizeof(float) > kNear;
  };
  plan.fetches_x =
      rows_are_dense && plan.k <= kGemmDepth && is_far(plan.group_channels, plan.windows.in_count());
  plan.fetches_out = is_far(plan.group_maps, plan.pixels);
}

}  // namespace

bool can_run_conv_f32_packed(const Problem& problem) {
  if (problem.inputs.size() < 2 || problem.outputs.empty()) return false;
  const size_t rank = problem.inputs[0].sizes.size();
  return problem.inputs[0].dtype == DType::f32 && problem.inputs[1].dtype == DType::u8 &&
         problem.inputs[1].sizes.size() == 1 && rank >= 3 && rank <= kSpatialAxes + 2;
}

void prepare_conv_f32_packed(BoundCall& call) {
  check_counts(call, kPackedName, 2, kMaxTileOperands + 2, call.params.size(), 0);
  check_dtype(call.inputs[0], DType::f32, kPackedName, "x");
  if (!call.program) check_dtype(call.outputs[0], DType::f32, kPackedName, "result");
  ConvPlan plan = plan_conv(call, true, kPackedName);
  const TensorArg& w = call.inputs[1];
  check_dtype(w, DType::u8, kPackedName, "packed w");
  check_rank(w, 1, kPackedName, "packed w");
  const int64_t bytes = packed_conv_w_bytes(plan.groups, checked_mul(plan.groups, plan.group_maps), plan.k);
  check_step(w.sizes[0] >= bytes && (w.strides[0] == 1 || bytes <= 1), kPackedName, "packed bytes",
             ">= " + std::to_string(bytes) + ", dense", w.sizes[0]);
  const GemmIsa& isa = conv_gemm_isa(call.isa, plan.group_maps);
  choose_packed_tiles(plan, call.workers, isa.mr, isa.nr_f32);
  choose_fetches(plan);
  call.scratch_bytes =
      scratch_bytes(plan) + (call.program != nullptr ? tile_rows_scratch_bytes(*call.program) : 0);
  call.tiles = plan.batch * plan.groups * plan.row_tiles * plan.column_tiles;
  call.run = run_packed_tile;
  call.first_weights = first_weights;
  store_plan(call, plan);
}

}  // namespace aicf
