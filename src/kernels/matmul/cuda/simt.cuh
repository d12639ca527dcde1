// Contraction on the plain arithmetic units, for every type and any strides: a block computes BM × BN results, a thread
// TM × TN of them as an outer product, K in steps of kDepth through two shared-memory buffers. Each result is
// acc = fma(x[k], y[k], acc) with k ascending from 0 (integers: wrapping), a split K adds the parts in order.
#pragma once

#include "matmul/cuda/matmul_common.cuh"

namespace aicf {

__device__ __forceinline__ float widen(f16 x) { return to_float(x); }
__device__ __forceinline__ float widen(bf16 x) { return to_float(x); }
template <class T>
__device__ __forceinline__ T widen(T x) {
  return x;
}

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ int32_t multiply_add(int32_t a, int32_t b, int32_t c) {
  return int32_t(uint32_t(a) * uint32_t(b) + uint32_t(c));
}
__device__ __forceinline__ int64_t multiply_add(int64_t a, int64_t b, int64_t c) {
  return int64_t(uint64_t(a) * uint64_t(b) + uint64_t(c));
}

// kXAlongK: neighbouring elements of x in memory differ in k (else in m); kYAlongK likewise (else in n). Only the speed
// depends on it.
template <class Acc, int BM, int BN, bool kXAlongK, bool kYAlongK, Split kSplit, int kParts>
struct SimtMatmul {
  static constexpr int kColumns = 4;               // of one group that a thread stores
  static constexpr int TM = BM >= 128 ? 8 : 4, TN = BN >= 128 ? 8 : 4;
  static constexpr int kThreads = (BM / TM) * (BN / TN);
  static constexpr int kGroups = TM * TN / kColumns;
  static constexpr int kPad = 4;
  // A step's loads are under way while the one before computes: small tiles wait for them, large ones have room for more.
  // With 32, tiles of 64 took up to 1.9 times as long where several blocks share a multiprocessor.
  static constexpr int kDepth = BM == 64 ? 8 : 16;
  struct Buffers {
    Acc x[2][kDepth][BM + kPad];
    Acc y[2][kDepth][BN + kPad];
  };
  static constexpr int kXLoads = BM * kDepth / kThreads, kYLoads = BN * kDepth / kThreads;

  // Rows and columns of a thread lie in groups of 4 at a distance of BM / (TM / 4), so that neighbouring threads read
  // neighbouring words.
  static __device__ int row_of(int thread, int i) {
    return i / 4 * (BM / (TM / 4)) + thread / (BN / TN) * 4 + i % 4;
  }
  static __device__ int column_of(int thread, int group) {
    return group * (BN / (TN / 4)) + thread % (BN / TN) * 4;
  }

  // Along k a warp of large tiles has eight elements, a sector of memory, of each of four rows: their places in the
  // buffer, a row of it apart in k, are in different banks.
  template <int kExtent, bool kAlongK>
  static __device__ void position(int thread, int i, int& k, int& at) {
    constexpr int kRun = BM >= 64 ? 8 : kDepth;
    constexpr bool kRuns = kRun < kDepth;  // several in a step
    const int index = thread + i * kThreads, run = kRuns ? index / (kRun * kExtent) : 0;
    k = kAlongK ? run * kRun + index % kRun : index / kExtent;
    at = !kAlongK ? index % kExtent : kRuns ? index / kRun % kExtent : index / kRun;
  }

  template <int kExtent, bool kAlongK, int kLoads, class T, class I>
  static __device__ void fetch(const T* base, I stride, I k_stride, I left, I k_left, int thread, Acc (&to)[kLoads]) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      int k, at;
      position<kExtent, kAlongK>(thread, i, k, at);
      to[i] = at < left && k < k_left ? Acc(widen(base[at * stride + k * k_stride])) : Acc(0);
    }
  }

  template <int kExtent, bool kAlongK, int kLoads>
  static __device__ void put(const Acc (&from)[kLoads], Acc (*to)[kExtent + kPad], int thread) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      int k, at;
      position<kExtent, kAlongK>(thread, i, k, at);
      to[k][at] = from[i];
    }
  }

  // At a multiple of 16 bytes.
  static __device__ void read_four(const Acc* from, Acc* to) {
    using Vector = AccVector<Acc>;
#pragma unroll
    for (int i = 0; i < 4 / Vector::kLength; ++i) {
      const Vector v = reinterpret_cast<const Vector*>(from)[i];
#pragma unroll
      for (int e = 0; e < Vector::kLength; ++e) to[i * Vector::kLength + e] = v.values[e];
    }
  }

  static __device__ void step(const Buffers& buffers, int buffer, int thread, Acc (&acc)[TM][TN]) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      Acc a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 4) read_four(&buffers.x[buffer][k][row_of(thread, i)], &a[i]);
#pragma unroll
      for (int j = 0; j < TN; j += 4) read_four(&buffers.y[buffer][k][column_of(thread, j / 4)], &b[j]);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = multiply_add(a[i], b[j], acc[i][j]);
    }
  }

  template <class T, class I>
  static __device__ void accumulate(const MatmulOperands<T, I>& o, const T* x, const T* y, I k_first, I k_end, I m_left,
                                    I n_left, Buffers& buffers, Acc (&acc)[TM][TN]) {
    const int thread = int(threadIdx.x);
    Acc next_x[kXLoads], next_y[kYLoads];
    const auto fetch_both = [&](I k) {
      fetch<BM, kXAlongK>(x + k * o.x_column, o.x_row, o.x_column, m_left, k_end - k, thread, next_x);
      fetch<BN, kYAlongK>(y + k * o.y_row, o.y_column, o.y_row, n_left, k_end - k, thread, next_y);
    };
    const auto put_both = [&](int buffer) {
      put<BM, kXAlongK>(next_x, buffers.x[buffer], thread);
      put<BN, kYAlongK>(next_y, buffers.y[buffer], thread);
    };
    if (k_first >= k_end) return;
    fetch_both(k_first);
    put_both(0);
    sync_threads<kThreads>();
    int buffer = 0;
    for (I k = k_first; k < k_end; k += kDepth, buffer ^= 1) {
      const bool more = k_end - k > kDepth;
      if (more) fetch_both(k + kDepth);
      step(buffers, buffer, thread, acc);
      if (more) put_both(buffer ^ 1);
      sync_threads<kThreads>();
    }
  }

  // Part `block % kParts` of tile `block / kParts`; a part is `part_depth` of K. Split::kSum: a block per tile.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, typename Operands::Index part_depth,
                             void* workspace, uint32_t block) {
    using I = typename Operands::Index;
    extern __shared__ __align__(16) char shared[];
    const int thread = int(threadIdx.x);
    constexpr uint32_t tile_parts = kSplit == Split::kSum ? 1 : kParts;
    const uint32_t tile_index = block / tile_parts, part = block - tile_index * tile_parts;
    const MatmulTile tile = tile_at(tile_index, uint32_t(tiles_of<I>(o.m, BM)), uint32_t(tiles_of<I>(o.n, BN)));
    const I row = I(tile.row) * BM, column = I(tile.column) * BN;
    const int64_t outer = int64_t(tile.batch) * o.m;
    const auto store = [&](int g, const Acc(&values)[kColumns]) {
      const I r = row + row_of(thread, g / (TN / 4)), c = column + column_of(thread, g % (TN / 4));
      if (r < o.m && c < o.n) store_columns<kColumns>(epilogue, epilogue.row(outer + r), c, o.n, values);
    };
    constexpr int64_t kTileVectors = int64_t(BM) * BN * sizeof(Acc) / sizeof(AccVector<Acc>);
    auto* parts_at = static_cast<AccVector<Acc>*>(workspace) + tile_index * kParts * kTileVectors;
    if constexpr (kSplit == Split::kSum) {
      sum_parts<kThreads, kParts, kGroups, kColumns, Acc>(parts_at, kTileVectors, thread, store);
    } else {
      Acc acc[TM][TN];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = Acc(0);
      const I k_first = I(part) * part_depth;
      const I k_end = kSplit == Split::kNone ? o.k : min(o.k, k_first + part_depth);
      accumulate(o, o.x_of(tile.batch) + row * o.x_row, o.y_of(tile.batch) + column * o.y_column, k_first, k_end,
                 o.m - row, o.n - column, *reinterpret_cast<Buffers*>(shared), acc);
      auto& groups = reinterpret_cast<Acc(&)[kGroups][kColumns]>(acc);
      finish_groups<kThreads, kSplit, kParts>(groups, thread, shared, parts_at + part * kTileVectors, store);
    }
  }
};

}  // namespace aicf
