#include "kernels/conv/cuda/windows_cuda.h"

#include "base/comma_list.h"

namespace aicf {

CudaWindowAxes window_axes(const CudaProblem& problem, const CudaWindow& x, const CudaWindow& result,
                           const std::vector<Dim>& kernel, size_t lists) {
  CudaWindowAxes axes;
  const size_t spatial = kernel.size();
  const Dim* list = problem.params.data() + lists;
  for (size_t i = 0; i < spatial; ++i) {
    CudaWindowAxis& axis = axes[kSpatialAxes - spatial + i];
    axis = {x.sizes[2 + i],
            result.sizes[2 + i],
            kernel[i],
            list[i],
            list[spatial + i],
            list[2 * spatial + i],
            list[3 * spatial + i],
            x.strides[2 + i],
            result.strides[2 + i]};
  }
  return axes;
}

std::string window_axes_text(const CudaWindowAxes& axes, CudaParams& params) {
  const auto axis_text = [&](const CudaWindowAxis& a) {
    return braced({a.in, a.out, a.kernel, a.stride, a.low, a.high, a.dilation, a.in_stride, a.out_stride},
                  params);
  };
  return "{" + comma_list(axes, axis_text) + "}";
}

}  // namespace aicf
