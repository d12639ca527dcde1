#include "kernels/attention/cuda/attention_simt.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/attention/cuda/attention_simt_tiles.h"
#include "kernels/attention/cuda/attention_tiles.h"

namespace aicf {
namespace {

// Elements of shared memory, as SimtShape counts them.
struct SharedElements {
  int64_t queries, keys, values, weights, parts;

  int64_t main(bool shares) const {
    return queries + (shares ? std::max(keys, values) : keys + values) + weights;
  }
  int64_t most(bool shares) const { return std::max(main(shares), parts); }
};

SharedElements shared_elements(const AttentionSizes& sizes, const AttentionWay& way, int64_t vector) {
  const int64_t depth = (ceil_of(sizes.depth, vector) | 1) * vector,
                value_depth = ceil_of(sizes.value_depth, vector) * vector;
  const int64_t warp_rows = way.rows / way.row_warps, warp_keys = way.keys / way.key_warps;
  const int64_t every = 16 / way.row_lanes, first = 8 / way.row_lanes;
  const int64_t weights = (ceil_of(warp_keys / vector - first, every) * every + first) * vector;
  return {.queries = way.rows * depth,
          .keys = way.keys * depth,
          .values = way.keys * value_depth,
          .weights = warps_of(way) * warp_rows * weights,
          .parts = way.key_warps > 1 ? way.key_warps * way.rows * (value_depth + 2) : 0};
}

// ---- time ----

// A warp's first product with one of its blocks of keys, its weights, and its part of the copies.
WarpCycles score_work(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way,
                      const SimtAttention& simt) {
  constexpr double kScore = 6.5, kMaskOfKey = 0.5, kMaskOfRow = 6, kRow = 24, kCopy = 4;
  const double vector = simt.vector, rows = simt.lane_rows, keys = simt.key_vectors * vector;
  const double depth_vectors = static_cast<double>(ceil_of(sizes.depth, simt.vector));
  const double reads = depth_vectors * (rows + keys), writes = rows * simt.key_vectors;
  const double units = static_cast<double>(way.keys * (sizes.depth + sizes.value_depth)) / vector;
  const double copies = units / (32 * warps_of(way));
  const double mask = !sizes.has_mask ? 0 : mask_is_per_key(problem, sizes, way) ? kMaskOfKey : kMaskOfRow;
  const double rate = sum_bytes(problem) == 8 ? 2 : 1;
  return {rate * rows * keys * (depth_vectors * vector + kScore + mask) + reads + writes + rows * kRow +
              copies * kCopy,
          kSharedRead * (reads + writes) + 4 * copies};
}

// A warp's second product with one of its blocks of keys, all of which exist.
WarpCycles value_work(const CudaProblem& problem, const AttentionWay& way, const SimtAttention& simt) {
  const double vector = simt.vector, rows = simt.lane_rows;
  const double keys = static_cast<double>(way.keys) / way.key_warps;
  const double reads = keys * (rows / vector + simt.value_vectors);
  const double rate = sum_bytes(problem) == 8 ? 2 : 1;
  return {rate * keys * rows * simt.value_vectors * vector + reads, kSharedRead * reads};
}

// What the warps of a block take to merge what they have found of its rows.
double merge_cycles(const AttentionSizes& sizes, const AttentionWay& way, const SimtAttention& simt) {
  if (way.key_warps == 1) return 0;
  const double vectors = static_cast<double>(way.rows * sizes.value_depth) / simt.vector;
  return kMergedUnit * way.key_warps * vectors / 32;
}

}  // namespace

SimtAttention simt_attention(const CudaProblem& problem, const AttentionSizes& sizes,
                             const AttentionWay& way) {
  constexpr int kOthers = 60, kMost = 255;
  const int64_t bytes = sum_bytes(problem);
  const int vector = static_cast<int>(16 / bytes), words = static_cast<int>(bytes / 4),
            key_lanes = 32 / way.row_lanes;
  SimtAttention simt{.vector = vector};
  simt.lane_rows = way.rows / way.row_warps / way.row_lanes;
  simt.key_vectors = way.keys / way.key_warps / (key_lanes * vector);
  simt.value_vectors = static_cast<int>(ceil_of(ceil_of(sizes.value_depth, vector), key_lanes));
  const int held = simt.lane_rows * (simt.key_vectors + simt.value_vectors) * vector * words;
  simt.registers = std::min((held + kOthers * (words + 1) / 2 + 7) / 8 * 8, kMost + 1);
  const SharedElements elements = shared_elements(sizes, way, vector);
  const auto resident = [&](bool shares) {
    return resident_attention_blocks(problem.arch, warps_of(way), bytes * elements.most(shares),
                                     simt.registers);
  };
  // Where two buffers leave too few warps to hide what each waits for.
  constexpr int kWarps = 8;
  simt.shares_buffer = resident(false) * warps_of(way) < kWarps && resident(true) > resident(false);
  simt.shared_bytes = bytes * elements.most(simt.shares_buffer);
  simt.resident = resident(simt.shares_buffer);
  return simt;
}

bool simt_attention_fits(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  constexpr int kMostHeld = 144;  // words of scores and results of a thread: others need 60 of 255
  const int64_t bytes = sum_bytes(problem);
  if (way.unit != AttentionUnit::kSimt || !has_whole_tiles(way, static_cast<int>(16 / bytes)) ||
      warps_of(way) > kMostSimtWarps)
    return false;
  const SimtAttention simt = simt_attention(problem, sizes, way);
  const int64_t held = simt.lane_rows * (simt.key_vectors + simt.value_vectors) * 4;
  return held <= kMostHeld && simt.resident > 0 && simt.shared_bytes <= shared_limit(problem.arch);
}

double simt_attention_cycles(const CudaProblem& problem, const AttentionSizes& sizes,
                             const AttentionWay& way) {
  const SimtAttention simt = simt_attention(problem, sizes, way);
  const double tiles = std::ceil(sizes.most_queries / way.rows);
  const double blocks =
      std::max(1.0, std::ceil(sizes.most_batch * sizes.most_heads * tiles / sizes.multiprocessors));
  // Causal rows see half of the keys, but the last tile sees all, and some multiprocessor has it. With a
  // window all rows see about as many keys, causal or not.
  const double share = sizes.causal && sizes.window == 0 ? 0.5 + 0.5 / blocks : 1.0;
  const double seen = share * seen_keys(sizes, way.rows);
  const double warp_keys = static_cast<double>(way.keys) / way.key_warps;
  const WarpCycles scores = score_work(problem, sizes, way, simt), values = value_work(problem, way, simt);
  // Of a warp: its keys, of which the last block is scored whole.
  WarpCycles work = std::ceil(seen / warp_keys) / way.key_warps * scores;
  work += seen / warp_keys / way.key_warps * values;
  const double longest = std::ceil(seen / way.keys) * (scores.issued + values.issued);
  const double merge = merge_cycles(sizes, way, simt);
  return rounds_cycles(work, longest, blocks, simt.resident, warps_of(way), merge);
}

std::vector<AttentionWay> simt_attention_ways(const CudaProblem& problem, const AttentionSizes& sizes) {
  constexpr size_t kListed = 12;
  constexpr double kFewQueries = 16;
  struct Estimated {
    AttentionWay way;
    double cycles;
  };
  const int vector = static_cast<int>(16 / sum_bytes(problem));
  std::vector<Estimated> found;
  // Two lanes side by side in rows are for rows too few for four.
  for (const int row_lanes : {8, 4, 2}) {
    if (row_lanes == 2 && sizes.most_queries > kFewQueries) continue;
    for (const int lane_rows : {4, 5, 6, 7, 8, 3, 2, 1})
      for (const int key_vectors : {2, 1})
        for (const int row_warps : {1, 2, 4})
          for (const int key_warps : {1, 2, 4, 8}) {
            AttentionWay way{.unit = AttentionUnit::kSimt,
                             .rows = row_warps * row_lanes * lane_rows,
                             .keys = key_warps * (32 / row_lanes) * vector * key_vectors,
                             .row_warps = row_warps,
                             .key_warps = key_warps,
                             .row_lanes = row_lanes};
            if (row_warps * key_warps >= 2 && fault_of(way).empty() &&
                simt_attention_fits(problem, sizes, way))
              found.push_back({way, simt_attention_cycles(problem, sizes, way)});
          }
  }
  AICF_CHECK(!found.empty(), "attention that no way of the general-purpose units fits");
  std::stable_sort(found.begin(), found.end(),
                   [](const Estimated& a, const Estimated& b) { return a.cycles < b.cycles; });
  std::vector<AttentionWay> ways;
  for (size_t i = 0; i < std::min(kListed, found.size()); ++i) ways.push_back(found[i].way);
  return ways;
}

}  // namespace aicf
