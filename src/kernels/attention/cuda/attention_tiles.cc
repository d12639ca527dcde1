#include "kernels/attention/cuda/attention_tiles.h"

#include <algorithm>
#include <cmath>

namespace aicf {

bool mask_is_per_key(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionTile& tile) {
  if (!sizes.has_mask) return false;
  const std::vector<Dim> strides = mask_strides(problem.inputs[3]);
  const bool one_head = tile.unit != AttentionUnit::kSplit || sizes.group == Dim(1) || strides[1] == Dim(0);
  return strides[2] == Dim(0) && one_head;
}

int64_t short_width(const AttentionSizes& sizes) {
  return std::max(sizes.depth, sizes.value_depth) <= 32 ? 32 : 64;
}

int64_t padded_columns(int64_t columns) { return (columns + 15) / 16 * 16; }

namespace {

int64_t half_row_bytes(int64_t columns) { return (padded_columns(columns) + 8) * 2; }

int64_t simt_shared(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionTile& tile) {
  const int64_t bytes = problem.inputs[0].dtype == DType::f64 ? 8 : 4, unit = 16 / bytes;
  const auto stride = [&](int64_t columns) { return ((columns + unit - 1) / unit | 1) * unit; };
  return bytes *
         (tile.rows * stride(sizes.depth) + tile.keys * stride(std::max(sizes.depth, sizes.value_depth)) +
          tile.rows * stride(tile.keys));
}

}  // namespace

int64_t attention_shared_bytes(const CudaProblem& problem, const AttentionSizes& sizes,
                               const AttentionTile& tile) {
  const int64_t key_value = tile.keys * (half_row_bytes(sizes.depth) + half_row_bytes(sizes.value_depth));
  const int64_t queries = tile.rows * half_row_bytes(sizes.depth);
  switch (tile.unit) {
    case AttentionUnit::kSimt:
      return simt_shared(problem, sizes, tile);
    case AttentionUnit::kMma:
      return queries + key_value + (mask_is_per_key(problem, sizes, tile) ? 2 * 4 * tile.keys : 0);
    case AttentionUnit::kSplit:
      return queries + std::max(tile.stages * key_value,
                                4 * 16 * 4 * (padded_columns(sizes.value_depth) + 8) + 5 * 16 * 8);
    case AttentionUnit::kWgmma: {
      constexpr int64_t kHalf = 128 * 128, kAlign = 1024, kStages = 2, kBarriers = 96;
      const int64_t depth = (sizes.depth + 63) / 64, value_depth = (sizes.value_depth + 63) / 64;
      return kAlign + kStages * (tile.rows * 128 * depth + kHalf * (depth + value_depth)) + kBarriers;
    }
    case AttentionUnit::kShort: {
      constexpr int64_t kAlign = 1024, kBarriers = 16;
      const int64_t mask = mask_is_per_key(problem, sizes, tile) ? 4 * tile.keys : 0;
      return kAlign + (tile.rows + 2 * tile.keys) * 2 * short_width(sizes) + mask + kBarriers;
    }
  }
  return 0;
}

namespace {

constexpr double kFewRows = 32;  // rows that share keys; up to here keys are split among blocks

// What fits in 99 KiB, the least of all architectures: the order of accumulation must not depend on them.
AttentionTile simt_tile(const CudaProblem& problem, const AttentionSizes& sizes) {
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  AttentionTile tile{AttentionUnit::kSimt, 64, 64, 8};
  if (problem.inputs[0].dtype == DType::f64)
    tile.rows = tile.keys = depth <= 32 ? 64 : depth <= 128 ? 32 : 16;
  else if (depth > 128)
    tile.rows = tile.keys = 32;
  const double blocks = sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / tile.rows);
  while (tile.rows > 16 && (blocks < kMultiprocessors || sizes.most_queries <= tile.rows / 2)) {
    tile.rows /= 2;
    if (sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / tile.rows) >= kMultiprocessors)
      break;
  }
  return tile;
}

// Up to 2,048 keys a cluster's eight blocks hold one tile each, or two of half the size in turn: one launch.
// Longer sequences need more blocks than a cluster has.
AttentionTile split_tile(const CudaProblem& problem, const AttentionSizes& sizes, int most_keys) {
  AttentionTile tile{AttentionUnit::kSplit, 16, most_keys, 4};
  if (sizes.most_keys <= most_keys) return tile;
  constexpr int kCluster = 8;
  // Tiles begin where they would without a window.
  const double seen = std::min(sizes.most_keys, seen_keys(sizes, sizes.most_queries) + most_keys - 1);
  const double clusters = sizes.most_batch * sizes.most_heads / sizes.most_group *
                          std::ceil(sizes.most_group * sizes.most_queries / 16);
  if (problem.arch >= 90 && seen <= 2048 && kCluster * clusters >= kMultiprocessors / 3.0) {
    tile.cluster = kCluster;
    if (seen <= kCluster * most_keys) return tile;
  }
  tile.keys = 64;
  if (tile.cluster == 1) tile.tiles = seen <= 2048 ? 1 : seen <= 8192 ? 4 : 8;
  if (tile.cluster > 1 || tile.tiles > 1) tile.stages = 2;
  if (attention_shared_bytes(problem, sizes, tile) > shared_limit(problem.arch)) tile.stages = 1;
  return tile;
}

AttentionTile mma_tile(const CudaProblem& problem, const AttentionSizes& sizes) {
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  const double heads = sizes.most_batch * sizes.most_heads;
  const int most_keys = depth > 128 ? 64 : 128;  // that a block with few rows holds at once
  // Keys of one tile of 64 leave half of a split one idle: 63 heads of 64 queries and keys took 3.7 us in
  // rows of 64, 4.6 split, 80 of 40 took 3.0 and 3.5.
  const double tiles = heads * std::ceil(sizes.most_queries / 64);
  const bool is_half =
      sizes.most_keys <= 64 && sizes.most_queries > kFewRows && 3 * tiles >= kMultiprocessors;
  const bool is_short = sizes.most_keys <= most_keys && tiles < kMultiprocessors && !is_half;
  // Two tiles of keys would leave most of a cluster idle, and enough blocks need no splitting: 1,360 heads of
  // three queries and 181 keys took 17.7 us in rows of 32, 24.1 split.
  const bool is_full = sizes.most_keys > most_keys && sizes.most_keys <= 2 * most_keys &&
                       heads * std::ceil(sizes.most_queries / 32) >= 4 * kMultiprocessors;
  if (is_short || (sizes.most_group * sizes.most_queries <= kFewRows && !is_full))
    return split_tile(problem, sizes, most_keys);
  AttentionTile tile{AttentionUnit::kMma, 64, 64, 4};
  if (sizes.most_keys <= 128 && sizes.most_keys > 64 && depth <= 64) tile.keys = 128;
  if (sizes.most_queries <= 32)
    tile.rows = 32, tile.warps = 2;
  else if (tile.keys == 64 && sizes.most_keys > 256 && depth <= 128 &&
           heads * std::ceil(sizes.most_queries / 128) >= 2 * kMultiprocessors)
    tile.rows = 128;
  return tile;
}

bool has_tensor_maps(const CudaProblem& problem) {
  return std::all_of(problem.inputs.begin(), problem.inputs.begin() + 3,
                     [&](const CudaWindow& window) { return has_tensor_map(problem, window); });
}

bool can_use_wgmma(const CudaProblem& problem, const AttentionSizes& sizes) {
  return problem.arch == 90 && std::min(sizes.depth, sizes.value_depth) >= 64 &&
         std::max(sizes.depth, sizes.value_depth) <= 128 && has_tensor_maps(problem);
}

bool suits_wgmma(const CudaProblem& problem, const AttentionSizes& sizes) {
  constexpr double kFewest = 192;  // of 197 queries and keys 48 heads took 6.0 us, by mma.cuh 7.8
  // One tile of each, deeper than short.cuh's: of 115 and a depth of 128, 108 heads took 8.2 us, by
  // mma.cuh 9.6.
  const bool is_deep = std::max(sizes.depth, sizes.value_depth) > 64;
  const auto fills_one = [](double size) { return size > 64 && size <= 128; };
  // A tile takes less time than one of mma.cuh with half the rows: 60 took 8.1 us, by mma.cuh 11.3; 18 as
  // long.
  constexpr double kFewestTiles = 16;
  const bool is_long = sizes.most_queries >= kFewest && sizes.most_keys >= kFewest;
  const bool is_one = is_deep && !sizes.causal && fills_one(sizes.most_queries) && fills_one(sizes.most_keys);
  return (is_long || is_one) &&
         sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / 128) >= kFewestTiles &&
         can_use_wgmma(problem, sizes);
}

// All keys in one tile of wgmma.
bool can_use_short(const CudaProblem& problem, const AttentionSizes& sizes) {
  return problem.arch == 90 && std::max(sizes.depth, sizes.value_depth) <= 64 && sizes.most_keys <= 128 &&
         sizes.most_keys > 64 && sizes.most_queries > kFewRows && has_tensor_maps(problem);
}

// Three warpgroups share keys of shallow heads, where their tiles, which take a third longer than those of
// two, need so much fewer rounds of a persistent launch; but not if so few tiles see unequal numbers of keys
// that pairs of them do not fill the last round.
int wgmma_rows(const AttentionSizes& sizes) {
  const bool shallow = std::max(sizes.depth, sizes.value_depth) <= 64;
  if (!shallow || (sizes.causal && sizes.most_queries <= 2048)) return 128;
  const auto rounds = [&](int rows) {
    const double tiles = sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / rows);
    return std::ceil(tiles / static_cast<double>(kMultiprocessors));
  };
  return 4 * rounds(192) <= 3 * rounds(128) ? 192 : 128;
}

// Rows of a block of short.cuh; 0: others suit better. Keys and values of shallow heads are cheap to load
// twice, and shorter blocks fill the multiprocessors more evenly; else 128, unless it takes 64 to give every
// multiprocessor one.
int short_rows(const CudaProblem& problem, const AttentionSizes& sizes) {
  if (!can_use_short(problem, sizes)) return 0;
  const auto blocks = [&](int rows) {
    return sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / rows);
  };
  if (short_width(sizes) > 32 && blocks(128) >= kMultiprocessors) return 128;
  return blocks(64) >= kMultiprocessors ? 64 : 0;
}

}  // namespace

bool attention_tile_fits(const CudaProblem& problem, const AttentionTile& tile) {
  const AttentionSizes sizes = sizes_of(problem);
  if (attention_shared_bytes(problem, sizes, tile) > shared_limit(problem.arch)) return false;
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  if (tile.unit == AttentionUnit::kWgmma)
    return can_use_wgmma(problem, sizes) && (tile.rows == 128 || depth <= 64);
  if (tile.unit == AttentionUnit::kShort) return can_use_short(problem, sizes);
  return tile.unit == AttentionUnit::kMma &&
         (tile.keys == 64 ? tile.rows < 128 || depth <= 128 : depth <= 64 && sizes.most_keys <= tile.keys);
}

AttentionTile attention_tile(const CudaProblem& problem, AttentionUnit unit) {
  const AttentionSizes sizes = sizes_of(problem);
  if (unit == AttentionUnit::kSimt) return simt_tile(problem, sizes);
  if (unit == AttentionUnit::kWgmma && suits_wgmma(problem, sizes))
    return {AttentionUnit::kWgmma, wgmma_rows(sizes), 128};
  if (unit == AttentionUnit::kWgmma)
    if (const int rows = short_rows(problem, sizes)) return {AttentionUnit::kShort, rows, 128};
  return mma_tile(problem, sizes);
}

}  // namespace aicf
