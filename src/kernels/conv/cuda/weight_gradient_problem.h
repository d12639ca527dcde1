// The gradient of a convolution's weights as its CUDA kernels see it. Takes problems that a row of
// cuda_kernels.def can run.
#pragma once

#include "kernels/conv/cuda/windows_cuda.h"
#include "kernels/cuda_kernel.h"

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

// "using I = …;": indices of the operands, their copies and of the parts.
std::string weight_gradient_index_text(const CudaProblem& problem, const Dim& copied,
                                       const WeightGradientParts& parts);

}  // namespace aicf
