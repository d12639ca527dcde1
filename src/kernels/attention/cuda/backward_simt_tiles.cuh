// What the kernels of backward_simt.cuh are made of: how tiles lie in shared memory, products of their rows, weighted sums of
// their rows.
#pragma once

#include "attention/cuda/backward_call.cuh"
#include "attention/cuda/simt_units.cuh"

namespace aicf::attention {

template <class Traits>
struct BackwardShape {
  using A = typename Accumulator<typename Traits::Element>::Type;
  using Lanes = WarpLanes<A, Traits::kOwnLanes>;
  static constexpr int kVec = Vec<A>::kSize;
  static constexpr int kOwn = Traits::kOwn, kOthers = Traits::kOthers, kStages = Traits::kStages;
  static constexpr int kOwnWarps = Traits::kOwnWarps, kOtherWarps = Traits::kOtherWarps;
  static constexpr int kWarps = kOwnWarps * kOtherWarps, kThreads = 32 * kWarps;
  static constexpr int kOwnLanes = Traits::kOwnLanes, kOtherLanes = 32 / kOwnLanes, kAcross = kOtherLanes * kVec;
  static constexpr int kWarpOwn = kOwn / kOwnWarps, kWarpOthers = kOthers / kOtherWarps;
  static constexpr int kR = kWarpOwn / kOwnLanes, kGroups = kWarpOthers / kAcross, kN = kGroups * kVec;
  static constexpr int kWide = padded<A>(Traits::kDepth > Traits::kValueDepth ? Traits::kDepth : Traits::kValueDepth);
  static constexpr int kC = (kWide + kAcross - 1) / kAcross;
  static constexpr int kNarrow = padded<A>(Traits::kDepth < Traits::kValueDepth ? Traits::kDepth : Traits::kValueDepth);
  static constexpr int stride_of(int columns) { return Traits::kOddRows ? tile_stride<A>(columns) : padded<A>(columns); }
  static constexpr int kDepthStride = stride_of(Traits::kDepth), kValueStride = stride_of(Traits::kValueDepth);
  // As SimtShape::kPStride.
  static constexpr int kPUnits = 16 / kOwnLanes, kPFirst = 8 / kOwnLanes;
  static constexpr int kPStride =
      ((kWarpOthers / kVec - kPFirst + kPUnits - 1) / kPUnits * kPUnits + kPFirst) * kVec;
  static constexpr int kOwnElements = kOwn * (kDepthStride + kValueStride);
  // Of a stage: both tiles, and of rows two numbers each.
  static constexpr int kNumbers = kOthers * (kDepthStride + kValueStride);
  static constexpr int kStageElements = kNumbers + 2 * kOthers;
  static constexpr int kPatch = kWarpOwn * kPStride;  // of a warp: slopes, then as many weights
  static constexpr int kPatches = kOwnElements + kStages * kStageElements;
  static constexpr int kMainElements = kPatches + 2 * kWarps * kPatch;
  static constexpr int kPartElements = kOtherWarps * kOwn * kWide;
  static constexpr int kElements = kMainElements > kPartElements ? kMainElements : kPartElements;
  static_assert(kWarpOwn % kOwnLanes == 0 && kWarpOthers % kAcross == 0 && kOtherWarps % 2 == 0);
};

__device__ __forceinline__ float exp_two(float x) { return two_to(x); }
__device__ __forceinline__ double exp_two(double x) { return exp2(x); }
__device__ __forceinline__ float log_two(float x) { return log2f(x); }
__device__ __forceinline__ double log_two(double x) { return log2(x); }

template <class A>
__device__ __forceinline__ A infinity() {
  return A(__int_as_float(0x7f800000));
}

// s[i][j] = own row · other row over kCount columns. The side of fewer rows stays in registers.
template <class Shape, int kCount, int kStride, class A>
__device__ __forceinline__ void multiply_rows(const A* own, const A* others, A (&s)[Shape::kR][Shape::kN]) {
  using V = typename Vec<A>::Type;
  constexpr int kVec = Shape::kVec, kR = Shape::kR, kN = Shape::kN;
  constexpr bool kKeepsOwn = kR <= kN;
  constexpr int kKept = kKeepsOwn ? kR : kN, kPassing = kKeepsOwn ? kN : kR;
  const A* const kept_rows = kKeepsOwn ? own : others;
  const A* const passing_rows = kKeepsOwn ? others : own;
  constexpr int kKeptStep = (kKeepsOwn ? Shape::kOwnLanes : Shape::kOtherLanes) * kStride;
  constexpr int kPassingStep = (kKeepsOwn ? Shape::kOtherLanes : Shape::kOwnLanes) * kStride;
#pragma unroll
  for (int i = 0; i < kR; ++i)
#pragma unroll
    for (int j = 0; j < kN; ++j) s[i][j] = 0;
#pragma unroll 2
  for (int d = 0; d < kCount; d += kVec) {
    A kept[kKept][kVec];
#pragma unroll
    for (int n = 0; n < kKept; ++n) *reinterpret_cast<V*>(kept[n]) = *reinterpret_cast<const V*>(kept_rows + n * kKeptStep + d);
#pragma unroll
    for (int m = 0; m < kPassing; ++m) {
      A passing[kVec];
      *reinterpret_cast<V*>(passing) = *reinterpret_cast<const V*>(passing_rows + m * kPassingStep + d);
#pragma unroll
      for (int e = 0; e < kVec; ++e)
#pragma unroll
        for (int n = 0; n < kKept; ++n) {
          A& sum = kKeepsOwn ? s[n][m] : s[m][n];
          sum = fused(kept[n][e], passing[e], sum);
        }
    }
  }
}

// o += weights · rows of the tile: `count` others of a warp's, `columns` of them. Lanes without a vector of their own
// repeat the first; what they add is not stored.
template <class Shape, class A>
__device__ __forceinline__ void add_rows(const A* weights, const A* tile, int stride, int count, int columns,
                                         const typename Shape::Lanes& lanes, A (&o)[Shape::kR][Shape::kC][Shape::kVec]) {
  using V = typename Vec<A>::Type;
  constexpr int kVec = Shape::kVec, kR = Shape::kR, kC = Shape::kC;
#pragma unroll 1
  for (int from = 0; from < count; from += kVec) {
    const A* rows = tile + Shape::Lanes::place_of_key(from) * stride;
    A w[kR][kVec];
#pragma unroll
    for (int i = 0; i < kR; ++i)
      *reinterpret_cast<V*>(w[i]) =
          *reinterpret_cast<const V*>(weights + (lanes.ry + i * Shape::kOwnLanes) * Shape::kPStride + from);
#pragma unroll
    for (int u = 0; u < kVec; ++u)
#pragma unroll
      for (int c = 0; c < kC; ++c) {
        int column = (lanes.kx + c * Shape::kOtherLanes) * kVec;
        if ((c + 1) * Shape::kAcross > Shape::kNarrow && column >= columns) column = 0;
        A values[kVec];
        *reinterpret_cast<V*>(values) = *reinterpret_cast<const V*>(rows + u * Shape::kOtherLanes * stride + column);
#pragma unroll
        for (int i = 0; i < kR; ++i)
#pragma unroll
          for (int e = 0; e < kVec; ++e) o[i][c][e] = fused(w[i][u], values[e], o[i][c][e]);
      }
  }
}

// Elements of a row of a gradient from `column` on.
template <bool kVector, class T, class A>
__device__ __forceinline__ void store_vector(T* line, int64_t column_stride, int column, int columns, A factor,
                                             const A* values) {
  alignas(16) A scaled[Vec<A>::kSize];
#pragma unroll
  for (int e = 0; e < Vec<A>::kSize; ++e) scaled[e] = values[e] * factor;
  if constexpr (sizeof(T) == sizeof(A) && kVector) {
    *reinterpret_cast<typename Vec<A>::Type*>(line + column) = *reinterpret_cast<const typename Vec<A>::Type*>(scaled);
  } else {
#pragma unroll
    for (int e = 0; e < Vec<A>::kSize; ++e)
      if (column + e < columns) line[(column + e) * column_stride] = narrow<T>(scaled[e]);
  }
}

}  // namespace aicf::attention
