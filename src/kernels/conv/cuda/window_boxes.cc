#include "kernels/conv/cuda/window_boxes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/common/cuda_walk.h"

namespace aicf {
namespace {

constexpr int64_t kMostWindowTaps = 49;  // the text repeats itself for each
constexpr size_t kWindowLists = 3;       // where the lists of numbers begin in the params
constexpr int64_t kReserved = 1024;      // of shared memory, that the machine keeps for each block

// How far groups' beginnings are apart at least, counted from whole vectors.
int64_t common_step(int64_t size, int64_t vector) { return std::gcd(size, vector); }

}  // namespace

std::optional<BoxedWindows> boxed_windows(const Dim& channels, const Dim& maps, const Shape& kernel,
                                          const std::vector<Dim>& params) {
  const size_t rank = kernel.size();
  if (rank < 1 || rank > 2 || params.size() < kWindowLists + 4 * rank) return std::nullopt;
  const auto groups = params[1].constant(), all_channels = channels.constant(), all_maps = maps.constant();
  if (!groups || !all_channels || !all_maps || *groups < 1) return std::nullopt;
  BoxedWindows w;
  w.groups = *groups;
  w.channels = *all_channels / w.groups;
  w.maps = *all_maps / w.groups;
  if (w.channels < 1 || w.maps < 1) return std::nullopt;
  for (size_t i = 0; i < rank; ++i) {
    const size_t axis = 2 - rank + i;
    const auto taps = kernel[i].constant(), stride = params[kWindowLists + i].constant(),
               dilation = params[kWindowLists + 3 * rank + i].constant();
    if (!taps || !stride || !dilation || *taps < 1) return std::nullopt;
    if (std::max({*taps, *stride, *dilation}) > kLeastSharedLimit) return std::nullopt;
    w.kernel[axis] = *taps, w.stride[axis] = *stride, w.dilation[axis] = *dilation;
  }
  if (w.kernel[0] > kMostWindowTaps || w.kernel[1] > kMostWindowTaps || w.taps() > kMostWindowTaps)
    return std::nullopt;
  return w;
}

std::optional<int64_t> groups_of_slice(const BoxedWindows& w, const std::function<bool(int64_t)>& fits) {
  const int64_t step =
      std::lcm(w.vector / common_step(w.channels, w.vector), w.vector / common_step(w.maps, w.vector));
  const auto idle = [&](int64_t groups) { return round_up(w.groups, groups) - w.groups; };
  std::optional<int64_t> best;
  if (std::max(w.channels, w.maps) > kMostOfSlice) return best;
  for (int64_t groups = std::min(step, w.groups); fits(groups); groups += step) {
    if (!best || idle(groups) <= idle(*best)) best = groups;
    if (groups >= w.groups || (groups + step) * std::max(w.channels, w.maps) > kMostOfSlice) break;
  }
  return best;
}

int64_t chunks_of_group(int64_t size, int64_t vector) {
  return ceil_div(vector - common_step(size, vector) + size, vector);
}

int64_t position_bytes(int64_t groups, int64_t size, int64_t vector) {
  const int64_t chunks = (groups - 1) * size / vector + chunks_of_group(size, vector);
  return (chunks | 1) * 16;
}

int64_t ResultBox::positions(const BoxedWindows& w) const {
  const auto extent = [&](size_t axis, int64_t results) {
    return (results - 1) * w.stride[axis] + (w.kernel[axis] - 1) * w.dilation[axis] + 1;
  };
  return extent(0, rows) * extent(1, columns);
}

namespace {

// Of a box, on a multiprocessor with so many blocks: what its units or its way to the L2 cache need for all
// of them, or the time until memory answers, and what a block waits between boxes while no other works.
double round_cycles(const BoxWork& needs, double blocks) {
  constexpr double kBytes = 22, kLatency = 1500, kBetween = 600;  // a cycle; cycles
  return std::max({blocks * needs.cycles, blocks * needs.bytes / kBytes, kLatency}) + kBetween / blocks;
}

// Boxes as wide as evenly cut rows, and as high as they may be.
std::vector<ResultBox> possible_boxes(int64_t height, int64_t width) {
  constexpr int64_t kMostResults = 256, kMostRows = 16, kMostColumns = 64;
  std::vector<ResultBox> boxes;
  for (int64_t columns = std::min(width, kMostColumns); columns >= 1; --columns) {
    if (columns != ceil_div(width, ceil_div(width, columns))) continue;
    for (int64_t rows = 1; rows <= std::min({height, kMostRows, kMostResults / columns}); ++rows)
      boxes.push_back({rows, columns});
  }
  return boxes;
}

}  // namespace

BoxPlan plan_boxes(const CudaProblem& problem, const Dim& images, const CudaWindowAxes& axes, int64_t slices,
                   int64_t most_occupancy, const std::function<BoxWork(const ResultBox&)>& work) {
  const auto size = [&](const Dim& dim) { return std::max<int64_t>(size_to_choose_by(dim, problem), 1); };
  const int64_t count = size(images), height = size(axes[1].out), width = size(axes[2].out),
                multiprocessors = problem.machine.multiprocessors;
  BoxPlan best;
  best.cycles = std::numeric_limits<double>::infinity();
  for (const ResultBox& box : possible_boxes(height, width)) {
    const BoxWork needs = work(box);
    const int64_t boxes = count * ceil_div(height, box.rows) * ceil_div(width, box.columns);
    const int64_t room = (shared_limit(problem.arch) + kReserved) / (needs.shared_bytes + kReserved);
    for (int64_t occupancy = 1; occupancy <= std::min(room, most_occupancy); ++occupancy) {
      const int64_t all = multiprocessors * occupancy, blocks = std::clamp<int64_t>(all / slices, 1, boxes),
                    rounds = ceil_div(boxes, blocks) * ceil_div(slices * blocks, all);
      const auto sharing =
          static_cast<double>(std::min(occupancy, ceil_div(slices * blocks, multiprocessors)));
      const double cycles = static_cast<double>(rounds) * round_cycles(needs, sharing) +
                            round_cycles({.bytes = needs.block_bytes}, sharing);
      if (cycles < best.cycles) best = {box, occupancy, blocks, cycles};
    }
  }
  return best;
}

Dim box_count(const Dim& images, const CudaWindowAxes& axes, const ResultBox& box) {
  return images * ceildiv(axes[1].out, Dim(box.rows)) * ceildiv(axes[2].out, Dim(box.columns));
}

std::string box_shape_text(const BoxedWindows& w, int64_t groups, const ResultBox& box) {
  std::string text = "struct Shape {\n";
  const auto add = [&](const char* name, int64_t value) {
    text += std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
  };
  add("kRows", box.rows), add("kColumns", box.columns);
  add("kKernelH", w.kernel[0]), add("kKernelW", w.kernel[1]);
  add("kStrideH", w.stride[0]), add("kStrideW", w.stride[1]);
  add("kDilationH", w.dilation[0]), add("kDilationW", w.dilation[1]);
  add("kGroupChannels", w.channels), add("kGroupMaps", w.maps), add("kGroups", groups);
  return text + "};\n";
}

int64_t channel_unit(const CudaWindow& window) {
  const int64_t vector = 16 / dtype_bytes(window.dtype);
  if (!(window.strides[1] == Dim(1)) || !is_multiple(window.sizes[1], vector) ||
      !is_multiple(window.offset, vector))
    return 1;
  for (size_t i = 0; i < window.sizes.size(); ++i)
    if (i != 1 && !(window.sizes[i] == Dim(1)) && !is_multiple(window.strides[i], vector)) return 1;
  return vector;
}

}  // namespace aicf
