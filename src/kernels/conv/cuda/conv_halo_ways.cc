#include "kernels/conv/cuda/conv_halo_ways.h"

#include <algorithm>

#include "base/rounding.h"
#include "kernels/conv/cuda/conv_cycles.h"

namespace aicf {
namespace {

constexpr int64_t kChunk = 8, kBlockRows = 64;     // channels; rows of an instruction
constexpr int64_t kMostMaps = 256, kFewMaps = 24;  // of a slice; of one that is not cut further
constexpr int64_t kMostWarpgroups = 4, kMostBuffers = 2;
constexpr int64_t kMostBlocks = 8;  // of a box
constexpr size_t kMostPlans = 8;

// HaloBox and ConvHalo in conv_halo.cuh, in units of 16 bytes.
struct HaloLayout {
  int64_t chunks, taps, steps;
  int64_t phases_h, phases_w, height, width, plane, blocks, overhang, zeros;

  HaloLayout(const BoxedWindows& w, const ResultBox& box, bool patches) {
    chunks = ceil_div(w.channels, kChunk);
    taps = w.taps();
    steps = taps * (chunks / 2) + (chunks % 2 == 1 ? ceil_div(taps, int64_t{2}) : 0);
    phases_h = w.kernel[0] > 1 ? w.stride[0] : 1;
    phases_w = w.kernel[1] > 1 ? w.stride[1] : 1;
    height = box.rows + (w.kernel[0] - 1) * w.dilation[0] / w.stride[0];
    width = box.columns + (w.kernel[1] - 1) * w.dilation[1] / w.stride[1];
    const int64_t positions = phases_h * phases_w * height * width;
    constexpr int64_t kBanks[] = {0, 0, 4, 3, 2};
    const int64_t bank = chunks == 1 ? positions % 8 : chunks <= 4 ? kBanks[chunks] : 5;
    plane = positions + (bank + 8 - positions % 8) % 8;
    blocks = patches ? box.rows / 8 * (box.columns / 8)
                     : ceil_div((box.rows - 1) * width + box.columns, kBlockRows);
    overhang = patches ? 0 : std::max<int64_t>(0, last_tap(w) + kBlockRows * blocks - positions);
    zeros = chunks % 2 == 1 && taps % 2 == 1 ? 7 * (patches ? width : 8) + 8 : 0;
  }
  int64_t positions() const { return phases_h * phases_w * height * width; }
  int64_t box_units() const { return chunks * plane; }
  int64_t shared_bytes(int64_t maps, int64_t boxes) const {
    return 16 * (steps * 2 * (maps + 1) + boxes * box_units() + overhang + zeros);
  }

 private:
  // The offset of the tap that lies farthest behind the first.
  int64_t last_tap(const BoxedWindows& w) const {
    int64_t most = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t row = tap / w.kernel[1] * w.dilation[0], column = tap % w.kernel[1] * w.dilation[1];
      const int64_t phase = row % w.stride[0] * phases_w + column % w.stride[1];
      most = std::max(most, phase * height * width + row / w.stride[0] * width + column / w.stride[1]);
    }
    return most;
  }
};

struct Cut {
  ResultBox box;
  bool patches;
};

// Boxes as wide as evenly cut rows, and patches of whole eights.
std::vector<Cut> possible_cuts(int64_t height, int64_t width) {
  constexpr int64_t kMostRows = 32, kMostColumns = 128;
  std::vector<Cut> cuts;
  for (int64_t columns = std::min(width, kMostColumns); columns >= 1; --columns) {
    if (columns != ceil_div(width, ceil_div(width, columns))) continue;
    for (int64_t rows = 1; rows <= std::min(height, kMostRows); ++rows)
      cuts.push_back({{rows, columns}, false});
  }
  for (int64_t rows = 8; rows <= std::min(round_up(height, int64_t{8}), kMostRows); rows += 8)
    for (int64_t columns = 8; columns <= std::min(round_up(width, int64_t{8}), kMostRows); columns += 8)
      cuts.push_back({{rows, columns}, true});
  return cuts;
}

// Registers of a thread beside its results.
int64_t registers_left(int64_t warpgroups, int64_t maps, int64_t together) {
  constexpr int64_t kAll = 65536, kMost = 255;
  return std::min(kMost, kAll / (128 * warpgroups)) - together * maps / 2;
}

// As many blocks of rows as registers have room for beside the epilogue.
int64_t blocks_together(int64_t blocks, int64_t maps, int64_t warpgroups) {
  constexpr int64_t kMost = 4, kEpilogue = 64, kOfBlock = 8;  // registers
  for (int64_t together = std::min(blocks, kMost); together >= 1; --together)
    if (blocks % together == 0 &&
        registers_left(warpgroups, maps, together) >= kEpilogue + kOfBlock * together)
      return together;
  return 0;
}

// Cycles of a multiprocessor for a box of each of so many warpgroups: of what they share the sum, or a
// warpgroup's own time.
struct BoxCycles {
  double multiply, issue, bytes;  // of a box: the matrix units; the schedulers; moved
  double alone;                   // of a warpgroup with nothing else to do

  double of(double warpgroups) const {
    constexpr double kBytes = 24;  // a cycle, to and from the L2 cache
    return std::max({warpgroups * multiply, warpgroups * issue, warpgroups * bytes / kBytes, alone});
  }
};

BoxCycles box_cycles(const HaloSizes& s, const HaloLayout& layout, const HaloPlan& plan) {
  constexpr double kLatency = 1100, kEpilogue = 500,
                   kStart = 150;                             // until memory answers; of a warp; of products
  constexpr double kLoad = 26, kElement = 22, kResult = 12;  // instructions
  constexpr double kLanes = 128, kMapCycles = 0.5;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double maps = number(plan.maps), rows = number(kBlockRows * layout.blocks);
  // Rows of a step come from shared memory, 2 KiB at 128 bytes a cycle, and the weights.
  const double instruction = std::max(kMapCycles * maps, 16 + maps / 4);
  const double loads =
      number(layout.positions() * layout.chunks) * (s.by_elements ? kChunk * kElement : kLoad);
  BoxCycles cycles;
  cycles.multiply = number(layout.blocks * layout.steps) * instruction;
  cycles.issue = (loads + rows * maps * kResult) / kLanes;
  cycles.bytes =
      number(layout.positions() * layout.chunks * 16) + number(plan.box.results()) * maps * s.result_bytes;
  // Its own warps have a scheduler each.
  const double own_results = rows * maps * kResult / kLanes * 2 + kEpilogue;
  const double own_loads = loads / kLanes + kLatency;
  cycles.alone = cycles.multiply + kStart + own_results +
                 (plan.buffers == 1 ? std::max(0.0, own_loads - own_results) : 0);
  return cycles;
}

double microseconds_of(const HaloSizes& s, const HaloLayout& layout, const HaloPlan& plan) {
  constexpr double kWeightBytes = 30, kWeightStart = 1200;  // a cycle of a multiprocessor
  // What the steps of a box take, which wait for each other, as a multiple of their work: of 28 layers on an
  // H200 1.7 to 3.2, strided ones 2.7 to 3.8; of single elements.
  constexpr double kWaits = 2.4, kStridedWaits = 4, kElementWaits = 6;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const int64_t boxes = s.images * ceil_div(s.height, plan.box.rows) * ceil_div(s.width, plan.box.columns);
  const BoxCycles cycles = box_cycles(s, layout, plan);
  const int64_t round = plan.blocks * plan.warpgroups, full = boxes / round, left = boxes % round;
  double sum = number(full) * cycles.of(number(plan.warpgroups));
  if (left > 0) sum += cycles.of(number(ceil_div(left, plan.blocks)));
  const bool strided = s.windows.stride[0] * s.windows.stride[1] > 1;
  sum *= s.by_elements ? kElementWaits : strided ? kStridedWaits : kWaits;
  const double weights = number(layout.steps * 32 * plan.maps);
  const double first =
      std::max(kWeightStart + weights / kWeightBytes * (s.weights_by_elements ? 8 : 1),
               kWeightStart + number(layout.box_units() * 16 * plan.warpgroups) / kWeightBytes);
  const double memory = (number(s.images * s.height * s.width * s.windows.stride[0] * s.windows.stride[1]) *
                             number(s.windows.channels) * 2 +
                         number(s.images * s.height * s.width * s.windows.maps) * s.result_bytes) /
                        kConvMemoryBytes;
  constexpr double kSectorMaps = 4;  // of a pixel that a warp stores at once, every second map
  const double scattered =
      number(s.scattered * s.images * s.height * s.width * s.windows.maps) / kSectorMaps / kConvSectors;
  return (kConvStart + first + kConvBusy * std::max(sum, memory) + scattered) / kCyclesPerMicrosecond;
}

// Slices of equally many maps, whole eights, the widest first. x is read for each.
std::vector<int64_t> possible_slices(int64_t maps) {
  constexpr size_t kMostSlices = 6;
  std::vector<int64_t> list;
  for (int64_t parts = ceil_div(maps, kMostMaps); parts <= maps && list.size() < kMostSlices; ++parts) {
    const int64_t slice = round_up(ceil_div(maps, parts), kChunk);
    if (!list.empty() && slice < kFewMaps) break;
    if (list.empty() || slice < list.back()) list.push_back(slice);
  }
  return list;
}

void add_best(std::vector<HaloPlan>& plans, const HaloSizes& s, const Cut& cut, int64_t maps) {
  const HaloLayout layout(s.windows, cut.box, cut.patches);
  if (layout.blocks > kMostBlocks) return;
  HaloPlan best;
  for (int64_t warpgroups = 1; warpgroups <= kMostWarpgroups; ++warpgroups)
    for (int64_t buffers = 1; buffers <= kMostBuffers; ++buffers) {
      HaloPlan plan;
      plan.box = cut.box, plan.patches = cut.patches, plan.maps = maps;
      plan.slices = ceil_div(s.windows.maps, maps);
      plan.warpgroups = warpgroups, plan.buffers = buffers;
      plan.together = blocks_together(layout.blocks, maps, warpgroups);
      plan.shared_bytes = layout.shared_bytes(maps, warpgroups * buffers);
      if (plan.together == 0 || plan.shared_bytes > shared_limit(90)) continue;
      plan.blocks = std::max<int64_t>(1, s.machine.multiprocessors / plan.slices);
      plan.microseconds = microseconds_of(s, layout, plan);
      if (best.microseconds == 0 || plan.microseconds < best.microseconds) best = plan;
    }
  if (best.microseconds > 0) plans.push_back(best);
}

}  // namespace

bool has_halo_plan(const BoxedWindows& w) {
  if (w.groups != 1) return false;
  const int64_t maps = possible_slices(w.maps).back();
  const HaloLayout layout(w, {1, 8}, false);
  return layout.shared_bytes(maps, 1) <= shared_limit(90);
}

std::vector<HaloPlan> halo_plans(const HaloSizes& s) {
  std::vector<HaloPlan> plans;
  for (const int64_t maps : possible_slices(s.windows.maps))
    for (const Cut& cut : possible_cuts(s.height, s.width)) add_best(plans, s, cut, maps);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  std::vector<HaloPlan> first;
  for (const HaloPlan& plan : plans) {
    const bool is_known = std::any_of(first.begin(), first.end(),
                                      [&](const HaloPlan& p) { return halo_way(s, p) == halo_way(s, plan); });
    if (!is_known) first.push_back(plan);
    if (first.size() == kMostPlans) break;
  }
  return first;
}

WindowWay halo_way(const HaloSizes& s, const HaloPlan& plan) {
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  return {number(plan.box.rows), number(plan.box.columns), number(s.windows.channels), number(plan.maps),
          number(plan.blocks)};
}

}  // namespace aicf
