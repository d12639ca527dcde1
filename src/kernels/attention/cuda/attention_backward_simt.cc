#include "kernels/attention/cuda/attention_backward_simt.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/attention/cuda/attention_simt_tiles.h"

namespace aicf {
namespace {

int64_t warp_own(const AttentionWay& way) { return way.rows / way.row_warps; }
int64_t warp_others(const AttentionWay& way) { return way.keys / way.key_warps; }

// Elements of shared memory, as BackwardShape counts them.
int64_t backward_elements(const AttentionSizes& sizes, const AttentionWay& way, int64_t vector, int stages,
                          bool odd_rows) {
  const auto vectors = [&](int64_t columns) { return ceil_of(columns, vector); };
  const auto stride = [&](int64_t columns) {
    return (odd_rows ? vectors(columns) | 1 : vectors(columns)) * vector;
  };
  const int64_t columns = stride(sizes.depth) + stride(sizes.value_depth),
                wide = vectors(std::max(sizes.depth, sizes.value_depth)) * vector;
  const int64_t every = 16 / way.row_lanes, first = 8 / way.row_lanes;
  const int64_t patch_row = (ceil_of(warp_others(way) / vector - first, every) * every + first) * vector;
  const int64_t main =
      way.rows * columns + stages * way.keys * (columns + 2) + 2 * warps_of(way) * warp_own(way) * patch_row;
  return std::max(main, way.key_warps * way.rows * wide);
}

// ---- time ----

// What a warp does with its others of one block of them, and its part of the copies.
struct StepWork {
  WarpCycles weights;  // both products, weights and slopes
  WarpCycles sums;     // of one gradient
  WarpCycles copies;
};

StepWork step_work(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way,
                   const SimtBackward& simt) {
  constexpr double kScore = 9, kMask = 6, kRow = 24, kCopy = 4;
  const double vector = simt.vector, own = simt.lane_own, others = simt.other_vectors * vector;
  const double rate = sum_bytes(problem) == 8 ? 2 : 1;
  const double depths =
      static_cast<double>(ceil_of(sizes.depth, simt.vector) + ceil_of(sizes.value_depth, simt.vector));
  const double reads = depths * (own + others), writes = 3 * own * simt.other_vectors;
  const double score = kScore + (sizes.has_mask && !backward_mask_is_per_key(problem, sizes) ? kMask : 0);
  StepWork work;
  work.weights = {rate * own * others * (depths * vector + score) + reads + writes + own * kRow,
                  kSharedRead * (reads + writes)};
  const double chunk = static_cast<double>(warp_others(way));
  const double sum_reads = chunk * (own / vector + simt.gradient_vectors);
  work.sums = {rate * chunk * own * simt.gradient_vectors * vector + sum_reads, kSharedRead * sum_reads};
  const double units = static_cast<double>(way.keys * (sizes.depth + sizes.value_depth)) / vector;
  const double copies = units / (32 * warps_of(way));
  work.copies = {kCopy * copies, 4 * copies};
  return work;
}

// Of the blocks of one kind: how many, and what they do.
struct TileWork {
  double blocks = 0, longest = 0, steps = 0;
  WarpCycles work;
};

TileWork tile_work(double heads, double items, double seen, double gradients, const AttentionWay& way,
                   const StepWork& step) {
  TileWork tile;
  tile.blocks = heads * std::ceil(items / way.rows);
  tile.steps = std::ceil(seen / way.keys);
  tile.work = std::ceil(seen / static_cast<double>(warp_others(way))) / way.key_warps * step.weights;
  tile.work += seen / way.keys * gradients * step.sums;
  tile.work += tile.steps * step.copies;
  tile.longest = tile.steps * (step.weights.issued + gradients * step.sums.issued + step.copies.issued);
  return tile;
}

TileWork operator*(double times, const TileWork& tile) {
  return {tile.blocks, times * tile.longest, times * tile.steps, times * tile.work};
}

}  // namespace

bool backward_mask_is_per_key(const CudaProblem& problem, const AttentionSizes& sizes) {
  constexpr size_t kMask = 5;
  return sizes.has_mask && mask_strides(problem.inputs[kMask])[2] == Dim(0);
}

SimtBackward simt_backward(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  // Registers beside products, gradients and a row's vectors of the others; and so many of those that the
  // compiler keeps them where they are.
  constexpr int kOthers = 80, kMost = 255, kMostHeld = 136;
  const int64_t bytes = sum_bytes(problem);
  const int vector = static_cast<int>(16 / bytes), words = static_cast<int>(bytes / 4),
            other_lanes = 32 / way.row_lanes;
  SimtBackward simt{.vector = vector};
  simt.lane_own = static_cast<int>(warp_own(way)) / way.row_lanes;
  simt.other_vectors = static_cast<int>(warp_others(way)) / (other_lanes * vector);
  simt.gradient_vectors =
      static_cast<int>(ceil_of(ceil_of(std::max(sizes.depth, sizes.value_depth), vector), other_lanes));
  const int held =
      (simt.lane_own * (simt.other_vectors + simt.gradient_vectors) + simt.gradient_vectors) * vector * words;
  simt.spills = held > kMostHeld;
  simt.registers = std::min((held + kOthers * (words + 1) / 2 + 7) / 8 * 8, kMost + 1);
  const auto shared_bytes = [&](int stages, bool odd_rows) {
    return bytes * backward_elements(sizes, way, vector, stages, odd_rows);
  };
  const auto resident = [&](int stages) {
    return resident_attention_blocks(problem.arch, warps_of(way), shared_bytes(stages, true), simt.registers);
  };
  // Where a second stage leaves too few warps to hide what each waits for.
  constexpr int kWarps = 8;
  simt.stages =
      resident(2) > 0 && (resident(2) * warps_of(way) >= kWarps || resident(1) <= resident(2)) ? 2 : 1;
  simt.odd_rows = shared_bytes(1, true) <= shared_limit(problem.arch);
  simt.shared_bytes = shared_bytes(simt.stages, simt.odd_rows);
  simt.resident = resident_attention_blocks(problem.arch, warps_of(way), simt.shared_bytes, simt.registers);
  return simt;
}

bool simt_backward_fits(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  const int64_t bytes = sum_bytes(problem);
  if (way.unit != AttentionUnit::kSimt || !has_whole_tiles(way, static_cast<int>(16 / bytes)) ||
      warps_of(way) > kMostSimtWarps || way.key_warps % 2 != 0)
    return false;
  const SimtBackward simt = simt_backward(problem, sizes, way);
  return simt.resident > 0 && simt.shared_bytes <= shared_limit(problem.arch);
}

double simt_backward_cycles(const CudaProblem& problem, const AttentionSizes& sizes,
                            const AttentionWay& way) {
  constexpr double kSync = 150, kCopied = 900;  // of a block by itself, between two steps and for a copy
  const SimtBackward simt = simt_backward(problem, sizes, way);
  const StepWork step = step_work(problem, sizes, way, simt);
  const double heads = sizes.most_batch * sizes.most_heads, group = sizes.most_group;
  const double all = heads * std::ceil(sizes.most_queries / way.rows) +
                     heads / group * std::ceil(sizes.most_keys / way.rows);
  const double blocks = std::max(1.0, std::ceil(all / sizes.multiprocessors));
  // Of causal rows and keys as in simt_attention_cycles; all of a tile go over what any of them sees.
  const auto seen_of = [&](double seen, double items) {
    const bool sees_half = sizes.causal && sizes.window == 0;
    return sees_half ? seen * (0.5 + 0.5 * std::min(std::max(1 / blocks, way.rows / items), 1.0)) : seen;
  };
  const TileWork rows = tile_work(heads, sizes.most_queries,
                                  seen_of(seen_keys(sizes, way.rows), sizes.most_queries), 1, way, step);
  const TileWork keys =
      group * tile_work(heads / group, sizes.most_keys,
                        seen_of(seen_queries(sizes, way.rows), sizes.most_keys), 2, way, step);
  // Blocks of keys come first and have more to do: one of a multiprocessor by itself is one of theirs.
  const double of_keys = blocks <= 1 ? 1 : keys.blocks / all;
  WarpCycles work = of_keys * keys.work;
  work += (1 - of_keys) * rows.work;
  const double steps = of_keys * keys.steps + (1 - of_keys) * rows.steps;
  const double waits = steps * (kSync + (simt.stages == 1 ? kCopied : 0));
  const double vectors =
      static_cast<double>(way.rows * std::max(sizes.depth, sizes.value_depth)) / simt.vector;
  const double merge = kMergedUnit * way.key_warps * vectors / 32;
  return rounds_cycles(work, keys.longest, blocks, simt.resident, warps_of(way), merge) +
         waits * std::ceil(blocks / simt.resident) / std::min<double>(simt.resident, blocks);
}

std::vector<AttentionWay> simt_backward_ways(const CudaProblem& problem, const AttentionSizes& sizes) {
  constexpr size_t kListed = 12;
  struct Estimated {
    AttentionWay way;
    double cycles;
    bool spills;
  };
  const int vector = static_cast<int>(16 / sum_bytes(problem));
  std::vector<Estimated> found;
  for (const int own_lanes : {8, 4})
    for (const int lane_own : {4, 5, 6, 7, 8, 3, 2, 1})
      for (const int other_vectors : {2, 1})
        for (const int own_warps : {1, 2, 4})
          for (const int other_warps : {2, 4, 8}) {
            const AttentionWay way{.unit = AttentionUnit::kSimt,
                                   .rows = own_warps * own_lanes * lane_own,
                                   .keys = other_warps * (32 / own_lanes) * vector * other_vectors,
                                   .row_warps = own_warps,
                                   .key_warps = other_warps,
                                   .row_lanes = own_lanes};
            if (fault_of(way).empty() && simt_backward_fits(problem, sizes, way))
              found.push_back({way, simt_backward_cycles(problem, sizes, way),
                               simt_backward(problem, sizes, way).spills});
          }
  AICF_CHECK(!found.empty(), "gradients of attention that no way of the general-purpose units fits");
  // Rows of 256 numbers of f64 leave a small block of shared memory no other way.
  if (std::any_of(found.begin(), found.end(), [](const Estimated& way) { return !way.spills; }))
    std::erase_if(found, [](const Estimated& way) { return way.spills; });
  std::stable_sort(found.begin(), found.end(),
                   [](const Estimated& a, const Estimated& b) { return a.cycles < b.cycles; });
  std::vector<AttentionWay> ways;
  for (size_t i = 0; i < std::min(kListed, found.size()); ++i) ways.push_back(found[i].way);
  return ways;
}

}  // namespace aicf
