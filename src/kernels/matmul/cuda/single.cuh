// Contraction of little work, where a thread's chain of instructions is the time: a block computes 16 × 16 results, a
// thread one of them. K goes through shared memory in steps of kDepth, the next step's elements waiting in registers.
// Each result is acc = fma(x[k], y[k], acc) with k ascending from 0, as in simt.cuh.
#pragma once

#include "matmul/cuda/simt.cuh"

namespace aicf {

template <class Acc, int kDepth, bool kXAlongK, bool kYAlongK>
struct SingleMatmul {
  static constexpr int kSide = 16, kThreads = kSide * kSide, kLoads = kSide * kDepth / kThreads;
  static constexpr int kUnroll = 16 / sizeof(Acc);  // elements of x in one access
  struct Buffers {
    Acc x[kSide][kDepth + kUnroll];
    Acc y[kDepth][kSide + 1];
  };

  template <bool kAlongK>
  static __device__ void position(int thread, int i, int& k, int& at) {
    const int index = thread + i * kThreads;
    k = kAlongK ? index % kDepth : index / kSide;
    at = kAlongK ? index / kDepth : index % kSide;
  }

  template <bool kAlongK, class T, class I>
  static __device__ void fetch(const T* base, I stride, I k_stride, I left, I k_left, int thread, Acc (&to)[kLoads]) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      int k, at;
      position<kAlongK>(thread, i, k, at);
      to[i] = at < left && k < k_left ? Acc(widen(base[at * stride + k * k_stride])) : Acc(0);
    }
  }

  static __device__ void put(const Acc (&x)[kLoads], const Acc (&y)[kLoads], int thread, Buffers& buffers) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      int k, at;
      position<kXAlongK>(thread, i, k, at);
      buffers.x[at][k] = x[i];
      position<kYAlongK>(thread, i, k, at);
      buffers.y[k][at] = y[i];
    }
  }

  // Of the step's `depth` elements; those beyond are zeros.
  static __device__ Acc multiply(const Buffers& buffers, int row, int column, int depth, Acc acc) {
#pragma unroll 2
    for (int k = 0; k < depth; k += kUnroll) {
      const auto x = *reinterpret_cast<const AccVector<Acc>*>(&buffers.x[row][k]);
#pragma unroll
      for (int e = 0; e < kUnroll; ++e) acc = multiply_add(x.values[e], buffers.y[k + e][column], acc);
    }
    return acc;
  }

  // Tile `block`.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, uint32_t block) {
    using I = typename Operands::Index;
    extern __shared__ __align__(16) char shared[];
    Buffers& buffers = *reinterpret_cast<Buffers*>(shared);
    const int thread = int(threadIdx.x), row = thread / kSide, column = thread % kSide;
    const MatmulTile tile = tile_at(block, uint32_t(tiles_of<I>(o.m, kSide)), uint32_t(tiles_of<I>(o.n, kSide)));
    const I first_row = I(tile.row) * kSide, first_column = I(tile.column) * kSide;
    const auto* x = o.x_of(tile.batch) + first_row * o.x_row;
    const auto* y = o.y_of(tile.batch) + first_column * o.y_column;
    Acc next_x[kLoads], next_y[kLoads], acc[1] = {Acc(0)};
    const auto fetch_both = [&](I k) {
      fetch<kXAlongK>(x + k * o.x_column, o.x_row, o.x_column, o.m - first_row, o.k - k, thread, next_x);
      fetch<kYAlongK>(y + k * o.y_row, o.y_column, o.y_row, o.n - first_column, o.k - k, thread, next_y);
    };
    const I r = first_row + row, c = first_column + column;
    const bool inside = r < o.m && c < o.n;
    const auto result = epilogue.row(int64_t(tile.batch) * o.m + r);
    // What the epilogue reads is on its way while K is walked.
    typename Epilogue::template Shared<1> shared_operands;
    typename Epilogue::template Own<1> own_operands;
    fetch_both(0);
    if (inside) {
      epilogue.fetch(shared_operands, c);
      epilogue.fetch(own_operands, result, c);
    }
    for (I k = 0; k < o.k; k += kDepth) {
      put(next_x, next_y, thread, buffers);
      sync_threads<kThreads>();
      if (o.k - k > kDepth) fetch_both(k + kDepth);
      acc[0] = multiply(buffers, row, column, int(min(I(kDepth), o.k - k)), acc[0]);
      sync_threads<kThreads>();
    }
    if (inside) epilogue.apply(result, c, acc, shared_operands, own_operands);
  }
};

}  // namespace aicf
