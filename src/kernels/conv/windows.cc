#include "kernels/conv/windows.h"

#include <algorithm>

#include "kernels/common/step_check.h"

namespace aicf {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;

void check_number(int64_t value, int64_t least, const char* what, const char* name) {
  check_step(value >= least && value < kLimit, name, what, std::to_string(least) + "..2^31", value);
}

}  // namespace

bool asks_tf32(const std::vector<Dim>& params, bool transposed) {
  if (params.empty()) return false;
  constexpr int64_t kCounts = 3;  // spatial_rank, groups, has_bias
  const int64_t lists = transposed ? 5 : 4, spatial = params[0].require_constant("the rank of a convolution");
  return static_cast<int64_t>(params.size()) > kCounts + lists * spatial;
}

KernelRange kernel_range(const WindowAxis& axis, int64_t o) {
  const int64_t first = axis.position(o, 0);
  const int64_t begin = first < 0 ? ceil_div(-first, axis.dilation) : 0;
  const int64_t end = first >= axis.in ? 0 : (axis.in - 1 - first) / axis.dilation + 1;
  return {std::min(begin, axis.kernel), std::min(end, axis.kernel)};
}

Windows make_windows(const TensorArg& x, const TensorArg& out, const int64_t* kernel,
                     const WindowParams& params, const char* name) {
  check_step(params.spatial >= 1 && params.spatial <= kSpatialAxes, name, "spatial axes", "1..3",
             params.spatial);
  check_step(x.rank == params.spatial + 2, name, "rank of x", std::to_string(params.spatial + 2), x.rank);
  check_step(out.rank == x.rank, name, "rank of the output", std::to_string(x.rank), out.rank);
  Windows windows;
  const int64_t missing = kSpatialAxes - params.spatial;
  for (int64_t a = 0; a < kSpatialAxes; ++a) {
    WindowAxis& axis = windows.axis[a];
    axis = {1, 1, 1, 1, 0, 0, 1, 0, 0};
    const int64_t i = a - missing;
    if (i < 0) continue;
    axis = {x.sizes[2 + i], out.sizes[2 + i],    kernel[i],        params.strides[i], params.low[i],
            params.high[i], params.dilations[i], x.strides[2 + i], out.strides[2 + i]};
    check_number(axis.in, 0, "spatial size", name);
    check_number(axis.out, 0, "spatial size of the output", name);
    check_number(axis.kernel, 1, "kernel size", name);
    check_number(axis.stride, 1, "stride", name);
    check_number(axis.dilation, 1, "dilation", name);
    check_number(axis.low, 0, "low pad", name);
    check_number(axis.high, 0, "high pad", name);
  }
  return windows;
}

void check_window_counts(const Windows& windows, bool ceil_mode, const char* name) {
  for (const WindowAxis& axis : windows.axis) {
    const int64_t spare = axis.in + axis.low + axis.high - (axis.dilation * (axis.kernel - 1) + 1);
    const int64_t least = ceil_mode ? 1 - axis.stride : 0;
    check_step(spare >= least, name, "window beyond the padded input",
               ">= " + std::to_string(least) + " spare", spare);
    int64_t count = spare / axis.stride + 1;
    if (ceil_mode)
      count =
          std::min((spare + axis.stride - 1) / axis.stride + 1, ceil_div(axis.in + axis.low, axis.stride));
    check_step(axis.out == count, name, "spatial size of the output", std::to_string(count), axis.out);
  }
}

}  // namespace aicf
