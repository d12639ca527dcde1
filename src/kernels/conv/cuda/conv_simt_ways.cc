#include "kernels/conv/cuda/conv_simt_ways.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/conv/cuda/conv_cycles.h"
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
constexpr double kLatency = 1300;                          // from a load's start until its stage is full
constexpr double kStep = 40;                               // of a warp: barrier, next tap
constexpr double kLoad = 5, kFarLoad = 8, kFlatLoad = 32;  // instructions of a load of x: of neighbouring
                                                           // pixels, of channels, of any step of K
constexpr double kAlone = 1.3;                             // of instructions of a warp that nobody else hides
constexpr double kClusterBase = 900, kClusterPart = 285, kClusterGroup = 600, kWorkspaceSum = 6000;
constexpr double kBarrier = 250;  // of a block alone, whose warps wait for one another
constexpr double kLine = 2;       // of a line of memory that a warp's load touches
constexpr double kLineBytes = 128;
constexpr double kStore = 12;        // of four results, one warp
constexpr double kPartBytes = 3000;  // per cycle, of parts in the L2 cache
constexpr double kSector = 32;       // bytes of the L2 cache that come at once
constexpr double kSectorBytes = 32;  // per cycle, of a multiprocessor

bool is_flat(const SimtSizes& sizes) {
  return round_up(sizes.channels, int64_t{8}) * 2 >= sizes.channels * 3;
}
// What lies closest of neighbouring steps of K, taps or channels, and how far apart.
bool steps_are_taps(const SimtSizes& sizes) {
  return is_flat(sizes) && (sizes.channels == 1 || sizes.w_tap_bytes < sizes.w_channel_bytes);
}
int64_t step_bytes(const SimtSizes& sizes) {
  return steps_are_taps(sizes) ? sizes.w_tap_bytes : sizes.w_channel_bytes;
}

// Of 32 weights that are loaded one by one: the lines of memory that they lie in, and what the L2 cache moves
// for each.
struct WeightRuns {
  double lines, bytes;
};
WeightRuns weight_runs(const SimtSizes& sizes, const Tile& t, const SimtSteps& all) {
  constexpr double kWarp = 32;
  const auto depth = static_cast<double>(all.depth), channels = static_cast<double>(sizes.channels);
  const bool by_steps = simt_loads_steps(sizes);
  const auto apart = static_cast<double>(by_steps ? step_bytes(sizes) : sizes.w_map_bytes);
  const double run = !by_steps               ? std::min<double>(t.maps, kWarp)
                     : steps_are_taps(sizes) ? std::max(1.0, depth / channels)
                                             : std::min(channels, depth);
  return {std::min(kWarp, kWarp / run * std::max(1.0, run * apart / kLineBytes)),
          std::min(kSector, std::max(apart, kSector / run))};
}

enum class WeightReads : uint8_t {
  in_fours,  // of neighbouring maps
  one_by_one,
};

double contraction_cycles(const SimtSizes& sizes, const Tile& t, const MatmulWay& way, WeightReads reads) {
  const SimtSteps all = simt_steps(sizes, way);
  const int threads = threads_of(t), parts = split_parts(way);
  const double warps = threads / 32.0, results = t.thread_maps * t.thread_pixels;
  const int64_t tiles = tiles_of(sizes, t);
  const int64_t blocks = tiles * parts, room = used_multiprocessors(way, sizes.machine) * t.min_blocks;
  const auto waves = static_cast<double>(std::max<int64_t>(1, ceil_div(blocks, room)));
  const auto sharing = static_cast<double>(std::min<int64_t>(
      std::max<int64_t>(1, ceil_div(blocks, used_multiprocessors(way, sizes.machine))), t.min_blocks));
  const auto steps = static_cast<double>(ceil_div(all.count, int64_t{parts}));
  const bool scattered = reads == WeightReads::one_by_one;
  const double loads = static_cast<double>(t.pixels) * all.depth / threads,
               weights = static_cast<double>(t.maps) * all.depth,
               w_loads = weights / (scattered ? 1 : 4) / threads;
  const double load = all.flat ? kFlatLoad : sizes.channels_fast ? kFarLoad : kLoad;
  const double words = static_cast<double>(sizes.element_bytes) / 4;
  const double issued = all.depth * (results * words + (t.thread_maps + t.thread_pixels) / 4.0 * words + 1) +
                        loads * load + w_loads * load + kStep;
  const WeightRuns runs = weight_runs(sizes, t, all);
  const double shared =
      words * (all.depth * (t.thread_maps / 4.0 + t.thread_pixels / 2.0) + kLine * sizes.lines * loads +
               (scattered ? kLine * runs.lines * w_loads : 0));
  const double far = scattered ? sharing * weights * runs.bytes / kSectorBytes : 0;
  const double busy = sharing * warps * std::max(issued / 4 * kConvBusy, shared) + kBarrier / sharing;
  const double step = std::max({busy, far, issued * kAlone, kLatency / (way.stages - 1)});
  double cycles = waves * steps * step + waves * results / 4 * kStore * sharing * warps / 4 / parts;
  if (splits_in_cluster(way))
    cycles +=
        waves * (kClusterBase + kClusterPart * parts + kClusterGroup * std::max(1.0, results / 4 / parts));
  if (splits_in_workspace(way))
    cycles += kWorkspaceSum + static_cast<double>(blocks * t.maps * t.pixels) * 8 / kPartBytes;
  const double bytes = static_cast<double>(sizes.batch) * 4 *
                       static_cast<double>(sizes.pixels * (sizes.maps + sizes.channels));
  return kConvStart + std::max(cycles, bytes / kConvMemoryBytes);
}

double packed_cycles(const SimtSizes& sizes, const Tile& t, const MatmulWay& way) {
  return kConvStart + 2 * sizes.w_bytes / kConvMemoryBytes +
         contraction_cycles(sizes, t, way, WeightReads::in_fours);
}

double cycles_of(const SimtSizes& sizes, const Tile& t, const MatmulWay& way) {
  if (sizes.maps_last) return contraction_cycles(sizes, t, way, WeightReads::in_fours);
  return std::min(packed_cycles(sizes, t, way), contraction_cycles(sizes, t, way, WeightReads::one_by_one));
}

}  // namespace

bool simt_packs_weights(const SimtSizes& sizes, const MatmulWay& way) {
  const Tile& t = simt_tile(way);
  return !sizes.maps_last &&
         packed_cycles(sizes, t, way) < contraction_cycles(sizes, t, way, WeightReads::one_by_one);
}

bool simt_loads_steps(const SimtSizes& sizes) {
  return !sizes.maps_last && step_bytes(sizes) <= sizes.w_map_bytes;
}

ConvSimtThread conv_simt_thread(const MatmulWay& way) {
  const Tile& t = simt_tile(way);
  return {t.thread_maps, t.thread_pixels, threads_of(t), t.min_blocks};
}

SimtSteps simt_steps(const SimtSizes& sizes, const MatmulWay& way) {
  constexpr int kMostLoads = 32;  // of a thread in a step: their addresses take registers
  const int64_t k = sizes.taps * sizes.channels;
  SimtSteps steps;
  steps.flat = is_flat(sizes);
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
