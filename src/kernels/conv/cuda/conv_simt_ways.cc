#include "kernels/conv/cuda/conv_simt_ways.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cycles.h"

namespace aicf {
namespace {

struct Tile {
  int maps, pixels;                // of a block
  int thread_maps, thread_pixels;  // of a thread
  int min_blocks;                  // for which registers are left
  int stages;
};
constexpr std::array kTiles = {
    Tile{128, 128, 8, 8, 2, 3}, Tile{96, 128, 12, 8, 2, 3}, Tile{48, 128, 12, 8, 4, 3},
    Tile{64, 128, 8, 8, 4, 3},  Tile{128, 64, 8, 8, 4, 3},  Tile{64, 64, 8, 4, 5, 4},
    Tile{32, 128, 4, 8, 5, 4},  Tile{32, 64, 4, 4, 5, 4},   Tile{32, 32, 4, 4, 10, 5},
    Tile{16, 128, 4, 8, 8, 4},  Tile{16, 64, 4, 4, 10, 5},  Tile{8, 128, 4, 4, 8, 4},
    Tile{4, 256, 4, 4, 5, 4}};

const Tile& simt_tile(const MatmulWay& way) {
  const auto tile = std::find_if(kTiles.begin(), kTiles.end(), [&](const Tile& t) {
    return t.maps == way.block_m && t.pixels == way.block_n;
  });
  AICF_CHECK(tile != kTiles.end(), "a tile of no convolution: " + to_string(way));
  return *tile;
}

int64_t tiles_of(const SimtSizes& sizes, const Tile& t) {
  return sizes.batch * ceil_div(sizes.maps, int64_t{t.maps}) * ceil_div(sizes.pixels, int64_t{t.pixels});
}
int threads_of(const Tile& t) { return t.maps / t.thread_maps * (t.pixels / t.thread_pixels); }

// Clock cycles of an H100.
constexpr double kStart = 3900;                            // launch, first loads, last stores
constexpr double kLatency = 1300;                          // from a load's start until its stage is full
constexpr double kStep = 40;                               // of a warp: barrier, next tap
constexpr double kLoad = 5, kFarLoad = 8, kFlatLoad = 32;  // instructions of a load of x: of neighbouring
                                                           // pixels, of channels, of any step of K
constexpr double kAlone = 1.3;                             // of instructions of a warp that nobody else hides
constexpr double kBusy = 1.12;                             //   and of warps that fill their scheduler
constexpr double kClusterBase = 900, kClusterPart = 285, kClusterGroup = 600, kWorkspaceSum = 6000;
constexpr double kBarrier = 250;  // of a block alone, whose warps wait for one another
constexpr double kLine = 2;       // of a line of memory that a warp's load touches
constexpr double kStore = 12;     // of four results, one warp
constexpr double kMemoryBytes = 1750,
                 kPartBytes = 3000;  // per cycle, of device memory and of parts in the L2 cache

double cycles_of(const SimtSizes& sizes, const Tile& t, const MatmulWay& way) {
  const SimtSteps all = simt_steps(sizes, way);
  const int threads = threads_of(t), parts = split_parts(way);
  const double warps = threads / 32.0, results = t.thread_maps * t.thread_pixels;
  const int64_t tiles = tiles_of(sizes, t);
  const int64_t blocks = tiles * parts, room = used_multiprocessors(way, sizes.machine) * t.min_blocks;
  const auto waves = static_cast<double>(std::max<int64_t>(1, ceil_div(blocks, room)));
  const auto sharing = static_cast<double>(std::min<int64_t>(
      std::max<int64_t>(1, ceil_div(blocks, used_multiprocessors(way, sizes.machine))), t.min_blocks));
  const auto steps = static_cast<double>(ceil_div(all.count, int64_t{parts}));
  const double loads = static_cast<double>(t.pixels) * all.depth / threads;
  const double load = all.flat ? kFlatLoad : sizes.channels_fast ? kFarLoad : kLoad;
  const double words = static_cast<double>(sizes.element_bytes) / 4;
  const double issued = all.depth * (results * words + (t.thread_maps + t.thread_pixels) / 4.0 * words + 1) +
                        loads * load + static_cast<double>(t.maps) * all.depth / 4 / threads * load + kStep;
  const double shared =
      words * (all.depth * (t.thread_maps / 4.0 + t.thread_pixels / 2.0) + kLine * sizes.lines * loads);
  const double busy = sharing * warps * std::max(issued / 4 * kBusy, shared) + kBarrier / sharing;
  const double step = std::max({busy, issued * kAlone, kLatency / (way.stages - 1)});
  double cycles = waves * steps * step + waves * results / 4 * kStore * sharing * warps / 4 / parts;
  if (splits_in_cluster(way))
    cycles +=
        waves * (kClusterBase + kClusterPart * parts + kClusterGroup * std::max(1.0, results / 4 / parts));
  if (splits_in_workspace(way))
    cycles += kWorkspaceSum + static_cast<double>(blocks * t.maps * t.pixels) * 8 / kPartBytes;
  const double bytes = static_cast<double>(sizes.batch) * 4 *
                       static_cast<double>(sizes.pixels * (sizes.maps + sizes.channels));
  return kStart + std::max(cycles, bytes / kMemoryBytes);
}

}  // namespace

ConvSimtThread conv_simt_thread(const MatmulWay& way) {
  const Tile& t = simt_tile(way);
  return {t.thread_maps, t.thread_pixels, threads_of(t), t.min_blocks};
}

SimtSteps simt_steps(const SimtSizes& sizes, const MatmulWay& way) {
  constexpr int kMostLoads = 32;  // of a thread in a step: their addresses take registers
  const int64_t k = sizes.taps * sizes.channels;
  SimtSteps steps;
  steps.flat = round_up(sizes.channels, int64_t{8}) * 2 >= sizes.channels * 3;
  const bool deep = steps.flat ? k >= 64 : round_up(sizes.channels, int64_t{16}) * 10 <= sizes.channels * 11;
  steps.depth = deep && way.block_n * 16 / threads_of(simt_tile(way)) <= kMostLoads ? 16 : 8;
  steps.count = steps.flat ? ceil_div(k, int64_t{steps.depth})
                           : sizes.taps * ceil_div(sizes.channels, int64_t{steps.depth});
  return steps;
}

int64_t simt_shared_bytes(const SimtSizes& sizes, const MatmulWay& way) {
  constexpr int64_t kPad = 4;
  const int64_t stage = (way.block_m + way.block_n + 2 * kPad) * simt_steps(sizes, way).depth;
  const int64_t results = splits_in_cluster(way) ? int64_t{way.block_m} * way.block_n : 0;
  return std::max(stage * way.stages, results) * sizes.element_bytes;
}

std::vector<PricedMatmul> simt_ways(const SimtSizes& sizes, int arch) {
  constexpr int kMostResults = 32;  // of a thread, in f64
  constexpr int kMostCluster = 8;
  const int64_t most_blocks = 4 * sizes.machine.filling_blocks();  // that share K
  const bool clusters = arch >= 90;
  std::vector<PricedMatmul> ways;
  for (const Tile& t : kTiles) {
    if (sizes.element_bytes == 8 && t.thread_maps * t.thread_pixels > kMostResults) continue;
    for (const int parts : {1, 2, 4, 8, 16, 32, 64}) {
      MatmulWay way{.unit = MatmulUnit::simt, .block_m = t.maps, .block_n = t.pixels, .stages = t.stages};
      const bool is_long = simt_steps(sizes, way).count >= 2 * parts;
      if (parts > 1 && (!is_long || tiles_of(sizes, t) * parts > most_blocks)) break;
      const bool in_cluster = clusters && parts <= kMostCluster;
      if (parts > 1) way.split = {in_cluster ? SplitKind::cluster : SplitKind::workspace, parts};
      ways.push_back({way, cycles_of(sizes, t, way) / kCyclesPerMicrosecond});
    }
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return ways;
}

}  // namespace aicf
