// Attention on the general-purpose units, for every element type: f32 and f64 in their own precision, half
// types in f32. A block of 256 threads, 16 × 16, holds kRows query rows and walks over blocks of kKeys keys
// with the online softmax (Milakov and Gimelshein 2018; Dao et al. 2022). A thread holds kRows/16 × kKeys/16
// scores and, of the same rows, the columns 4·tx … of the result.
//
// Order, for every row alone: a score is a chain of fma over the depth; a weighted value is a chain over the
// keys, rescaled to the new maximum once per block of keys; the sum has 16 lanes (key mod 16) that are
// combined pairwise.
#pragma once

#include "attention/cuda/call.cuh"

namespace aicf::attention {

template <class T>
struct Accumulator {
  using Type = float;
};
template <>
struct Accumulator<double> {
  using Type = double;
};

template <class A>
struct Vec;
template <>
struct Vec<float> {
  static constexpr int kSize = 4;
  using Type = float4;
};
template <>
struct Vec<double> {
  static constexpr int kSize = 2;
  using Type = double2;
};

template <class T>
__device__ __forceinline__ T narrow(typename Accumulator<T>::Type x) {
  if constexpr (sizeof(T) == 8)
    return x;
  else
    return from_float<T>(x);
}

// Elements between rows of a tile in shared memory: an odd number of 16-byte units, so that reads down a
// column of units meet no bank twice.
template <class A>
constexpr int tile_stride(int columns) {
  return (((columns + Vec<A>::kSize - 1) / Vec<A>::kSize) | 1) * Vec<A>::kSize;
}

template <class Traits>
struct SimtShape {
  using A = typename Accumulator<typename Traits::Element>::Type;
  static constexpr int kDeepest = Traits::kDepth > Traits::kValueDepth ? Traits::kDepth : Traits::kValueDepth;
  static constexpr int kQStride = tile_stride<A>(Traits::kDepth), kKvStride = tile_stride<A>(kDeepest),
                       kPStride = tile_stride<A>(Traits::kKeys);
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

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

template <class Traits>
struct SimtBlock {
  using Shape = SimtShape<Traits>;
  using A = typename Shape::A;
  using V = typename Vec<A>::Type;
  static constexpr int kVec = Vec<A>::kSize;
  static constexpr int kR = Traits::kRows / 16, kK = Traits::kKeys / 16;
  static constexpr int kC =
      (Traits::kValueDepth + 16 * kVec - 1) / (16 * kVec);  // vectors of the result a thread holds
  static constexpr A kMultiplier = A(Scores<Traits>::kPlain ? A(Traits::kScale) : A(1));

  A *q, *kv, *p;
  A maximum[kR], sum[kR], o[kR][kC][kVec];
  int tx, ty;

  __device__ __forceinline__ void multiply_keys(A (&s)[kR][kK]) const {
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kK; ++j) s[i][j] = 0;
#pragma unroll 4
    for (int d = 0; d < Traits::kDepth; d += kVec) {
      A a[kR][kVec], b[kK][kVec];
#pragma unroll
      for (int i = 0; i < kR; ++i)
        *reinterpret_cast<V*>(a[i]) = *reinterpret_cast<const V*>(q + (ty + 16 * i) * Shape::kQStride + d);
#pragma unroll
      for (int j = 0; j < kK; ++j)
        *reinterpret_cast<V*>(b[j]) = *reinterpret_cast<const V*>(kv + (tx + 16 * j) * Shape::kKvStride + d);
#pragma unroll
      for (int v = 0; v < kVec; ++v)
#pragma unroll
        for (int i = 0; i < kR; ++i)
#pragma unroll
          for (int j = 0; j < kK; ++j) s[i][j] = fused(a[i][v], b[j][v], s[i][j]);
    }
  }

  // Products to scores, hidden ones -infinity; `first` and `from` are the block's first row and key.
  __device__ __forceinline__ void score(const Call<Traits>& call, const typename Traits::Mask* mask, int32_t first, int32_t from,
                                        A (&s)[kR][kK]) const {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const int32_t row = first + ty + 16 * i;
      const int32_t visible = row < call.queries ? visible_keys(call, row) : 0, seen = first_key(call, row);
#pragma unroll
      for (int j = 0; j < kK; ++j) {
        const int32_t key = from + tx + 16 * j;
        if (key < visible && (Traits::kWindow == 0 || key >= seen)) {
          A value = 0;
          if constexpr (Traits::kHasMask)
            value = Scores<Traits>::template mask_value<A>(mask[row * call.mask_view.row + key * call.mask_view.column]);
          s[i][j] = Scores<Traits>::score(s[i][j], value);
        } else {
          s[i][j] = A(minus_infinity());
        }
      }
    }
  }

  // Scores to weights relative to the new maximum, in shared memory.
  __device__ __forceinline__ void weigh(A (&s)[kR][kK]) {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      A top = maximum[i];
#pragma unroll
      for (int j = 0; j < kK; ++j) top = larger(top, s[i][j]);
#pragma unroll
      for (int lane = 8; lane > 0; lane /= 2) top = larger(top, __shfl_xor_sync(0xffffffffu, top, lane));
      const A reference = top == A(minus_infinity()) ? A(0) : top;
      const A scale = exp(kMultiplier * (maximum[i] - reference));
      maximum[i] = top;
      sum[i] *= scale;
#pragma unroll
      for (int j = 0; j < kK; ++j) {
        const A weight = exp(kMultiplier * (s[i][j] - reference));
        sum[i] += weight;
        p[(ty + 16 * i) * Shape::kPStride + tx + 16 * j] = weight;
      }
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int v = 0; v < kVec; ++v) o[i][c][v] *= scale;
    }
  }

  __device__ __forceinline__ void add_values() {
#pragma unroll 2
    for (int key = 0; key < Traits::kKeys; key += kVec) {
      A weights[kR][kVec];
#pragma unroll
      for (int i = 0; i < kR; ++i)
        *reinterpret_cast<V*>(weights[i]) =
            *reinterpret_cast<const V*>(p + (ty + 16 * i) * Shape::kPStride + key);
#pragma unroll
      for (int u = 0; u < kVec; ++u) {
#pragma unroll
        for (int c = 0; c < kC; ++c) {
          const int column = (tx + 16 * c) * kVec;
          if (column >= Traits::kValueDepth) continue;
          A values[kVec];
          *reinterpret_cast<V*>(values) =
              *reinterpret_cast<const V*>(kv + (key + u) * Shape::kKvStride + column);
#pragma unroll
          for (int i = 0; i < kR; ++i)
#pragma unroll
            for (int v = 0; v < kVec; ++v) o[i][c][v] = fused(weights[i][u], values[v], o[i][c][v]);
        }
      }
    }
  }

  __device__ __forceinline__ void store(const Call<Traits>& call, int64_t b, int64_t h, int32_t first) const {
    using T = typename Traits::Element;
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      A total = sum[i];
#pragma unroll
      for (int lane = 8; lane > 0; lane /= 2) total += __shfl_xor_sync(0xffffffffu, total, lane);
      const int32_t row = first + ty + 16 * i;
      if (row >= call.queries) continue;
      T* out = call.out + b * call.out_view.batch + h * call.out_view.head + row * call.out_view.row;
      if (call.lse != nullptr && tx == 0)
        call.lse[(b * call.heads + h) * call.queries + row] =
            float(total == 0 ? A(minus_infinity()) : kMultiplier * maximum[i] + log(total));
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const int column = (tx + 16 * c) * kVec + e;
          if (column < Traits::kValueDepth)
            out[column * call.out_view.column] = narrow<T>(total == 0 ? A(0) : o[i][c][e] / total);
        }
    }
  }
};

template <class Traits>
__device__ __forceinline__ void attend_simt(const Call<Traits>& call) {
  using Block = SimtBlock<Traits>;
  using A = typename Block::A;
  using T = typename Traits::Element;
  extern __shared__ __align__(16) char shared[];
  const Place place = place_of_block(call);
  const int32_t first = place.tile * Traits::kRows;
  const int64_t b = place.batch, h = place.head, kv_head = place.head / call.group;
  const int rows = call.queries - first < Traits::kRows ? call.queries - first : Traits::kRows;

  Block block;
  block.q = reinterpret_cast<A*>(shared);
  block.kv = block.q + Traits::kRows * Block::Shape::kQStride;
  block.p = block.kv + Traits::kKeys * Block::Shape::kKvStride;
  block.tx = int(threadIdx.x) % 16;
  block.ty = int(threadIdx.x) / 16;
#pragma unroll
  for (int i = 0; i < Block::kR; ++i) {
    block.maximum[i] = A(minus_infinity());
    block.sum[i] = 0;
#pragma unroll
    for (int c = 0; c < Block::kC; ++c)
#pragma unroll
      for (int v = 0; v < Block::kVec; ++v) block.o[i][c][v] = 0;
  }

  wait_for_inputs();
  launch_dependents();
  const T* k = call.k + b * call.k_view.batch + kv_head * call.k_view.head;
  const T* v = call.v + b * call.v_view.batch + kv_head * call.v_view.head;
  const typename Traits::Mask* mask = nullptr;
  if (Traits::kHasMask) mask = call.mask + b * call.mask_view.batch + h * call.mask_view.head;
  load_tile<Traits::kDepth, Traits::kRows, Traits::kVectorQ>(
      block.q, Block::Shape::kQStride,
      call.q + b * call.q_view.batch + h * call.q_view.head + first * call.q_view.row, call.q_view.row,
      call.q_view.column, rows);

  const int32_t end = visible_keys(call, first + rows - 1);
  const int32_t start = first_key(call, first) / Traits::kKeys * Traits::kKeys;
  for (int32_t from = start; from < end; from += Traits::kKeys) {
    const int count = call.keys - from < Traits::kKeys ? call.keys - from : Traits::kKeys;
    __syncthreads();
    load_tile<Traits::kDepth, Traits::kKeys, Traits::kVectorK>(block.kv, Block::Shape::kKvStride,
                                                               k + from * call.k_view.row, call.k_view.row,
                                                               call.k_view.column, count);
    __syncthreads();
    A s[Block::kR][Block::kK];
    block.multiply_keys(s);
    block.score(call, mask, first, from, s);
    __syncthreads();
    load_tile<Traits::kValueDepth, Traits::kKeys, Traits::kVectorV>(
        block.kv, Block::Shape::kKvStride, v + from * call.v_view.row, call.v_view.row, call.v_view.column,
        count);
    block.weigh(s);
    __syncthreads();
    block.add_values();
  }

  block.store(call, b, h, first);
}

}  // namespace aicf::attention
