// Text of window geometry for the CUDA rows of convolutions and pooling.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/common/cuda_walk.h"
#include "kernels/conv/windows.h"

namespace aicf {

struct CudaWindowAxis {
  Dim in{1}, out{1}, kernel{1}, stride{1}, low, high, dilation{1}, in_stride, out_stride;
};
using CudaWindowAxes = std::array<CudaWindowAxis, kSpatialAxes>;

// `lists`: where the row's lists of `spatial` numbers begin in problem.params: strides, low, high, dilations.
// Spatial axes of x and result are those after the first two; fewer than three are led by axes of size 1.
CudaWindowAxes window_axes(const CudaProblem& problem, const CudaWindow& x, const CudaWindow& result,
                           const std::vector<Dim>& kernel, size_t lists);
// "{{in, out, …}, {…}, {…}}": three aicf::WindowAxis<I>.
std::string window_axes_text(const CudaWindowAxes& axes, CudaParams& params);

}  // namespace aicf
