// The gradient of a convolution's weights as its CUDA kernels see it. Takes problems that a row of
// cuda_kernels.def can run.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

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

// Where the parts of the sums lie: [part, group, row, column] of f32, as weight_gradient.cuh says.
struct WeightGradientParts {
  int64_t group_maps = 1;                // of a group of the convolution
  int64_t maps = 1, channels = 1;        // of a group of the products
  int64_t row = 1, group = 1, part = 1;  // distances in elements
  int64_t count = 1;
  int64_t bytes() const { return part * count * 4; }
};
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

// "using I = …;": indices of the operands, their copies and of the parts.
std::string weight_gradient_index_text(const CudaProblem& problem, const Dim& copied,
                                       const WeightGradientParts& parts);

}  // namespace aicf
