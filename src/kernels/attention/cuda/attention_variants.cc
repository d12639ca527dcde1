// The ways of attention_wgmma. The row's own choice follows from attention_tile; the estimates order what the
// tuner looks at first and count where measurements of like problems order candidates.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/attention/cuda/attention_cuda.h"
#include "kernels/attention/cuda/attention_text.h"

namespace aicf {
namespace {

std::string to_string(const AttentionTile& tile) {
  static constexpr const char* kNames[] = {"simt", "mma", "split", "wgmma", "short"};
  std::string text = std::string(kNames[static_cast<int>(tile.unit)]) + " " + std::to_string(tile.rows) +
                     "x" + std::to_string(tile.keys);
  if (tile.cluster > 1) text += " cluster " + std::to_string(tile.cluster);
  return text;
}

// The row's choice first.
std::vector<AttentionTile> tiles_of(const CudaProblem& problem) {
  std::vector<AttentionTile> tiles{attention_tile(problem, AttentionUnit::kWgmma)};
  for (const AttentionTile& tile :
       {AttentionTile{AttentionUnit::kWgmma, 192, 128}, AttentionTile{AttentionUnit::kWgmma, 128, 128},
        AttentionTile{AttentionUnit::kShort, 128, 128}, AttentionTile{AttentionUnit::kShort, 64, 128},
        AttentionTile{AttentionUnit::kMma, 128, 64, 4}, AttentionTile{AttentionUnit::kMma, 64, 64, 4},
        AttentionTile{AttentionUnit::kMma, 64, 128, 4}, AttentionTile{AttentionUnit::kMma, 32, 64, 2}})
    if (attention_tile_fits(problem, tile) && !(tile == tiles.front())) tiles.push_back(tile);
  return tiles;
}

// Multiply-adds of one multiprocessor per cycle, tiles that it works on at a time, and the rounds of tiles.
double microseconds(const AttentionSizes& sizes, const AttentionTile& tile) {
  constexpr double kWgmma = 1300, kMma = 500, kStart = 3400;
  const bool wgmma = tile.unit == AttentionUnit::kWgmma || tile.unit == AttentionUnit::kShort;
  const double resident = tile.unit == AttentionUnit::kWgmma ? 1 : 3;
  const double tiles = sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / tile.rows);
  const double rounds = std::ceil(tiles / (resident * static_cast<double>(kMultiprocessors))) * resident;
  // With a window all rows see about as many keys, causal or not.
  const double share = sizes.causal && sizes.window == 0 ? 0.5 : 1.0;
  const double seen = share * std::ceil(seen_keys(sizes, tile.rows) / tile.keys) * tile.keys;
  const double products = tile.rows * seen * static_cast<double>(sizes.depth + sizes.value_depth);
  return (kStart + rounds * products / (wgmma ? kWgmma : kMma)) / kCyclesPerMicrosecond;
}

}  // namespace

std::vector<KernelVariant> attention_wgmma_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const AttentionTile& tile : tiles_of(problem))
    variants.push_back({to_string(tile), microseconds(sizes_of(problem), tile)});
  return variants;
}

AttentionTile attention_wgmma_tile(const CudaProblem& problem) {
  for (const AttentionTile& tile : tiles_of(problem))
    if (problem.variant.empty() || problem.variant == to_string(tile)) return tile;
  AICF_CHECK(false, "attention without this variant: " + problem.variant);
}

CudaCode generate_attention_wgmma(const CudaProblem& problem) {
  return attention_code(problem, attention_wgmma_tile(problem));
}

}  // namespace aicf
