// Contraction on the plain arithmetic units, for every type and any strides: a block computes BM × BN results, a thread
// TM × TN of them as an outer product, K in stages of kDepth through shared memory, kStages - 1 of which are loaded ahead.
// Each result is acc = fma(x[k], y[k], acc) with k ascending from 0 (integers: wrapping), a split K adds the parts in order.
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
template <class Acc, int BM, int BN, int TM, int TN, int kStages, bool kXAlongK, bool kYAlongK, Split kSplit, int kParts>
struct SimtMatmul {
  static constexpr int kColumns = 4;               // of one group that a thread stores
  static constexpr int kThreads = (BM / TM) * (BN / TN);
  static constexpr int kGroups = TM * TN / kColumns;
  static constexpr int kPad = 4;
  static constexpr int kDepth = 8;  // of K in a stage: a sector of memory along k
  struct Stage {
    Acc x[kDepth][BM + kPad];
    Acc y[kDepth][BN + kPad];
  };

  // Rows and columns of a thread lie in groups of 4 at a distance of BM / (TM / 4), so that neighbouring threads read
  // neighbouring words. A warp has 4 × 8 threads: eight neighbours read two vectors of rows and four of columns.
  static constexpr int kWarpsAcross = BN / TN / 8;
  static_assert(BN % (TN * 8) == 0 && BM % (TM * 4) == 0 && TM % 4 == 0 && TN % 4 == 0, "whole warps");
  static __device__ __forceinline__ int row_of(int thread, int i) {
    const int lane = thread % 32, row = lane / 16 * 2 + lane % 2;
    return i / 4 * (BM / (TM / 4)) + (thread / 32 / kWarpsAcross * 4 + row) * 4 + i % 4;
  }
  static __device__ __forceinline__ int column_of(int thread, int group) {
    return group * (BN / (TN / 4)) + (thread / 32 % kWarpsAcross * 8 + thread / 2 % 8) * 4;
  }

  // What a thread loads of one operand: kLoads elements of each stage. Along k a warp has eight elements, a sector of
  // memory, of each of four rows: their places in the stage, a row of it apart in k, are in different banks.
  template <int kExtent, bool kAlongK, class T, class I>
  struct Loads {
    static constexpr int kLoads = kExtent * kDepth / kThreads;
    static constexpr int kApart = kThreads / (kAlongK ? kDepth : kExtent);  // in rows or columns, or in k
    static_assert(kThreads % (kAlongK ? kDepth : kExtent) == 0 && kExtent * kDepth % kThreads == 0, "even shares of a stage");
    static constexpr int kFirstApart = kAlongK ? kApart : 0, kDepthApart = kAlongK ? 0 : kApart;
    const T* from;  // of the next stage
    I apart, step;
    int k, at;
    uint32_t inside;  // bit i: load i lies inside the matrix, but for k

    __device__ __forceinline__ Loads(const T* base, I stride, I k_stride, I left, int thread)
        : apart(kApart * (kAlongK ? stride : k_stride)),
          step(kDepth * k_stride),
          k(kAlongK ? thread % kDepth : thread / kExtent),
          at(kAlongK ? thread / kDepth : thread % kExtent),
          inside(0) {
      from = base + at * stride + k * k_stride;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) inside |= uint32_t(at + i * kFirstApart < left) << i;
    }
    __device__ __forceinline__ bool has(int i, I k_left) const { return (inside >> i & 1) != 0 && k + i * kDepthApart < k_left; }
    __device__ __forceinline__ Acc* place(Acc (*to)[kExtent + kPad], int i) const {
      return &to[k + i * kDepthApart][at + i * kFirstApart];
    }
    // Elements that are not inside become zero.
    __device__ __forceinline__ void copy(Acc (*to)[kExtent + kPad], I k_left) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(place(to, i))), "l"(from + i * apart),
                     "n"(sizeof(T)), "r"(has(i, k_left) ? int(sizeof(T)) : 0)
                     : "memory");
      from += step;
    }
    // The same by way of registers, of elements that are widened.
    __device__ __forceinline__ void fetch(Acc (&to)[kLoads], I k_left) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) to[i] = has(i, k_left) ? Acc(widen(from[i * apart])) : Acc(0);
      from += step;
    }
    __device__ __forceinline__ void put(const Acc (&values)[kLoads], Acc (*to)[kExtent + kPad]) const {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) *place(to, i) = values[i];
    }
  };

  // The rows and columns of a thread at one k.
  struct Fragment {
    Acc a[TM], b[TN];
    __device__ __forceinline__ void read(const Stage& stage, int k, int thread) {
#pragma unroll
      for (int i = 0; i < TM; i += 4) read_four(&stage.x[k][row_of(thread, i)], &a[i]);
#pragma unroll
      for (int j = 0; j < TN; j += 4) read_four(&stage.y[k][column_of(thread, j / 4)], &b[j]);
    }
    __device__ __forceinline__ void multiply(Acc (&acc)[TM][TN]) const {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = multiply_add(a[i], b[j], acc[i][j]);
    }
  };

  // Fragments are read one k ahead, over the end of a stage, too. A stage's place is free for loads as soon as the barrier
  // in the last k of the step before has passed.
  template <class T, class I>
  static __device__ __forceinline__ void accumulate(const MatmulOperands<T, I>& o, const T* x, const T* y, I k_first, I k_end,
                                                    I m_left, I n_left, Stage* stages, Acc (&acc)[TM][TN]) {
    constexpr bool kCopies = sizeof(T) == sizeof(Acc);
    const int thread = int(threadIdx.x);
    if (k_first >= k_end) return;
    using XLoads = Loads<BM, kXAlongK, T, I>;
    using YLoads = Loads<BN, kYAlongK, T, I>;
    XLoads x_loads(x + k_first * o.x_column, o.x_row, o.x_column, m_left, thread);
    YLoads y_loads(y + k_first * o.y_row, o.y_column, o.y_row, n_left, thread);
    Acc next_x[XLoads::kLoads], next_y[YLoads::kLoads];
    I k_left = k_end - k_first;  // of what is loaded next
    const auto begin = [&](Stage& stage) {
      if constexpr (kCopies) {
        if (k_left > 0) {
          x_loads.copy(stage.x, k_left);
          y_loads.copy(stage.y, k_left);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
      } else if (k_left > 0) {
        x_loads.fetch(next_x, k_left);
        y_loads.fetch(next_y, k_left);
      }
      k_left -= kDepth;
    };
    const auto end = [&](Stage& stage) {
      if constexpr (!kCopies) {
        x_loads.put(next_x, stage.x);
        y_loads.put(next_y, stage.y);
      }
    };
    const auto wait = [&] {
      if constexpr (kCopies) asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
      sync_threads<kThreads>();
    };
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      begin(stages[s]);
      end(stages[s]);
    }
    wait();
    Fragment fragments[2];
    fragments[0].read(stages[0], 0, thread);
    int slot = 0, load_slot = kStages - 1;
#pragma unroll 1
    for (I k = k_first; k < k_end; k += kDepth) {
      const int next_slot = slot + 1 == kStages ? 0 : slot + 1;
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        if (i + 1 < kDepth) {
          fragments[(i + 1) % 2].read(stages[slot], i + 1, thread);
        } else {
          end(stages[load_slot]);
          wait();
          fragments[0].read(stages[next_slot], 0, thread);
        }
        if (i == 0) begin(stages[load_slot]);
        fragments[i % 2].multiply(acc);
      }
      load_slot = slot;
      slot = next_slot;
    }
    if constexpr (kCopies) asm volatile("cp.async.wait_group 0;" ::: "memory");
    sync_threads<kThreads>();
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
                 o.m - row, o.n - column, reinterpret_cast<Stage*>(shared), acc);
      auto& groups = reinterpret_cast<Acc(&)[kGroups][kColumns]>(acc);
      finish_groups<kThreads, kSplit, kParts>(groups, thread, shared, parts_at + part * kTileVectors, store);
    }
  }
};

}  // namespace aicf
