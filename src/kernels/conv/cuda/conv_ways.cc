#include "kernels/conv/cuda/conv_ways.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cycles.h"

namespace aicf {
namespace {

constexpr int kMaxCluster = 8;

MatmulWay wgmma(int m, int n, int stages) {
  return {.unit = MatmulUnit::wgmma, .block_m = m, .block_n = n, .stages = stages, .warpgroups = m / 64};
}

PricedMatmul estimated(const MatmulSizes& sizes, const MatmulWay& way) {
  return {way, matmul_cycles(sizes, way) / kCyclesPerMicrosecond};
}

MatmulWay split(MatmulWay way, int parts) {
  if (parts > 1) way.split = {SplitKind::cluster, parts};
  return way;
}

// Two blocks of 64 rows, or one where there are no more: few maps are rows of results in planes.
MatmulWay large_tile(const MatmulSizes& sizes, int columns) {
  return wgmma(sizes.m <= 64 ? 64 : 128, columns, 3);
}

// Enough tiles to fill the machine. Waves of blocks decide, at two of 128 columns or three of 64 per
// multiprocessor; with a short K the epilogue does, and more, smaller blocks hide more of its latency.
MatmulWay choose_large(const MatmulSizes& sizes) {
  constexpr int64_t kShortDepth = 256;
  const MatmulWay narrow = large_tile(sizes, 64), wide = large_tile(sizes, 128);
  if (sizes.n <= 64 || sizes.k <= kShortDepth) return narrow;
  const int64_t wide_waves = ceil_div(tile_count(sizes, wide), 2 * sizes.machine.multiprocessors);
  const int64_t narrow_waves = ceil_div(tile_count(sizes, narrow), 3 * sizes.machine.multiprocessors);
  if (narrow_waves < wide_waves) return narrow;
  constexpr int64_t kLongDepth = 4096;
  const bool splits =
      sizes.k >= kLongDepth && 2 * tile_count(sizes, wide) <= 2 * sizes.machine.multiprocessors;
  return split(wide, splits ? 2 : 1);
}

std::vector<PricedMatmul> large_ways(const MatmulSizes& sizes) {
  const MatmulWay best = choose_large(sizes), wide = large_tile(sizes, 128);
  std::vector<PricedMatmul> ways{estimated(sizes, best)};
  for (const MatmulWay& way : {large_tile(sizes, 64), wide, split(wide, 2)})
    if (!(way == best)) ways.push_back(estimated(sizes, way));
  return ways;
}

// Microseconds on an H100, fitted to the layers of ResNet-50 at batch 1 and to others: a step of K of a block
// alone costs about the same in either tile, of blocks that share a multiprocessor each adds its part, and
// what a split costs grows with its parts and with all blocks.
double small_time(const MatmulSizes& sizes, const MatmulWay& c) {
  const bool narrow = c.block_n == 32;
  const int64_t steps = ceil_div(ceil_div(sizes.k, kStepDepth), split_parts(c)),
                blocks = tile_count(sizes, c) * split_parts(c);
  const auto sharing = static_cast<double>(ceil_div(blocks, sizes.machine.multiprocessors));
  const double step = std::max(narrow ? 0.39 : 0.36, (narrow ? 0.23 : 0.285) * sharing);
  double time = 1.9 + static_cast<double>(steps) * step;
  if (split_parts(c) > 1)
    time += 0.1 + 0.2 * split_parts(c) + 0.013 * static_cast<double>(blocks) * (c.block_n / 64.0);
  return time;
}

std::vector<PricedMatmul> small_ways(const MatmulSizes& sizes) {
  std::vector<PricedMatmul> ways;
  for (const MatmulWay& tile : matmul_tiles(MatmulFamily::mma, 4)) {
    if (tile.block_m != 64) continue;
    for (int parts = 1; parts <= kMaxCluster; parts *= 2) {
      if (parts > 1 && ceil_div(sizes.k, kStepDepth) < 2 * parts) break;
      const MatmulWay way = split(tile, parts);
      ways.push_back({way, small_time(sizes, way)});
    }
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return ways;
}

}  // namespace

std::vector<PricedMatmul> gathered_ways(const MatmulSizes& sizes, int arch) {
  std::vector<PricedMatmul> ways;
  if (arch < 90 || sizes.f32) {
    for (const MatmulWay& way : matmul_ways(sizes, MatmulFamily::mma, arch, 4))
      if (!is_sliced(way) && !loads_all_of_k(way)) ways.push_back(estimated(sizes, way));
    return ways;
  }
  const bool is_large = tile_count(sizes, large_tile(sizes, 64)) >= sizes.machine.multiprocessors;
  ways = is_large ? large_ways(sizes) : small_ways(sizes);
  for (const PricedMatmul& other : is_large ? small_ways(sizes) : large_ways(sizes)) ways.push_back(other);
  return ways;
}

// Of few maps warpgroups in ping-pong have a whole narrow tile each, and the registers that an epilogue
// wants.
std::vector<PricedMatmul> tma_ways(const MatmulSizes& sizes, int arch) {
  MatmulWay narrow = wgmma(128, 64, 8);
  narrow.schedule = MatmulSchedule::ping_pong;
  std::vector<PricedMatmul> ways{estimated(sizes, narrow)};
  // Boxes of pixels are stored by the warps that multiply.
  for (const MatmulWay& way : matmul_ways(sizes, MatmulFamily::wgmma, arch, 4))
    if (!has_epilogue_warps(way) && multicast_blocks(way) == 1 && stream_blocks(way) == 0)
      ways.push_back(estimated(sizes, way));
  return ways;
}

}  // namespace aicf
