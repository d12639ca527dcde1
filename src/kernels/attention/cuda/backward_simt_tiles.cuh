// What the kernels of backward_simt.cuh do with tiles in shared memory: products of rows, weighted sums of rows, and the scores
// and weights that products become. Thread (tx, ty) has rows ty + 16 i and columns tx + 16 j.
#pragma once

#include "attention/cuda/backward_call.cuh"
#include "attention/cuda/simt_units.cuh"

namespace aicf::attention {

template <class Traits>
struct BackwardShape {
  using A = typename Accumulator<typename Traits::Element>::Type;
  static constexpr int kRows = Traits::kRows, kKeys = Traits::kKeys;
  static constexpr int kDepth = Traits::kDepth, kValueDepth = Traits::kValueDepth;
  static constexpr int kStride = tile_stride<A>(kDepth), kValueStride = tile_stride<A>(kValueDepth);
  static constexpr int kWideStride = kStride > kValueStride ? kStride : kValueStride;
  static constexpr int kScoreStride = tile_stride<A>(kRows > kKeys ? kRows : kKeys);
};

// Rows [0, rows) of the source, columns [0, kColumns); everything else of the tile becomes 0.
template <int kColumns, int kTileRows, bool kVector, class T, class A>
__device__ __forceinline__ void load_tile(A* tile, int stride, const T* from, int64_t row_stride,
                                          int64_t column_stride, int rows) {
  constexpr int kUnit = kVector ? 16 / sizeof(T) : 1;
  constexpr int kPadded = (kColumns + Vec<A>::kSize - 1) / Vec<A>::kSize * Vec<A>::kSize;
  constexpr int kUnits = (kPadded + kUnit - 1) / kUnit;
  for (int at = int(threadIdx.x); at < kTileRows * kUnits; at += 256) {
    const int row = at / kUnits, column = at % kUnits * kUnit;
    alignas(16) T values[kUnit];
    const bool inside = row < rows && column < kColumns;
    if constexpr (kVector) {
      if (inside)
        *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(from + row * row_stride + column);
    } else if (inside) {
      values[0] = from[row * row_stride + column * column_stride];
    }
#pragma unroll
    for (int i = 0; i < kUnit; ++i) tile[row * stride + column + i] = inside ? A(widen(values[i])) : A(0);
  }
}

__device__ __forceinline__ float exp_two(float x) { return exp2f(x); }
__device__ __forceinline__ double exp_two(double x) { return exp2(x); }
__device__ __forceinline__ float log_two(float x) { return log2f(x); }
__device__ __forceinline__ double log_two(double x) { return log2(x); }

// s[i][j] = a row · b row over kCount columns.
template <int kCount, class A, int kI, int kJ>
__device__ __forceinline__ void multiply_rows(const A* a, int a_stride, const A* b, int b_stride, int tx, int ty,
                                              A (&s)[kI][kJ]) {
  constexpr int kVec = Vec<A>::kSize;
  using V = typename Vec<A>::Type;
#pragma unroll
  for (int i = 0; i < kI; ++i)
#pragma unroll
    for (int j = 0; j < kJ; ++j) s[i][j] = 0;
#pragma unroll 2
  for (int d = 0; d < kCount; d += kVec) {
    A x[kI][kVec], y[kJ][kVec];
#pragma unroll
    for (int i = 0; i < kI; ++i) *reinterpret_cast<V*>(x[i]) = *reinterpret_cast<const V*>(a + (ty + 16 * i) * a_stride + d);
#pragma unroll
    for (int j = 0; j < kJ; ++j) *reinterpret_cast<V*>(y[j]) = *reinterpret_cast<const V*>(b + (tx + 16 * j) * b_stride + d);
#pragma unroll
    for (int v = 0; v < kVec; ++v)
#pragma unroll
      for (int i = 0; i < kI; ++i)
#pragma unroll
        for (int j = 0; j < kJ; ++j) s[i][j] = fused(x[i][v], y[j][v], s[i][j]);
  }
}

// Sums over rows of `b`: o[i][c] += weights[row i][r] b[r][column of c].
template <int kColumns, int kCount, class A, int kI, int kC>
__device__ __forceinline__ void add_rows(const A* weights, int weight_stride, const A* b, int b_stride, int tx, int ty,
                                         A (&o)[kI][kC][Vec<A>::kSize]) {
  constexpr int kVec = Vec<A>::kSize;
  using V = typename Vec<A>::Type;
#pragma unroll 2
  for (int r = 0; r < kCount; ++r) {
    A w[kI];
#pragma unroll
    for (int i = 0; i < kI; ++i) w[i] = weights[(ty + 16 * i) * weight_stride + r];
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      const int column = (tx + 16 * c) * kVec;
      if (column >= kColumns) continue;
      A values[kVec];
      *reinterpret_cast<V*>(values) = *reinterpret_cast<const V*>(b + r * b_stride + column);
#pragma unroll
      for (int i = 0; i < kI; ++i)
#pragma unroll
        for (int v = 0; v < kVec; ++v) o[i][c][v] = fused(w[i], values[v], o[i][c][v]);
    }
  }
}

template <int kColumns, class T, class A, int kI, int kC>
__device__ __forceinline__ void store_sums(const A (&o)[kI][kC][Vec<A>::kSize], A factor, T* to, int64_t row_stride,
                                           int64_t column_stride, int rows, int tx, int ty) {
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    if (ty + 16 * i >= rows) continue;
#pragma unroll
    for (int c = 0; c < kC; ++c)
#pragma unroll
      for (int v = 0; v < Vec<A>::kSize; ++v) {
        const int column = (tx + 16 * c) * Vec<A>::kSize + v;
        if (column < kColumns) to[(ty + 16 * i) * row_stride + column * column_stride] = narrow<T>(o[i][c][v] * factor);
      }
  }
}

template <class A, int kI, int kC>
__device__ __forceinline__ void clear(A (&o)[kI][kC][Vec<A>::kSize]) {
#pragma unroll
  for (int i = 0; i < kI; ++i)
#pragma unroll
    for (int c = 0; c < kC; ++c)
#pragma unroll
      for (int v = 0; v < Vec<A>::kSize; ++v) o[i][c][v] = 0;
}

template <class A>
__device__ __forceinline__ A infinity() {
  return A(__int_as_float(0x7f800000));
}

// What both kernels do with one block of scores: products become scores, hidden ones -infinity.
template <class Traits>
struct ScoreBlock {
  using A = typename BackwardShape<Traits>::A;
  const BackwardCall<Traits>& call;
  const typename Traits::Mask* mask;  // of the head
  static constexpr A kMultiplier = A(Scores<Traits>::kPlain ? double(A(Traits::kScale)) * kLog2E : kLog2E);

  __device__ __forceinline__ A score(A product, int32_t row, int32_t key, A& bend) const {
    bend = 1;
    if (row >= call.queries || key >= visible_keys(call, row)) return A(minus_infinity());
    if (Traits::kWindow > 0 && key < first_key(call, row)) return A(minus_infinity());
    A value = 0;
    if constexpr (Traits::kHasMask)
      value = Scores<Traits>::template mask_value<A>(mask[row * call.mask_view.row + key * call.mask_view.column]);
    return score_and_bend<Traits>(product, value, bend);
  }
  static __device__ __forceinline__ A weight(A score, A level) {
    return score == A(minus_infinity()) || level == infinity<A>() ? A(0) : exp_two(kMultiplier * score - level);
  }
};

}  // namespace aicf::attention
