#include "kernels/conv/cuda/conv_cuda_config.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cycles.h"

namespace aicf {
namespace {

constexpr int kMaxCluster = 8;

MatmulConfig wgmma(int m, int n, int stages) {
  return {.family = MatmulFamily::wgmma, .block_m = m, .block_n = n, .stages = stages, .warpgroups = m / 64};
}

ConvConfig estimated(const MatmulSizes& sizes, const MatmulConfig& config) {
  return {config, matmul_cycles(sizes, config) / kCyclesPerMicrosecond};
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

std::vector<ConvConfig> large_configs(const MatmulSizes& sizes) {
  const MatmulConfig best = choose_large(sizes), wide = wgmma(128, 128, 3);
  std::vector<ConvConfig> configs{estimated(sizes, best)};
  for (const MatmulConfig& config : {wgmma(128, 64, 3), wide, split(wide, 2)})
    if (!(config == best)) configs.push_back(estimated(sizes, config));
  return configs;
}

// Microseconds on an H100, fitted to the layers of ResNet-50 at batch 1 and to others: a step of K of a block
// alone costs about the same in either tile, of blocks that share a multiprocessor each adds its part, and
// what a split costs grows with its parts and with all blocks.
double small_time(const MatmulSizes& sizes, const MatmulConfig& c) {
  const bool narrow = c.block_n == 32;
  const int64_t steps = ceil_div(ceil_div(sizes.k, kStepDepth), c.splits),
                blocks = tile_count(sizes, c) * c.splits;
  const auto sharing = static_cast<double>(ceil_div(blocks, kMultiprocessors));
  const double step = std::max(narrow ? 0.39 : 0.36, (narrow ? 0.23 : 0.285) * sharing);
  double time = 1.9 + static_cast<double>(steps) * step;
  if (c.splits > 1) time += 0.1 + 0.2 * c.splits + 0.013 * static_cast<double>(blocks) * (c.block_n / 64.0);
  return time;
}

std::vector<ConvConfig> small_configs(const MatmulSizes& sizes) {
  std::vector<ConvConfig> configs;
  for (const MatmulConfig& tile : matmul_tiles(MatmulFamily::mma, 4)) {
    if (tile.block_m != 64) continue;
    for (int parts = 1; parts <= kMaxCluster; parts *= 2) {
      if (parts > 1 && ceil_div(sizes.k, kStepDepth) < 2 * parts) break;
      const MatmulConfig config = split(tile, parts);
      configs.push_back({config, small_time(sizes, config)});
    }
  }
  std::stable_sort(configs.begin(), configs.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return configs;
}

}  // namespace

std::vector<ConvConfig> gathered_configs(const MatmulSizes& sizes, int arch) {
  std::vector<ConvConfig> configs;
  if (arch < 90) {
    for (const MatmulConfig& config : matmul_configs(sizes, MatmulFamily::mma, arch, 4))
      configs.push_back(estimated(sizes, config));
    return configs;
  }
  const bool is_large = tile_count(sizes, wgmma(128, 64, 3)) >= kMultiprocessors;
  configs = is_large ? large_configs(sizes) : small_configs(sizes);
  for (const ConvConfig& other : is_large ? small_configs(sizes) : large_configs(sizes))
    configs.push_back(other);
  return configs;
}

// Of few maps and many pixels, or with a short K, higher and narrower tiles: they read the weights less
// often, and three blocks on a multiprocessor hide more of the epilogue, which decides then, than two.
std::vector<ConvConfig> boxed_configs(const MatmulSizes& sizes, int arch) {
  constexpr int64_t kShortDepth = 256;
  const MatmulConfig narrow{.family = MatmulFamily::wgmma,
                            .block_m = 128,
                            .block_n = 64,
                            .stages = 3,
                            .warpgroups = 2,
                            .resident = 3};
  const int64_t tiles = tile_count(sizes, narrow);
  const bool is_best = tiles >= 2 * kMultiprocessors && (sizes.n <= 64 || sizes.k <= kShortDepth);
  std::vector<ConvConfig> configs;
  // Boxes of pixels are stored by the warps that multiply.
  for (const MatmulConfig& config : matmul_configs(sizes, MatmulFamily::wgmma, arch, 4))
    if (!config.handed) configs.push_back(estimated(sizes, config));
  configs.insert(is_best ? configs.begin() : configs.end(), estimated(sizes, narrow));
  return configs;
}

}  // namespace aicf
