// Geometry of windows sliding over three spatial axes, as in windows.h: a window at output position o takes, for kernel
// position k, input position o · stride - low + k · dilation; positions outside the input are padding.
#pragma once

#include "indexing/walk.cuh"

namespace aicf {

template <class I>
struct WindowAxis {
  I in, out, kernel, stride, low, high, dilation, in_stride, out_stride;

  __device__ __forceinline__ I position(I o, I k) const { return o * stride - low + k * dilation; }
  // Kernel positions [begin, end) of the window at o that lie inside the input; empty if begin >= end.
  __device__ __forceinline__ I begin(I o) const {
    const I first = position(o, 0);
    return first < 0 ? min((dilation - 1 - first) / dilation, kernel) : 0;
  }
  __device__ __forceinline__ I end(I o) const {
    const I first = position(o, 0);
    return first >= in ? 0 : min((in - 1 - first) / dilation + 1, kernel);
  }
  // How many lie inside the padded input.
  __device__ __forceinline__ I padded_count(I o) const {
    const I room = in + high - 1 - position(o, 0);
    return room < 0 ? 0 : min(kernel, room / dilation + 1);
  }
};

}  // namespace aicf
