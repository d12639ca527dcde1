#include "kernels/matmul/matmul_cuda_config.h"

#include <algorithm>

namespace aicf {
namespace {

constexpr int64_t kMultiprocessors = 132;  // H100; smaller chips run more waves of the same tiles
constexpr int kClusterArch = 90;
constexpr int kMaxCluster = 8;  // blocks, on every chip that has clusters
// Bytes per cycle that the L2 cache gives one multiprocessor while all read.
constexpr double kL2Bytes = 32;
constexpr double kDepth = 64;             // elements of K that the estimates count in
constexpr double kStart = 1800;           // first loads, last stores
constexpr double kClusterSum = 900;       // barrier and reads of other blocks' shared memory
constexpr double kWorkspaceSum = 5000;    // a second launch
constexpr double kEpilogueOutputs = 12;   // results per cycle
constexpr double kStepLatency[] = {60, 220, 110};  // of a step's barrier and dependent instructions, by family

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Multiply-adds per cycle of one multiprocessor.
double rate(const MatmulConfig& c) {
  switch (c.family) {
    case MatmulFamily::simt:
      return c.block_m * c.block_n >= 128 * 128 ? 95 : c.block_m * c.block_n >= 64 * 64 ? 70 : 35;
    case MatmulFamily::mma:
      return 1200.0 * std::min(1.0, c.warp_m * c.warp_n / 2048.0 * 0.5 + 0.5);
    default:
      return 1700;
  }
}

double step_cycles(const MatmulConfig& c) {
  const double math = static_cast<double>(c.block_m) * c.block_n * kDepth / rate(c);
  const double bytes = (c.block_m + static_cast<double>(c.block_n) / c.multicast) * kDepth * 2;
  return std::max({math, bytes / kL2Bytes, kStepLatency[static_cast<int>(c.family)]});
}

// Splitting buys parallelism for a cost that does not pay for short K.
std::vector<int> splits_of(const MatmulConfig& c, int64_t k, int arch) {
  std::vector<int> splits{1};
  if (c.ping_pong || c.multicast > 1) return splits;
  const int most = arch >= kClusterArch ? kMaxCluster : 32;
  for (int s = 2; s <= most && ceil_div(k, static_cast<int64_t>(kDepth)) >= 2 * s; s *= 2) splits.push_back(s);
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
  const auto wgmma = [](int m, int n, int warpgroups, int stages) {
    return MatmulConfig{.family = MatmulFamily::wgmma,
                        .block_m = m,
                        .block_n = n,
                        .stages = stages,
                        .warpgroups = warpgroups};
  };
  const auto ping_pong = [&](int m, int n, int stages) {
    MatmulConfig c = wgmma(m, n, 2, stages);
    c.ping_pong = true;
    return c;
  };
  const auto multicast = [](MatmulConfig c) {
    c.multicast = 2;
    return c;
  };
  switch (family) {
    case MatmulFamily::simt:
      if (element_bytes == 8) return {simt(64, 64), simt(32, 32)};
      return {simt(128, 128), simt(64, 64), simt(32, 32)};
    case MatmulFamily::mma:
      // At most 96 KiB of stages: what a block of sm_86 and sm_89 can have.
      return {mma(128, 128, 64, 32, 3), mma(128, 64, 32, 32, 4), mma(64, 64, 32, 32, 4), mma(64, 32, 16, 32, 5),
              mma(16, 128, 16, 32, 5), mma(16, 64, 16, 32, 6)};
    default:
      // Pipelines of at most 224 KiB. The last rows are for few rows of x: y streams past.
      return {wgmma(256, 128, 2, 4), wgmma(128, 256, 2, 4), wgmma(128, 192, 2, 5), wgmma(128, 128, 2, 6),
              wgmma(128, 96, 2, 7),  wgmma(128, 64, 2, 8),  ping_pong(128, 128, 6), multicast(ping_pong(128, 128, 6)),
              multicast(wgmma(128, 256, 2, 4)),
              wgmma(64, 128, 1, 8),  wgmma(64, 64, 1, 8),   wgmma(64, 32, 1, 8)};
  }
}

double matmul_cycles(const MatmulSizes& sizes, const MatmulConfig& c) {
  const int64_t tiles = sizes.batch * ceil_div(sizes.m, c.block_m) * ceil_div(sizes.n, c.block_n);
  const int64_t blocks = tiles * c.splits;
  const double steps =
      static_cast<double>(ceil_div(ceil_div(sizes.k, static_cast<int64_t>(kDepth)), c.splits));
  const double waves = static_cast<double>(ceil_div(blocks, kMultiprocessors));
  const double results = static_cast<double>(c.block_m) * c.block_n;
  double cycles = waves * (steps * step_cycles(c) + results / kEpilogueOutputs / (c.cluster ? c.splits : 1)) + kStart;
  if (c.splits > 1) cycles += c.cluster ? kClusterSum + results / 16 : kWorkspaceSum;
  return cycles;
}

MatmulConfig choose_matmul(const MatmulSizes& sizes, MatmulFamily family, int arch, int element_bytes) {
  MatmulConfig best;
  double best_cycles = -1;
  for (const MatmulConfig& tile : matmul_tiles(family, element_bytes))
    for (const int splits : splits_of(tile, sizes.k, arch)) {
      MatmulConfig config = tile;
      config.splits = splits;
      config.cluster = splits > 1 && arch >= kClusterArch;
      const double cycles = matmul_cycles(sizes, config);
      if (best_cycles >= 0 && cycles >= best_cycles) continue;
      best = config;
      best_cycles = cycles;
    }
  return best;
}

std::string to_string(const MatmulConfig& c) {
  static constexpr const char* kNames[] = {"simt", "mma", "wgmma"};
  std::string text = std::string(kNames[static_cast<int>(c.family)]) + " " + std::to_string(c.block_m) + "x" +
                     std::to_string(c.block_n) + " stages " + std::to_string(c.stages);
  if (c.splits > 1) text += " splits " + std::to_string(c.splits) + (c.cluster ? " cluster" : " workspace");
  if (c.warpgroups > 0) text += " warpgroups " + std::to_string(c.warpgroups);
  if (c.ping_pong) text += " ping-pong";
  if (c.multicast > 1) text += " multicast " + std::to_string(c.multicast);
  return text;
}

}  // namespace aicf
