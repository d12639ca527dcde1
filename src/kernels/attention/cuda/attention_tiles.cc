#include "kernels/attention/cuda/attention_tiles.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/attention/cuda/attention_simt.h"
#include "kernels/attention/cuda/attention_split.h"

namespace aicf {

bool mask_is_per_key(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  if (!sizes.has_mask) return false;
  const std::vector<Dim> strides = mask_strides(problem.inputs[3]);
  const bool one_head = way.unit != AttentionUnit::kSplit || sizes.group == Dim(1) || strides[1] == Dim(0);
  return strides[2] == Dim(0) && one_head;
}

int64_t short_width(const AttentionSizes& sizes) {
  return std::max(sizes.depth, sizes.value_depth) <= 32 ? 32 : 64;
}

int64_t padded_columns(int64_t columns) { return (columns + 15) / 16 * 16; }

namespace {

// As RowTile lays it out, of elements of so many bytes.
int64_t row_bytes(int64_t columns, int64_t bytes) { return padded_columns(columns) * bytes + 16; }

}  // namespace

int64_t attention_shared_bytes(const CudaProblem& problem, const AttentionSizes& sizes,
                               const AttentionWay& way, int stages) {
  const int64_t bytes = dtype_bytes(problem.inputs[0].dtype);
  const int64_t key_value = way.keys * (row_bytes(sizes.depth, bytes) + row_bytes(sizes.value_depth, bytes));
  const int64_t queries = way.rows * row_bytes(sizes.depth, bytes);
  switch (way.unit) {
    case AttentionUnit::kSimt:
      return simt_attention(problem, sizes, way).shared_bytes;
    case AttentionUnit::kMma:
      return queries + key_value + (mask_is_per_key(problem, sizes, way) ? 2 * 4 * way.keys : 0);
    case AttentionUnit::kSplit:
      return queries +
             std::max(stages * key_value, 4 * 16 * 4 * (padded_columns(sizes.value_depth) + 8) + 5 * 16 * 8);
    case AttentionUnit::kWgmma: {
      constexpr int64_t kHalf = 128 * 128, kAlign = 1024, kStages = 2, kBarriers = 96;
      const int64_t depth = (sizes.depth + 63) / 64, value_depth = (sizes.value_depth + 63) / 64;
      return kAlign + kStages * (way.rows * 128 * depth + kHalf * (depth + value_depth)) + kBarriers;
    }
    case AttentionUnit::kShort: {
      constexpr int64_t kAlign = 1024, kBarriers = 16;
      const int64_t mask = mask_is_per_key(problem, sizes, way) ? 4 * way.keys : 0;
      return kAlign + (way.rows + 2 * way.keys) * 2 * short_width(sizes) + mask + kBarriers;
    }
  }
  return 0;
}

namespace {

constexpr double kFewRows = 32;  // rows that share keys; up to here keys are split among blocks

// Blocks that share a multiprocessor take longer than one alone, each by `share`.
double crowded(const AttentionSizes& sizes, double blocks, double share) {
  return std::max(1.0, 1 - share + share * std::ceil(blocks / sizes.multiprocessors));
}

// Whether tiles of 64 rows are so few that blocks of 16 rows and a part of the keys end sooner, by estimates
// in cycles: of 64 keys in either tile, and of what merging parts takes. By a margin, since each knows only
// its own part of the time.
bool splits_sooner(const CudaProblem& problem, const AttentionSizes& sizes) {
  constexpr double kTile = 900, kPart = 350, kMerge = 3000, kMargin = 0.7;
  // Parts of keys that causality hides would be idle.
  if (sizes.causal || sizes.most_keys <= most_split_keys(sizes)) return false;
  AttentionPlan plan{split_way(problem, sizes)};
  set_split(plan, problem, sizes);
  const double heads = sizes.most_batch * sizes.most_heads, parts = split_blocks(sizes, plan);
  const double depth = static_cast<double>(sizes.depth + sizes.value_depth) / 128;
  const double rows = heads / sizes.most_group * std::ceil(sizes.most_group * sizes.most_queries / 16);
  const double whole = std::ceil(seen_keys(sizes, 64) / 64) * kTile * depth *
                       crowded(sizes, heads * std::ceil(sizes.most_queries / 64), 0.45);
  const double split =
      std::ceil(split_keys(sizes) / parts / 64) * kPart * depth * crowded(sizes, rows * parts, 0.3) + kMerge;
  return split < kMargin * whole;
}

AttentionWay mma_way(const CudaProblem& problem, const AttentionSizes& sizes) {
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  const double heads = sizes.most_batch * sizes.most_heads;
  const int most_keys = most_split_keys(sizes);
  // Keys of one tile of 64 leave half of a split one idle: 63 heads of 64 queries and keys took 3.7 us in
  // rows of 64, 4.6 split, 80 of 40 took 3.0 and 3.5.
  const double tiles = heads * std::ceil(sizes.most_queries / 64);
  const bool is_half =
      sizes.most_keys <= 64 && sizes.most_queries > kFewRows && 3 * tiles >= sizes.multiprocessors;
  const bool is_short = sizes.most_keys <= most_keys && tiles < sizes.multiprocessors && !is_half;
  if (is_short || sizes.most_group * sizes.most_queries <= kFewRows || splits_sooner(problem, sizes))
    return split_way(problem, sizes);
  AttentionWay tile{AttentionUnit::kMma, 64, 64};
  if (sizes.most_keys <= 128 && sizes.most_keys > 64 && depth <= 64) tile.keys = 128;
  if (sizes.most_queries <= 32)
    tile.rows = 32;
  else if (tile.keys == 64 && sizes.most_keys > 256 && depth <= 128 &&
           heads * std::ceil(sizes.most_queries / 128) >= 2 * sizes.multiprocessors)
    tile.rows = 128;
  return tile;
}

// ---- tf32 ----

// Instructions of a warp for each of its keys, of all rows together: 16 rows take about as many as what a
// block of four warps shares; two tiles of 16 share what is read of keys and values. Whole warps of a
// scheduler, of which one alone leaves it idle at times.
double tf32_cycles(const AttentionSizes& sizes, const AttentionWay& way) {
  constexpr double kTile = 12, kShared = 16, kLone = 1.6;
  const int warps = way.rows <= 32 ? 2 : 4, tiles = way.rows / warps / 16;
  const double depth = static_cast<double>(sizes.depth + sizes.value_depth) / 128;
  const double blocks = sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / way.rows);
  const double rounds = std::ceil(blocks / sizes.multiprocessors) * warps / 4;
  const double keys = std::ceil(seen_keys(sizes, way.rows) / way.keys) * way.keys;
  return std::max(rounds, kLone) * keys * depth *
         (kTile * tiles + kShared * 4 / warps * (tiles > 1 ? 0.7 : 1.0) / 2);
}

bool tf32_way_fits(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  // What a warp holds beside its results and scores must stay in registers.
  const bool per_row = sizes.has_mask && !mask_is_per_key(problem, sizes, way);
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  if (way.rows == 128 && (depth > 128 || (way.keys > 32 && (per_row || depth > 64)))) return false;
  return way.keys <= 32 || depth <= 64;
}

bool has_tensor_maps(const CudaProblem& problem) {
  return std::all_of(problem.inputs.begin(), problem.inputs.begin() + 3,
                     [&](const CudaWindow& window) { return has_tensor_map(problem, window); });
}

constexpr double kLong = 192;  // of 197 queries and keys 48 heads took 6.0 us, by mma.cuh 7.8

bool is_long(const AttentionSizes& sizes) { return sizes.most_queries >= kLong && sizes.most_keys >= kLong; }

// Columns are of 64: of shallower heads, where sequences are long and no more than half is padding.
bool can_use_wgmma(const CudaProblem& problem, const AttentionSizes& sizes) {
  const int64_t least = std::min(sizes.depth, sizes.value_depth);
  return problem.arch == 90 && (least >= 64 || (least > 32 && is_long(sizes))) &&
         std::max(sizes.depth, sizes.value_depth) <= 128 && has_tensor_maps(problem);
}

bool suits_wgmma(const CudaProblem& problem, const AttentionSizes& sizes) {
  // One tile of each, deeper than short.cuh's: of 115 and a depth of 128, 108 heads took 8.2 us, by
  // mma.cuh 9.6.
  const bool is_deep = std::max(sizes.depth, sizes.value_depth) > 64;
  const auto fills_one = [](double size) { return size > 64 && size <= 128; };
  // A tile takes less time than one of mma.cuh with half the rows: 60 took 8.1 us, by mma.cuh 11.3; 18 as
  // long.
  constexpr double kFewestTiles = 16;
  const bool is_one = is_deep && !sizes.causal && fills_one(sizes.most_queries) && fills_one(sizes.most_keys);
  return (is_long(sizes) || is_one) &&
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
int wgmma_rows(const CudaProblem& problem, const AttentionSizes& sizes) {
  const bool shallow = std::max(sizes.depth, sizes.value_depth) <= 64;
  // A mask of each row has registers of its own.
  const bool per_row = sizes.has_mask && !mask_is_per_key(problem, sizes, {AttentionUnit::kWgmma, 128, 128});
  if (!shallow || per_row || (sizes.causal && sizes.most_queries <= 2048)) return 128;
  const auto rounds = [&](int rows) {
    const double tiles = sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / rows);
    return std::ceil(tiles / sizes.multiprocessors);
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
  if (short_width(sizes) > 32 && blocks(128) >= sizes.multiprocessors) return 128;
  return blocks(64) >= sizes.multiprocessors ? 64 : 0;
}

}  // namespace

bool is_tf32(const CudaProblem& problem) { return problem.params.size() > 3; }

bool attention_way_fits(const CudaProblem& problem, const AttentionWay& way) {
  const AttentionSizes sizes = sizes_of(problem);
  if (way.unit == AttentionUnit::kSimt) return simt_attention_fits(problem, sizes, way);
  if (attention_shared_bytes(problem, sizes, way) > shared_limit(problem.arch)) return false;
  if (is_tf32(problem)) return way.unit == AttentionUnit::kMma && tf32_way_fits(problem, sizes, way);
  const int64_t depth = std::max(sizes.depth, sizes.value_depth);
  if (way.unit == AttentionUnit::kWgmma)
    return can_use_wgmma(problem, sizes) && (way.rows == 128 || depth <= 64);
  if (way.unit == AttentionUnit::kShort) return can_use_short(problem, sizes);
  return way.unit == AttentionUnit::kMma &&
         (way.keys == 64 ? way.rows < 128 || depth <= 128 : depth <= 64 && sizes.most_keys <= way.keys);
}

std::vector<AttentionWay> tf32_ways(const CudaProblem& problem) {
  const AttentionSizes sizes = sizes_of(problem);
  std::vector<AttentionWay> ways;
  for (const int rows : {64, 128, 32})
    for (const int keys : {64, 32})
      if (const AttentionWay way{AttentionUnit::kMma, rows, keys}; attention_way_fits(problem, way))
        ways.push_back(way);
  std::stable_sort(ways.begin(), ways.end(), [&](const AttentionWay& a, const AttentionWay& b) {
    return tf32_cycles(sizes, a) < tf32_cycles(sizes, b);
  });
  return ways;
}

double attention_tf32_microseconds(const CudaProblem& problem, const AttentionWay& way) {
  constexpr double kStart = 3400;
  return (kStart + tf32_cycles(sizes_of(problem), way)) / kCyclesPerMicrosecond;
}

AttentionWay attention_way(const CudaProblem& problem, AttentionUnit unit) {
  const AttentionSizes sizes = sizes_of(problem);
  if (unit == AttentionUnit::kSimt) return simt_attention_ways(problem, sizes).front();
  if (is_tf32(problem)) return tf32_ways(problem).front();
  if (unit == AttentionUnit::kWgmma && suits_wgmma(problem, sizes))
    return {AttentionUnit::kWgmma, wgmma_rows(problem, sizes), 128};
  if (unit == AttentionUnit::kWgmma)
    if (const int rows = short_rows(problem, sizes)) return {AttentionUnit::kShort, rows, 128};
  return mma_way(problem, sizes);
}

AttentionPlan resolve(const AttentionWay& way, const CudaProblem& problem) {
  AICF_CHECK(fault_of(way).empty(), std::string(fault_of(way)) + ": " + to_string(way));
  const AttentionSizes sizes = sizes_of(problem);
  AttentionPlan plan{way};
  if (way.unit == AttentionUnit::kMma) plan.warps = way.rows <= 32 ? 2 : 4;
  if (way.unit == AttentionUnit::kSplit) set_split(plan, problem, sizes);
  plan.shared_bytes = attention_shared_bytes(problem, sizes, way, plan.stages);
  AICF_CHECK(plan.shared_bytes <= shared_limit(problem.arch),
             "attention beyond shared memory: " + to_string(way));
  return plan;
}

}  // namespace aicf
