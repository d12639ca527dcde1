#include "kernels/attention/cuda/attention_split.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention/cuda/attention_simt_tiles.h"
#include "kernels/attention/cuda/attention_tiles.h"

namespace aicf {
namespace {

constexpr int kTileRows = 16, kWarps = 4;

double all_kv_heads(const AttentionSizes& sizes) {
  return sizes.most_batch * sizes.most_heads / sizes.most_group;
}
double row_tiles(const AttentionSizes& sizes) {
  return all_kv_heads(sizes) * std::ceil(sizes.most_group * sizes.most_queries / kTileRows);
}

// Of a multiprocessor. The compiler is told (split_blocks_held), since for copies of odd columns it would
// keep 168 registers of which it needs 120.
int resident_blocks(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionPlan& plan) {
  // Results of as many columns, and what else the loop over tiles keeps.
  const int registers =
      static_cast<int>(std::min<int64_t>(40 + padded_columns(std::max(sizes.depth, sizes.value_depth)), 255));
  // Four columns of a row with its maximum and sum, which a cluster's blocks send each other.
  constexpr int64_t kSentBytes = 24;
  const int64_t sent =
      plan.way.cluster > 1 ? kTileRows * padded_columns(sizes.value_depth) / 4 * kSentBytes : 0;
  const int64_t bytes = attention_shared_bytes(problem, sizes, plan.way, plan.stages) + sent;
  return resident_attention_blocks(problem.arch, kWarps, bytes, registers);
}

// What memory and, for all tiles of rows, the L2 cache take to give the keys and values.
double memory_cycles(const AttentionSizes& sizes) {
  constexpr double kMemory = 18, kCache = 36;  // bytes a cycle for each multiprocessor
  const double bytes = 2 * split_keys(sizes) * static_cast<double>(sizes.depth + sizes.value_depth);
  return std::max(all_kv_heads(sizes) * bytes / kMemory, row_tiles(sizes) * bytes / kCache) /
         sizes.multiprocessors;
}

// What a block waits for, and computes, of one tile.
struct TileCycles {
  double wait, work;
};
TileCycles tile_cycles(const AttentionSizes& sizes, int keys) {
  constexpr double kLatency = 1500, kCopied = 40, kTile = 400, kProducts = 450;
  const double columns = static_cast<double>(sizes.depth + sizes.value_depth) * keys;
  return {kLatency + 2 * columns / kCopied, kTile + kProducts * columns / (64 * 256)};
}

double tiles_of_block(const AttentionSizes& sizes, const AttentionPlan& plan) {
  return std::ceil(split_keys(sizes) / (plan.way.keys * split_blocks(sizes, plan)));
}

}  // namespace

int most_split_keys(const AttentionSizes& sizes) {
  return std::max(sizes.depth, sizes.value_depth) > 128 ? 64 : 128;
}

double split_keys(const AttentionSizes& sizes) {
  return std::min(sizes.most_keys, seen_keys(sizes, sizes.most_queries) + most_split_keys(sizes) - 1);
}

bool is_single_tile(const AttentionSizes& sizes, const AttentionWay& way) {
  return sizes.most_keys <= static_cast<double>(way.keys);
}

double split_blocks(const AttentionSizes& sizes, const AttentionPlan& plan) {
  if (plan.way.cluster > 0) return plan.way.cluster;
  return std::max(1.0, std::ceil(split_keys(sizes) / (plan.way.keys * plan.tiles)));
}

int split_blocks_held(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionPlan& plan) {
  const double all = std::ceil(row_tiles(sizes) * split_blocks(sizes, plan) / sizes.multiprocessors);
  return static_cast<int>(std::clamp<double>(resident_blocks(problem, sizes, plan), 1.0, std::max(all, 1.0)));
}

void set_split(AttentionPlan& plan, const CudaProblem& problem, const AttentionSizes& sizes) {
  const AttentionWay& way = plan.way;
  plan.warps = kWarps;
  if (is_single_tile(sizes, way)) return;
  const double seen = split_keys(sizes);
  if (way.cluster == 0) plan.tiles = seen <= 2048 ? 1 : seen <= 8192 ? 4 : 8;
  // More stages than two where they leave room for as many blocks as there are.
  constexpr int kMostStages = 6;
  const double tiles = tiles_of_block(sizes, plan);
  const double blocks = std::ceil(row_tiles(sizes) * split_blocks(sizes, plan) / sizes.multiprocessors);
  double resident = 1;
  for (int stages = 2; stages <= std::min<double>(tiles, kMostStages); ++stages) {
    AttentionPlan more = plan;
    more.stages = stages;
    const double held = resident_blocks(problem, sizes, more);
    if (held < resident) break;
    if (stages == 2) resident = std::max(std::min(held, blocks), 1.0);
    plan.stages = stages;
  }
}

// Rounds of blocks start and end one after another; between, memory and the chain of each block's tiles, of
// which stages are on their way at a time, hide each other the less the more equal they are.
double split_cycles(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  constexpr double kStart = 1000, kMergeWarps = 600, kMergeBlocks = 1500, kMergeLaunch = 4250;
  AttentionPlan plan{way};
  set_split(plan, problem, sizes);
  const double of_rows = split_blocks(sizes, plan), blocks = row_tiles(sizes) * of_rows;
  const double rounds =
      std::ceil(blocks / (sizes.multiprocessors * std::max(1, resident_blocks(problem, sizes, plan))));
  const double tiles = tiles_of_block(sizes, plan);
  const TileCycles tile = tile_cycles(sizes, way.keys);
  const double chain = std::max((tiles + plan.stages - 1) / plan.stages * (tile.wait + tile.work),
                                tile.wait + tiles * tile.work);
  const double merge = kMergeWarps + (way.cluster > 1 ? kMergeBlocks : 0);
  return rounds * (kStart + merge) + std::hypot(memory_cycles(sizes), rounds * chain) +
         (way.cluster == 0 && of_rows > 1 ? kMergeLaunch : 0);
}

// One block for the keys of a tile of rows, or a cluster's that combine their parts in shared memory. More
// blocks need a workspace and a second launch: where a cluster's would have many tiles each or leave most
// multiprocessors idle.
AttentionWay split_way(const CudaProblem& problem, const AttentionSizes& sizes) {
  constexpr int kMostBlocks = 8;
  const int most_keys = most_split_keys(sizes);
  AttentionWay best{AttentionUnit::kSplit, kTileRows, most_keys};
  if (is_single_tile(sizes, best)) return best;
  const bool needs_more =
      split_keys(sizes) > 2048 || kMostBlocks * row_tiles(sizes) < sizes.multiprocessors / 3.0;
  best.keys = 64;
  double least = needs_more || problem.arch < 90 ? split_cycles(problem, sizes, best)
                                                 : std::numeric_limits<double>::infinity();
  for (int cluster = 1; cluster <= (problem.arch >= 90 ? kMostBlocks : 1); cluster *= 2)
    for (int keys = most_keys; keys >= 64; keys /= 2) {
      const AttentionWay way{AttentionUnit::kSplit, kTileRows, keys, cluster};
      if (const double cycles = split_cycles(problem, sizes, way); cycles < least) best = way, least = cycles;
    }
  return best;
}

}  // namespace aicf
