// Geometry of windows sliding over up to three spatial axes, shared by convolutions and pooling. A window at
// output position o takes, for kernel position k, input position o * stride - low + k * dilation; positions
// outside the input are padding. Fewer than three axes are led by axes of size 1.
#pragma once

#include <cstdint>

#include <vector>

#include "base/dim.h"
#include "kernels/common/abi.h"

namespace aicf {

inline constexpr int kSpatialAxes = 3;

// Sizes and strides are below 2^31, so products of two fit easily. in_stride, out_stride: elements of x and
// the result.
struct WindowAxis {
  int64_t in, out, kernel, stride, low, high, dilation, in_stride, out_stride;

  int64_t position(int64_t o, int64_t k) const { return o * stride - low + k * dilation; }
  bool inside(int64_t at) const { return at >= 0 && at < in; }
};

struct Windows {
  WindowAxis axis[kSpatialAxes];

  int64_t in_count() const { return axis[0].in * axis[1].in * axis[2].in; }
  int64_t out_count() const { return axis[0].out * axis[1].out * axis[2].out; }
};

// The kernel positions [begin, end) of the window at `o` that lie inside the input; empty if begin >= end.
struct KernelRange {
  int64_t begin, end;
};
KernelRange kernel_range(const WindowAxis& axis, int64_t o);

// Whether the params of a convolution, a transposed one or a weight gradient ask for products in tf32: then 1
// follows their lists of numbers. No params: no.
bool asks_tf32(const std::vector<Dim>& params, bool transposed = false);

struct WindowParams {
  int64_t spatial;
  const int64_t *strides, *low, *high, *dilations;  // `spatial` each
};

// Spatial axes of x and out (those after the first two) with the kernel sizes given; bad_artifact if ranks
// differ, there are none or more than three, or a number is out of range. Whether the sizes of out follow is
// checked by check_window_counts.
Windows make_windows(const TensorArg& x, const TensorArg& out, const int64_t* kernel,
                     const WindowParams& params, const char* name);
void check_window_counts(const Windows& windows, bool ceil_mode, const char* name);

}  // namespace aicf
