// What the convolution kernels share: operands, pixels and kernel positions ("taps"). As a contraction: pixels are output
// positions, maps the output channels of a group, and K runs over (tap in row-major order, input channel of the group),
// channels fastest, so that 16 bytes of a channels-last x are neighbours in K.
#pragma once

#include "conv/cuda/windows.cuh"
#include "indexing/elements.cuh"
#include "matmul/cuda/matmul_common.cuh"

namespace aicf {

template <class T, class I>
struct ConvOperands {
  using Element = T;
  using Index = I;
  const T* x;
  const T* w;
  WindowAxis<I> axis[3];  // in_stride: of x
  I images, channels, maps;  // channels and maps of a group
  I x_batch, x_channel, w_map, w_channel, w_tap[3];

  __device__ __forceinline__ I pixels() const { return axis[0].out * axis[1].out * axis[2].out; }
  __device__ __forceinline__ I depth() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel * channels; }
};

// Step k of K. Quotients by 1 fold away, also for the axes that a 1- or 2-dimensional convolution lacks.
template <class I>
struct Tap {
  I channel, at[3];
};
template <class O, class I>
__device__ __forceinline__ Tap<I> tap_at(const O& o, I k) {
  const I number = divide(k, o.channels);
  Tap<I> tap;
  tap.channel = k - number * o.channels;
  const I rows = divide(number, o.axis[2].kernel), planes = divide(rows, o.axis[1].kernel);
  tap.at[2] = number - rows * o.axis[2].kernel;
  tap.at[1] = rows - planes * o.axis[1].kernel;
  tap.at[0] = planes % o.axis[0].kernel;
  return tap;
}

// Pixel `pixel` of all images, as its image and its place on each axis.
template <class I>
struct Pixel {
  I image, at[3];
};
template <class O, class I>
__device__ __forceinline__ Pixel<I> pixel_at(const O& o, I pixel) {
  const I rows = divide(pixel, o.axis[2].out), planes = divide(rows, o.axis[1].out);
  Pixel<I> p;
  p.at[2] = pixel - rows * o.axis[2].out;
  p.at[1] = rows - planes * o.axis[1].out;
  p.image = divide(planes, o.axis[0].out);
  p.at[0] = planes - p.image * o.axis[0].out;
  return p;
}

// Operands of the epilogue that are as large as the result, where their rows lie a fixed distance apart: asked for while
// the contraction runs, so that the epilogue finds them in the L2 cache.
struct ConvPrefetch {
  const char* at;  // null: none
  int64_t row_bytes;
};
// Rows × columns of elements of kBytes each, from (row, column) on as far as they exist.
template <int kRows, int kColumns, int kBytes, int kThreads>
__device__ __forceinline__ void prefetch_tile(const ConvPrefetch& operand, int64_t row, int64_t rows, int64_t column,
                                              int64_t columns) {
  if (operand.at == nullptr) return;
  constexpr int kLine = 128, kLines = (kColumns * kBytes + kLine - 1) / kLine;
  for (int i = threadIdx.x; i < kRows * kLines; i += kThreads) {
    const int64_t r = row + i / kLines, c = column + i % kLines * (kLine / kBytes);
    if (r < rows && c < columns)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(operand.at + r * operand.row_bytes + c * kBytes));
  }
}

// Hands values of V neighbouring columns to the epilogue. kPixelRows: a row is a pixel of all images and columns are maps;
// else a row is a map of an image and columns are its pixels. Row and column count inside the image and the group.
// kWide: groups of V columns stay aligned over all groups.
template <bool kPixelRows, bool kWide, int V, class O, class Epilogue, class Acc, class I>
__device__ __forceinline__ void store_conv(const O& o, const Epilogue& epilogue, I image, I group, I groups, I row, I column,
                                           const Acc (&values)[V]) {
  const int64_t outer =
      kPixelRows ? int64_t(row) : (int64_t(image) * groups + group) * int64_t(o.maps) + int64_t(row);
  const int64_t first = kPixelRows ? int64_t(group) * o.maps : 0, limit = kPixelRows ? first + o.maps : int64_t(o.pixels());
  const auto at = epilogue.row(outer);
  if constexpr (kWide) {
    store_columns<V>(epilogue, at, first + column, limit, values);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const Acc one[1] = {values[i]};
      if (first + column + i < limit) epilogue.template apply<1>(at, first + column + i, one);
    }
  }
}

}  // namespace aicf
