#include "kernels/conv/cuda/conv_cuda_config.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/cuda_machine.h"

namespace aicf {
namespace {

constexpr int kMaxCluster = 8;

MatmulConfig wgmma(int m, int n, int stages) {
  return {.family = MatmulFamily::wgmma, .block_m = m, .block_n = n, .stages = stages, .warpgroups = m / 64};
}

MatmulConfig split(MatmulConfig config, int parts) {
  config.splits = parts;
  config.cluster = parts > 1;
  return config;
}

// Enough tiles to fill the machine. Waves of blocks decide, at two of 128 columns or three of 64 per
// multiprocessor; with a short K the epilogue does, and more, smaller blocks hide more of its latency.
MatmulConfig choose_large(const MatmulSizes& sizes) {
  constexpr int64_t kShortDepth = 256;
  const MatmulConfig narrow = wgmma(128, 64, 3), wide = wgmma(128, 128, 3);
  if (sizes.n <= 64 || sizes.k <= kShortDepth) return narrow;
  const int64_t wide_waves = ceil_div(tile_count(sizes, wide), 2 * kMultiprocessors);
  const int64_t narrow_waves = ceil_div(tile_count(sizes, narrow), 3 * kMultiprocessors);
  if (narrow_waves < wide_waves) return narrow;
  constexpr int64_t kLongDepth = 4096;
  const bool splits = sizes.k >= kLongDepth && 2 * tile_count(sizes, wide) <= 2 * kMultiprocessors;
  return split(wide, splits ? 2 : 1);
}

// Microseconds on an H100, fitted to the layers of ResNet-50 at batch 1: a step of K costs about the same in
// either tile, what a split costs grows with the blocks that take part.
double small_time(const MatmulSizes& sizes, const MatmulConfig& c) {
  const double area = c.block_n / 64.0;
  const int64_t steps = ceil_div(ceil_div(sizes.k, kStepDepth), c.splits);
  const double blocks = static_cast<double>(tile_count(sizes, c) * c.splits) * area;
  const double step = c.block_n == 64 ? 0.39 : 0.36;
  double time = 1.9 + static_cast<double>(steps) * step * std::max(1.0, blocks / (2.0 * kMultiprocessors));
  if (c.splits > 1) time += 0.5 + 0.013 * blocks;
  return time;
}

MatmulConfig choose_small(const MatmulSizes& sizes) {
  MatmulConfig best;
  double best_time = -1;
  for (const MatmulConfig& tile : matmul_tiles(MatmulFamily::mma, 4)) {
    if (tile.block_m != 64) continue;
    for (int parts = 1; parts <= kMaxCluster; parts *= 2) {
      if (parts > 1 && ceil_div(sizes.k, kStepDepth) < 2 * parts) break;
      const MatmulConfig config = split(tile, parts);
      const double time = small_time(sizes, config);
      if (best_time >= 0 && time >= best_time) continue;
      best = config;
      best_time = time;
    }
  }
  return best;
}

}  // namespace

MatmulConfig choose_conv(const MatmulSizes& sizes, int arch) {
  if (arch < 90) return choose_matmul(sizes, MatmulFamily::mma, arch, 4);
  return tile_count(sizes, wgmma(128, 64, 3)) >= kMultiprocessors ? choose_large(sizes) : choose_small(sizes);
}

}  // namespace aicf
