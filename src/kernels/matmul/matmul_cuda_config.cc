#include "kernels/matmul/matmul_cuda_config.h"

#include <algorithm>
#include <cmath>

namespace aicf {
namespace {

constexpr int64_t kMultiprocessors = 132;  // H100; smaller chips run more waves of the same tiles
constexpr int kClusterArch = 90;
constexpr int kDepth = 64;  // of K in a step

// Clock cycles of an H100 and bytes per cycle, fitted to measurements of the tiles below; only ratios matter.
constexpr double kStart = 3400;        // launch, first loads, last stores
constexpr double kMemoryBytes = 1750;  // device memory, whole chip
constexpr double kL2Bytes = 5300;      // L2 cache, whole chip
constexpr double kSharedBytes = 128;   // shared memory, one multiprocessor
constexpr double kLoadLatency = 2600;  // from a load's start until its stage is full, while memory is busy
constexpr double kStepOverhead = 100;  // barriers between stages
constexpr double kResultCycles = 0.2;  // of a result in the epilogue
constexpr double kBehindMemory = 0.1;  // share of other work that adds to the time of the memory
constexpr double kClusterSum = 2800;   // barriers and reads of other blocks' shared memory,
constexpr double kClusterSumPerPart = 400;  //   and for each part
constexpr double kWorkspaceSum = 6000;      // a second launch

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks that run at a time. Clusters of four and eight leave multiprocessors of a processing cluster idle.
int64_t capacity(const MatmulConfig& c) {
  const int64_t resident = c.family == MatmulFamily::wgmma ? c.resident : 2;
  if (!c.cluster || c.splits < 4) return kMultiprocessors * resident;
  return (c.splits == 4 ? 120 : 112) * resident;
}

// Cycles of a step of one block that has its multiprocessor for itself.
double step_cycles(const MatmulConfig& c) {
  const double results = static_cast<double>(c.block_m) * c.block_n,
               loaded = (c.block_m + c.block_n) * kDepth * 2;
  if (c.family == MatmulFamily::simt)
    return results * kDepth / (results >= 128 * 128 ? 80 : results >= 64 * 64 ? 50 : 25);
  // The matrix units read their operands from shared memory once per warp or warpgroup.
  const double rows = c.family == MatmulFamily::wgmma ? 64 : c.warp_m;
  const double columns = c.family == MatmulFamily::wgmma ? c.block_n : c.warp_n;
  const double read = results / rows / columns * (rows + columns) * kDepth * 2;
  return std::max(results * kDepth / 2048, (read + loaded) / kSharedBytes) + kStepOverhead;
}

// Splitting buys parallelism for a cost that does not pay for short K.
std::vector<int> splits_of(const MatmulConfig& c, int64_t k, int arch) {
  std::vector<int> splits{1};
  if (c.warpgroups > 1 && c.resident > 1) return splits;
  const int most = arch >= kClusterArch ? 8 : 32;
  for (int s = 2; s <= most && ceil_div(k, kDepth) >= 2 * s; s *= 2) splits.push_back(s);
  return splits;
}

}  // namespace

std::vector<MatmulConfig> matmul_tiles(MatmulFamily family, int element_bytes) {
  const auto simt = [](int m, int n) {
    return MatmulConfig{.family = MatmulFamily::simt, .block_m = m, .block_n = n};
  };
  const auto mma = [](int m, int n, int warp_m, int warp_n, int stages) {
    return MatmulConfig{.family = MatmulFamily::mma,
                        .block_m = m,
                        .block_n = n,
                        .warp_m = warp_m,
                        .warp_n = warp_n,
                        .stages = stages};
  };
  const auto wgmma = [](int m, int n, int warpgroups, int stages, int resident) {
    return MatmulConfig{.family = MatmulFamily::wgmma,
                        .block_m = m,
                        .block_n = n,
                        .stages = stages,
                        .warpgroups = warpgroups,
                        .resident = resident};
  };
  switch (family) {
    case MatmulFamily::simt:
      if (element_bytes == 8) return {simt(64, 64), simt(32, 32)};
      return {simt(128, 128), simt(64, 64), simt(32, 32)};
    case MatmulFamily::mma:
      // At most 96 KiB of stages: what a block of sm_86 and sm_89 can have.
      return {mma(128, 128, 64, 32, 3), mma(128, 64, 32, 32, 4), mma(64, 64, 32, 32, 4),
              mma(64, 32, 16, 32, 5),   mma(16, 128, 16, 32, 5), mma(16, 64, 16, 32, 6)};
    default:
      // Pipelines of at most 224 KiB, of 112 KiB where two blocks share a multiprocessor.
      return {wgmma(256, 128, 2, 4, 1), wgmma(128, 192, 2, 5, 1), wgmma(128, 128, 2, 6, 1),
              wgmma(128, 128, 2, 3, 2), wgmma(128, 96, 2, 7, 1),  wgmma(128, 64, 2, 8, 1),
              wgmma(64, 64, 1, 7, 2),   wgmma(64, 32, 1, 8, 2)};
  }
}

double matmul_cycles(const MatmulSizes& sizes, const MatmulConfig& c) {
  const int64_t blocks = sizes.batch * ceil_div(sizes.m, c.block_m) * ceil_div(sizes.n, c.block_n) * c.splits;
  const double running = static_cast<double>(std::min(blocks, capacity(c)));
  const double waves = static_cast<double>(ceil_div(blocks, capacity(c)));
  const double sharing = std::ceil(running / kMultiprocessors);  // blocks on a multiprocessor
  const double steps = static_cast<double>(ceil_div(ceil_div(sizes.k, kDepth), c.splits));
  const double loaded = (c.block_m + c.block_n) * kDepth * 2;
  const double step =
      std::max({step_cycles(c) * sharing, loaded * running / kL2Bytes, kLoadLatency / c.stages});
  const double results = static_cast<double>(c.block_m) * c.block_n;
  double cycles = waves * (steps * step + results * kResultCycles * sharing / (c.cluster ? c.splits : 1));
  const double touched = static_cast<double>(sizes.batch) * 2 *
                         (static_cast<double>(sizes.m) * sizes.k + static_cast<double>(sizes.k) * sizes.n +
                          static_cast<double>(sizes.m) * sizes.n);
  // Behind the memory's time the rest does not hide entirely.
  cycles = kStart + std::max(cycles, touched / kMemoryBytes + kBehindMemory * cycles);
  if (c.splits > 1) cycles += c.cluster ? kClusterSum + kClusterSumPerPart * c.splits : kWorkspaceSum;
  return cycles;
}

MatmulConfig choose_matmul(const MatmulSizes& sizes, MatmulFamily family, int arch, int element_bytes) {
  MatmulConfig best;
  double best_cycles = -1;
  for (const MatmulConfig& tile : matmul_tiles(family, element_bytes))
    for (const int splits : splits_of(tile, sizes.k, arch)) {
      // Rows of y along n come in panels of 64.
      if (family == MatmulFamily::wgmma && !sizes.y_along_k && tile.block_n % 64 != 0) continue;
      MatmulConfig config = tile;
      config.splits = splits;
      config.cluster = splits > 1 && arch >= kClusterArch;
      const double cycles = matmul_cycles(sizes, config);
      if (best_cycles >= 0 && cycles >= best_cycles) continue;
      best = config;
      best_cycles = cycles;
    }
  // Of up to eight rows a stage holds no more: room for more stages.
  constexpr int kStageMemory = 96 * 1024, kMostStages = 16;
  if (family == MatmulFamily::wgmma && sizes.m <= 8 && best.block_m == 64)
    best.stages = std::min(kMostStages, kStageMemory / ((8 + best.block_n) * 128));
  return best;
}

std::string to_string(const MatmulConfig& c) {
  static constexpr const char* kNames[] = {"simt", "mma", "wgmma"};
  std::string text = std::string(kNames[static_cast<int>(c.family)]) + " " + std::to_string(c.block_m) + "x" +
                     std::to_string(c.block_n) + " stages " + std::to_string(c.stages);
  if (c.splits > 1) text += " splits " + std::to_string(c.splits) + (c.cluster ? " cluster" : " workspace");
  if (c.warpgroups > 0) text += " warpgroups " + std::to_string(c.warpgroups);
  if (c.resident > 1) text += " resident " + std::to_string(c.resident);
  return text;
}

}  // namespace aicf
