#include "kernels/conv/cuda/conv_halo_tma_ways.h"

#include <algorithm>
#include <cmath>

#include "base/rounding.h"
#include "kernels/conv/cuda/conv_cycles.h"

namespace aicf {
namespace {

constexpr int64_t kRowBytes = 128;      // of a position, or a map, in a slice
constexpr int64_t kInstructions = 4;    // of a slice and tap
constexpr int64_t kMostPixels = 256;    // of an instruction
constexpr int64_t kMostAxis = 256;      // of a box that the copy engine loads
constexpr int64_t kWarpgroupMaps = 64;  // rows of an instruction
constexpr int64_t kSwizzleBytes = 1024, kChunkPixels = 32, kChunkPad = 8, kWarpgroups = 2;

double number(int64_t n) { return static_cast<double>(n); }

int64_t slice_channels(const HaloTmaSizes& s) { return kRowBytes / s.element_bytes; }
int64_t taps(const HaloTmaSizes& s) { return s.kernel[0] * s.kernel[1]; }
// Boxes of x that a tile brings.
int64_t loads(const HaloTmaSizes& s, const HaloTmaPlan& p) { return s.depth_taps * p.slices; }
// Tiles of maps of a box of results.
int64_t box_tiles(const HaloTmaSizes& s, const HaloTmaPlan& p) { return s.groups * ceil_div(s.maps, p.maps); }
int64_t tma_boxes(const HaloTmaSizes& s, const HaloTmaPlan& p) {
  return ceil_div(s.images * s.depth, p.images) * ceil_div(s.height, p.rows) * ceil_div(s.width, p.columns);
}
int64_t phase_positions(const HaloTmaPlan& p) { return p.width * p.height * p.images; }
int64_t positions(const HaloTmaPlan& p) { return p.phases * phase_positions(p); }

// As SwizzledBox and ConvHaloTma lay it out.
int64_t tma_box_bytes(const HaloTmaPlan& p) {
  return p.phases * round_up(phase_positions(p) * kRowBytes, kSwizzleBytes);
}
int64_t shared_bytes(const HaloTmaSizes& s, const HaloTmaPlan& p) {
  const int64_t barriers = round_up(p.buffers * 3 + p.stages * 2, int64_t{2}) * 8;
  const int64_t chunk = s.pixel_rows ? kChunkPixels * (kWarpgroupMaps * s.tile_bytes + 16)
                                     : kWarpgroupMaps * (kChunkPixels + kChunkPad) * s.tile_bytes;
  return p.buffers * tma_box_bytes(p) * (s.by_parts ? 2 : 1) + p.stages * p.maps * kRowBytes + barriers +
         kWarpgroups * chunk;
}

// Cycles that the two warpgroups multiply a tile's slices and taps by parts, and the third splits x beside
// them. Where steps of wgmma_tf32x3.cuh have 256 columns of both warpgroups, they take 1.3 times what the
// matrix units ask.
double parts_cycles(const HaloTmaSizes& s, const HaloTmaPlan& p, double load) {
  constexpr double kBusy = 1.2, kStep = 256, kProducts = 3, kColumnCycles = 0.5;
  const bool shares_pixels = p.maps == kWarpgroupMaps;
  const double columns = number(shares_pixels ? round_up(p.pixels, int64_t{16}) : 2 * p.pixels);
  const double last = number(p.last_instructions) / number(kInstructions);
  const double steps = number(s.depth_taps * taps(s)) * (number(p.slices) - 1 + last);
  const double product =
      kBusy * steps * (kStep + kProducts * number(kInstructions) * columns * kColumnCycles);
  return std::max(product, number(loads(s, p)) * load / number(p.buffers - 1));
}

// Cycles of the copy engine for a tile: sectors of rows that it fetches, and those that x or the weights
// lack, which it writes as zeros one after the other. Of 3-D halves of 16 channels and maps, which nothing
// else bounds.
double box_copy_cycles(const HaloTmaSizes& s, const HaloTmaPlan& p) {
  constexpr double kSector = 32, kFetched = 0.5, kLacking = 1.8;
  const double all = number(p.slices * kRowBytes) / kSector,
               own = std::min(all, std::ceil(number(s.channels * s.element_bytes) / kSector)),
               of_x = s.groups > 1 ? all : own;  // else those of a next group
  const double rows = number(s.depth_taps * positions(p)),
               weights = p.keeps_weights ? 0 : number(s.depth_taps * taps(s) * p.maps),
               maps = weights * std::min(1.0, number(s.maps) / number(ceil_div(s.maps, p.maps) * p.maps));
  const double fetched = rows * of_x + maps * own, lacking = (rows + weights) * all - fetched;
  return fetched * kFetched + lacking * kLacking;
}

// Cycles of a multiprocessor. Its matrix units take eight columns in four cycles; shared memory moves 128
// bytes in each, read by the instructions, written by the copy engine, rounded in place, and on the way of
// results.
double halo_tma_microseconds(const HaloTmaSizes& s, const HaloTmaPlan& p) {
  constexpr double kColumnCycles = 0.5, kSharedBytes = 128, kL2Bytes = 5500;
  // Of steps that follow one another, as those of wgmma.cuh were measured, and the shortest.
  constexpr double kBusy = 1.04, kStep = 40, kLeastStep = 150;
  // Of a warpgroup: eight neighbouring maps at a time, or one pixel of each thread.
  constexpr double kMapsCycles = 0.16, kPixelCycles = 0.2, kEpilogue = 500;
  constexpr double kTurn = 150;  // from a warpgroup's last instruction to the other's first
  constexpr double kFirst = 1200, kLoadBytes = 40;  // until a load begins to come, and of it
  constexpr double kRounded = 3, kSplit = 6;        // of a position
  const double groups = number(p.maps / kWarpgroupMaps), pixels = number(p.pixels);
  const double instructions =
      number(s.depth_taps * taps(s) * ((p.slices - 1) * kInstructions + p.last_instructions)) * groups;
  const double box = number(loads(s, p) * positions(p) * kRowBytes),
               weights = number(loads(s, p) * taps(s) * p.maps * kRowBytes);
  const double results = pixels * number(p.maps);
  const double moved = instructions * 32 * (kWarpgroupMaps + pixels) + box * (s.element_bytes == 4 ? 3 : 1) +
                       (p.keeps_weights ? 0 : weights) + 2 * results * number(s.tile_bytes);
  const int64_t tiles = tma_boxes(s, p) * box_tiles(s, p), all = s.machine.multiprocessors;
  // Channels that a last slice lacks are written, and not read; those of a next group are.
  const double fetched =
      s.groups > 1 ? 1 : number(s.channels * s.element_bytes) / number(p.slices * kRowBytes);
  const double loaded = fetched * (box + (p.keeps_weights ? 0 : weights)) + results * s.result_bytes;
  const double from_l2 = loaded * number(std::min(tiles, all)) / kL2Bytes;
  // A buffer is loaded, and rounded by 64 threads, while the others are read.
  const double load = kFirst + number(tma_box_bytes(p)) / kLoadBytes +
                      (s.by_parts             ? kSplit
                       : s.element_bytes == 4 ? kRounded
                                              : 0) *
                          number(positions(p));
  const double busiest = std::max({instructions * pixels * kColumnCycles, moved / kSharedBytes, from_l2,
                                   number(loads(s, p)) * load / number(p.buffers - 1)});
  const double steps = number(loads(s, p) * taps(s));
  const double product = s.by_parts ? std::max(parts_cycles(s, p, load), from_l2)
                                    : std::max(busiest * kBusy + steps * kStep, steps * kLeastStep);
  const double epilogue =
      results / (s.by_parts ? kWarpgroups : groups) * (s.pixel_rows ? kMapsCycles : kPixelCycles) + kEpilogue;
  const bool ping_pong = groups == 1 && !s.by_parts;
  const double alone = ping_pong ? std::max(product + kTurn, (product + epilogue) / 2) : product + epilogue;
  const double tile = std::max(alone, box_copy_cycles(s, p));
  const double first = load + (p.keeps_weights ? weights / 2 / kLoadBytes : 0);
  const double sum =
      number(ceil_div(tiles, all)) * tile + (ping_pong ? std::max(epilogue, alone - product) : 0);
  const double scattered =
      number(s.scattered * s.images * s.depth * s.height * s.width * s.groups * s.maps) / kConvSectors;
  const double memory =
      number(s.images * s.depth * s.height * s.width * s.groups) *
      (number(s.channels * s.element_bytes * s.stride[0] * s.stride[1]) + number(s.maps) * s.result_bytes) /
      kConvMemoryBytes;
  return (kConvStart + first + std::max(sum, memory + 0.1 * sum) + scattered) / kCyclesPerMicrosecond;
}

// With the boxes and stages that fit; none where too few do.
void add_plans(std::vector<HaloTmaPlan>& plans, const HaloTmaSizes& s, HaloTmaPlan p) {
  // By parts steps take longer, and where there are few for a box, several are loaded and split ahead.
  constexpr int64_t kMostStages = 24, kFewStages = 4, kManyStages = 9, kPartsStages = 3, kPartsBuffers = 6;
  p.width = p.columns + (s.kernel[1] - 1) * s.dilation[1] / s.stride[1];
  p.height = p.rows + (s.kernel[0] - 1) * s.dilation[0] / s.stride[0];
  p.phases = std::min(s.stride[0], s.kernel[0]) * std::min(s.stride[1], s.kernel[1]);
  const int64_t last = ((p.images - 1) * p.height + p.rows - 1) * p.width + p.columns;
  p.pixels = p.patches ? 8 * p.rows : round_up(last, int64_t{8});
  const int64_t most = s.by_parts && p.maps > kWarpgroupMaps ? kMostPixels / kWarpgroups : kMostPixels;
  if (p.pixels > most || p.width * s.stride[1] > kMostAxis || p.height * s.stride[0] > kMostAxis) return;
  p.slices = ceil_div(s.channels, slice_channels(s));
  p.last_instructions =
      ceil_div((s.channels - (p.slices - 1) * slice_channels(s)) * kInstructions, slice_channels(s));
  const int64_t steps = loads(s, p) * taps(s), limit = shared_limit(90);
  HaloTmaPlan best;
  const auto consider = [&](const HaloTmaPlan& plan) {
    HaloTmaPlan c = plan;
    c.shared_bytes = shared_bytes(s, c);
    if (c.shared_bytes > limit) return;
    c.microseconds = halo_tma_microseconds(s, c);
    if (best.microseconds == 0 || c.microseconds < best.microseconds) best = c;
  };
  if (box_tiles(s, p) == 1 && steps <= 64) {
    p.keeps_weights = true, p.stages = steps;
    for (p.buffers = 3; p.buffers >= 2; --p.buffers) consider(p);
  }
  p.keeps_weights = false;
  const auto with_stages = [&](int64_t buffers, int64_t least) {
    p.buffers = buffers, p.stages = 0;
    p.stages = std::min(kMostStages, (limit - shared_bytes(s, p)) / (p.maps * kRowBytes + 16));
    if (p.stages >= least) consider(p);
    return p.stages >= least;
  };
  if (s.by_parts)
    for (int64_t buffers = kPartsBuffers; buffers >= 2; --buffers) with_stages(buffers, kPartsStages);
  else if (!with_stages(3, kManyStages))
    with_stages(2, kFewStages);
  if (best.microseconds > 0) plans.push_back(best);
}

// Boxes as wide as evenly cut rows, of several images where they are whole, and patches of eight columns.
void add_boxes(std::vector<HaloTmaPlan>& plans, const HaloTmaSizes& s, int64_t maps) {
  HaloTmaPlan p;
  p.maps = maps;
  for (int64_t columns = std::min(s.width, kMostPixels); columns >= 1; --columns) {
    if (columns != ceil_div(s.width, ceil_div(s.width, columns))) continue;
    p.columns = columns;
    for (p.rows = 1; p.rows <= std::min(s.height, kMostPixels / columns); ++p.rows) {
      const bool whole = columns == s.width && p.rows == s.height && s.depth * s.depth_taps == 1;
      const int64_t most = whole ? std::min(s.images, kMostPixels / (columns * p.rows)) : 1;
      for (p.images = 1; p.images <= most; ++p.images) add_plans(plans, s, p);
    }
  }
  p.patches = true, p.columns = 8, p.images = 1;
  for (p.rows = 1; p.rows <= std::min(s.height, kMostPixels / 8); ++p.rows) add_plans(plans, s, p);
}

}  // namespace

std::vector<HaloTmaPlan> halo_tma_plans(const HaloTmaSizes& s) {
  std::vector<HaloTmaPlan> plans;
  if (taps(s) == 1 && !s.by_parts) return plans;
  add_boxes(plans, s, kWarpgroupMaps);
  if (s.maps > kWarpgroupMaps) add_boxes(plans, s, kWarpgroupMaps * kWarpgroups);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  // Of patches and of other boxes, of tiles of either width, some each.
  constexpr size_t kMostOfForm = 3;
  std::vector<HaloTmaPlan> first;
  for (const HaloTmaPlan& plan : plans) {
    const auto is_known = [&](const HaloTmaPlan& p) { return halo_tma_way(p) == halo_tma_way(plan); };
    const auto is_like = [&](const HaloTmaPlan& p) {
      return p.patches == plan.patches && p.maps == plan.maps;
    };
    if (std::none_of(first.begin(), first.end(), is_known) &&
        static_cast<size_t>(std::count_if(first.begin(), first.end(), is_like)) < kMostOfForm)
      first.push_back(plan);
  }
  return first;
}

HaloTmaWay halo_tma_way(const HaloTmaPlan& plan) {
  return {static_cast<int>(plan.rows), static_cast<int>(plan.columns), static_cast<int>(plan.maps)};
}

}  // namespace aicf
