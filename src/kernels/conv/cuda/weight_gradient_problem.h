// The gradient of a convolution's weights as its CUDA kernels see it. Takes problems that a row of
// cuda_kernels.def can run.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/common/cuda_kernel.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/conv/cuda/windows_cuda.h"

namespace aicf {

struct WeightGradientProblem {
  int64_t groups = 1, channels = 1, maps = 1;  // channels and maps of a group
  std::vector<Dim> kernel;
  CudaWindowAxes axes;  // `out` and out_stride: of dy
  int64_t taps = 1;
  Dim pixels;  // positions of dy in an image
};
WeightGradientProblem weight_gradient_problem(const CudaProblem& problem);
// What products over positions ask of every problem.
bool has_known_products(const Problem& problem);
// Of dy in all images: K of the products.
Dim all_positions(const CudaProblem& problem, const WeightGradientProblem& w);
// Windows of one tap in place: x is read at the positions of dy.
bool reads_in_place(const WeightGradientProblem& w);

// An operand of products over positions: where it lies, or as a copy with its channels as neighbours.
struct WeightGradientOperand {
  bool packs = false;
  int64_t channels = 1;  // of a group of the products
  Dim batch, channel, group;
  Dim k;  // from one position to the next of all images
  std::array<Dim, kSpatialAxes> axis;
  Dim elements;  // of the copy
};
WeightGradientOperand operand_in_place(const CudaWindow& w, int64_t channels);
WeightGradientOperand operand_copy(const CudaWindow& w, int64_t groups, int64_t channels);
Dim copy_bytes(const WeightGradientOperand& operand, const CudaProblem& problem);
// The stride of the one axis that the window's positions, with `images` those of all images, are.
std::optional<Dim> position_stride(const CudaWindow& w, bool images);
// Whether elements of units lie side by side: channels (1), or all axes from this one on.
bool starts_units(const CudaWindow& w, size_t contiguous_from, int64_t unit);
bool has_channel_vectors(const CudaWindow& w, int64_t channels, int64_t vector);

// Where the parts of the sums lie: [part, group, row, column] of f32, as weight_gradient.cuh says.
struct WeightGradientParts {
  int64_t group_maps = 1;                // of a group of the convolution
  int64_t maps = 1, channels = 1;        // of a group of the products
  int64_t row = 1, group = 1, part = 1;  // distances in elements
  int64_t count = 1;
  int64_t bytes() const { return part * count * 4; }
};
// Of so many parts, for products of `merged` groups side by side; `channels` and `row` of these.
WeightGradientParts weight_gradient_parts(const WeightGradientProblem& w, int64_t count, int64_t merged,
                                          int64_t channels, int64_t row);
// Positions of a part, in whole steps.
Dim part_depth(const CudaProblem& problem, const WeightGradientProblem& w, int64_t parts, int64_t step);
// "const aicf::WeightGradientResult<T, I> NAME = {…};": where the result and its parts lie.
std::string weight_gradient_result_text(const CudaProblem& problem, const WeightGradientProblem& w,
                                        const WeightGradientParts& parts, const std::string& name,
                                        CudaParams& params);
// Appends the kernel that adds them and stores the result; they begin so many bytes into the workspace.
void add_weight_gradient_sum(CudaCode& code, const CudaProblem& problem, const WeightGradientProblem& w,
                             const WeightGradientParts& parts, const Dim& offset);

// Appends the kernel that copies operand `input` with its channels as neighbours: of each of `groups` groups
// `channels` ones, padded to `padded`. The copy begins so many bytes into the workspace; a thread reads
// `unit` neighbouring positions.
struct WeightGradientCopy {
  size_t input;
  int64_t groups, channels, padded, unit;
  Dim offset;
};
void add_weight_gradient_copy(CudaCode& code, const CudaProblem& problem, const std::string& index_text,
                              const WeightGradientCopy& copy);

// The best first: of every tile the best number of parts up to `most`, half as many and twice as many.
// time(tile, parts) in cycles.
template <class Tiles, class Time>
std::vector<KernelVariant> weight_gradient_ways(const Tiles& tiles, int64_t most, const Time& time) {
  std::vector<KernelVariant> ways;
  for (const auto& tile : tiles) {
    int64_t best = 1;
    for (int64_t parts = 2; parts <= most; ++parts)
      if (time(tile, parts) < time(tile, best)) best = parts;
    for (int64_t parts : std::set<int64_t>{best, std::max<int64_t>(best / 2, 1), std::min(2 * best, most)})
      ways.push_back({WeightGradientWay{tile.m, tile.n, static_cast<int>(parts)},
                      time(tile, parts) / kCyclesPerMicrosecond});
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return ways;
}

template <class Tiles>
const auto& weight_gradient_tile(const Tiles& tiles, const WeightGradientWay& way) {
  const auto found = std::find_if(std::begin(tiles), std::end(tiles), [&](const auto& tile) {
    return tile.m == way.block_m && tile.n == way.block_n;
  });
  AICF_CHECK(found != std::end(tiles), "a tile of no kernel: " + to_string(way));
  return *found;
}

// The way that is asked for, else the best of ways().
template <class OwnWay, class Ways>
OwnWay asked_way(const CudaProblem& problem, const Ways& ways) {
  const auto* asked = std::get_if<OwnWay>(&problem.way);
  AICF_CHECK(asked != nullptr || !is_named(problem.way),
             "a weight gradient that cannot run so: " + to_string(problem.way));
  return asked != nullptr ? *asked : std::get<OwnWay>(ways().front().way);
}

// "using I = …;": indices of the operands, their copies and of the parts.
std::string weight_gradient_index_text(const CudaProblem& problem, const Dim& copied,
                                       const WeightGradientParts& parts);

}  // namespace aicf
