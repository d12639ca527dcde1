// Gradient of a depthwise convolution's weights, one channel and one map per group: a thread has the sums of
// all taps for V neighbouring channels, or of one channel for V neighbouring positions along a row. It goes
// down a column of positions of dy and keeps the rows of x under the window in registers, of which each step
// replaces as many as the stride. A part is the sum over its columns in a fixed order.
#pragma once

#include "conv/cuda/weight_gradient.cuh"

namespace aicf {

template <class T, class I>
struct DepthwiseGradientOperands {
  using Element = T;
  using Index = I;
  const T* x;
  const T* y;
  WindowAxis<I> axis[3];  // in_stride, out_stride: of x and dy
  I images, channels;
  I x_batch, x_channel, y_batch, y_channel;  // strides
};

// Shape: constants kKernelH, kKernelW, kStrideH, kStrideW, kDilationH, kDilationW, kLowW. VC: neighbouring
// channels of a thread, VP: positions of it; one of them is 1. VP > 1: no dilation along W, rows start at
// multiples of VP elements. kUnits: so many neighbouring threads have neighbouring channels. kRows: positions
// of a column.
template <class T, class Shape, int VC, int VP, int kUnits, int kThreads, int kRows>
struct DepthwiseGradient {
  static constexpr int KH = Shape::kKernelH, KW = Shape::kKernelW, SH = Shape::kStrideH, SW = Shape::kStrideW;
  static constexpr int kLanes = kThreads / kUnits;
  static constexpr bool kSlides = Shape::kDilationH == 1 && SH < KH;
  static constexpr int kNewRows = kSlides ? SH : KH;
  // Columns of x under a thread's windows, and the units of VP elements that hold them, counted from its
  // first position.
  static constexpr int kColumns = VP > 1 ? (VP - 1) * SW + KW : KW;
  static constexpr int kFirstUnit = -((Shape::kLowW + VP - 1) / VP);
  static constexpr int kLastUnit = (kColumns - 1 - Shape::kLowW + 64 * VP) / VP - 64;
  static_assert(VP == 1 || (VC == 1 && Shape::kDilationW == 1), "positions or channels");
  using E = Element<T>;

  template <class O, class I>
  static __device__ __forceinline__ void load_row(const O& o, const T* x, I row, I column,
                                                  float (&to)[kColumns][VC]) {
    using U = typename UnsignedOf<I>::type;
    const WindowAxis<I>& w = o.axis[2];
    const bool inside = U(row) < U(o.axis[1].in);
    const T* from = x + row * o.axis[1].in_stride;
    if constexpr (VP == 1) {
#pragma unroll
      for (int kx = 0; kx < KW; ++kx) {
        const I at = column * SW + kx * Shape::kDilationW - Shape::kLowW;
        Pack<T, VC> values = {};
        if (inside && U(at) < U(w.in))
          values = *reinterpret_cast<const Pack<T, VC>*>(from + at * w.in_stride);
#pragma unroll
        for (int c = 0; c < VC; ++c) to[kx][c] = float(E::load(values.at[c]));
      }
    } else {
#pragma unroll
      for (int unit = kFirstUnit; unit <= kLastUnit; ++unit) {
        const I at = column * SW + unit * VP;
        Pack<T, VP> values = {};
        if (inside && U(at) < U(w.in)) values = *reinterpret_cast<const Pack<T, VP>*>(from + at);
#pragma unroll
        for (int e = 0; e < VP; ++e) {
          const int place = unit * VP + e + Shape::kLowW;
          if (place >= 0 && place < kColumns) to[place][0] = float(E::load(values.at[e]));
        }
      }
    }
  }

  // Adds what `count` positions from (row, column) on give.
  template <class O, class I>
  static __device__ __forceinline__ void add_column(const O& o, const T* x, const T* y, I row, I column,
                                                    int count, float (&acc)[KH][KW][VC]) {
    constexpr int V = VC * VP;
    float window[KH][kColumns][VC];
    const I first = row * SH - o.axis[1].low;
#pragma unroll
    for (int ky = 0; ky < KH - kNewRows; ++ky) load_row(o, x, I(first + ky), column, window[ky]);
    for (int from = 0; from < count; from += KH) {
#pragma unroll
      for (int r = 0; r < KH; ++r) {
        if (from + r >= count) continue;
        const I at = first + I(from + r) * SH;
        const Pack<T, V> gradient = *reinterpret_cast<const Pack<T, V>*>(
            y + (row + from + r) * o.axis[1].out_stride + column * o.axis[2].out_stride);
        const int turn = kSlides ? r * SH : 0;  // which of the rows in registers is the window's first
#pragma unroll
        for (int ky = KH - kNewRows; ky < KH; ++ky)
          load_row(o, x, I(at + ky * Shape::kDilationH), column, window[(turn + ky) % KH]);
#pragma unroll
        for (int p = 0; p < VP; ++p)
#pragma unroll
          for (int c = 0; c < VC; ++c) {
            const float value = float(E::load(gradient.at[p * VC + c]));
#pragma unroll
            for (int ky = 0; ky < KH; ++ky)
#pragma unroll
              for (int kx = 0; kx < KW; ++kx)
                acc[ky][kx][c] = __fmaf_rn(window[(turn + ky) % KH][p * SW + kx][c], value, acc[ky][kx][c]);
          }
      }
    }
  }

  // The sums of all lanes for a channel: threads of a warp in a tree, then warps in order; or lanes in order.
  template <class I>
  static __device__ __forceinline__ void finish(const float (&acc)[KH][KW][VC], float* to, I channels,
                                                I channel, I left) {
    const int thread = int(threadIdx.x);
    if constexpr (kUnits == 1) {
      constexpr int kWarps = kThreads / 32;
      __shared__ float sums[kWarps][KH * KW * VC];
#pragma unroll
      for (int i = 0; i < KH * KW * VC; ++i) {
        float sum = acc[i / (KW * VC)][i / VC % KW][i % VC];
#pragma unroll
        for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
        if (thread % 32 == 0) sums[thread / 32][i] = sum;
      }
      __syncthreads();
      for (int i = thread; i < KH * KW * VC; i += kThreads) {
        float sum = sums[0][i];
#pragma unroll
        for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp][i];
        to[int64_t(i / VC) * channels + channel + i % VC] = sum;
      }
    } else {
      __shared__ float sums[KW * VC][kThreads];
      const I first = channel - thread % kUnits * VC;  // of the block's channels
#pragma unroll
      for (int ky = 0; ky < KH; ++ky) {
#pragma unroll
        for (int i = 0; i < KW * VC; ++i) sums[i][thread] = acc[ky][i / VC][i % VC];
        __syncthreads();
        for (int at = thread; at < KW * VC * kUnits; at += kThreads) {
          const int i = at / kUnits, unit = at % kUnits;
          float sum = sums[i][unit];
#pragma unroll 4
          for (int lane = 1; lane < kLanes; ++lane) sum += sums[i][lane * kUnits + unit];
          if (unit * VC < left) to[int64_t(ky * KW + i / VC) * channels + first + unit * VC + i % VC] = sum;
        }
        __syncthreads();
      }
    }
  }

  // Grid: x: parts of `columns` columns each, y: slices of channels.
  template <class O>
  static __device__ void run(const O& o, typename O::Index columns, float* results,
                             typename O::Index part_distance) {
    using I = typename O::Index;
    const int unit = int(threadIdx.x) % kUnits, lane = int(threadIdx.x) / kUnits;
    const I first_channel = I(blockIdx.y) * (kUnits * VC), channel = first_channel + unit * VC;
    const I across = o.axis[2].out / VP, down = (o.axis[1].out + kRows - 1) / kRows;
    const I begin = I(blockIdx.x) * columns, end = min(I(o.images * down * across), I(begin + columns));
    float acc[KH][KW][VC] = {};
    if (channel < o.channels && lane < kLanes)
      for (I item = begin + lane; item < end; item += kLanes) {
        const I chunk = divide(item, across), column = (item - chunk * across) * VP,
                image = divide(chunk, down);
        const I row = (chunk - image * down) * kRows;
        add_column(o, o.x + image * o.x_batch + channel * o.x_channel,
                   o.y + image * o.y_batch + channel * o.y_channel, row, column,
                   int(min(I(kRows), I(o.axis[1].out - row))), acc);
      }
    finish(acc, results + int64_t(blockIdx.x) * part_distance, o.channels, channel,
           I(o.channels - first_channel));
  }
};

}  // namespace aicf
