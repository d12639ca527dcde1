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

// kXAlongK: neighbouring elements of x in memory differ in k (else in m); kYAlongK likewise (else in n). kXVector: its rows in
// memory start at multiples of 16 bytes, so that four elements of four bytes come in one copy; kYVector likewise. Only the
// speed depends on them.
template <class Acc, int BM, int BN, int TM, int TN, int kStages, bool kXAlongK, bool kYAlongK, Split kSplit, int kParts,
          bool kXVector = false, bool kYVector = false>
struct SimtMatmul {
  static constexpr int kColumns = 4;               // of one group that a thread stores
  static constexpr int kThreads = (BM / TM) * (BN / TN);
  static constexpr int kGroups = TM * TN / kColumns;
  static constexpr int kPad = 4;
  static constexpr int kDepth = 8;  // of K in a stage: a sector of memory along k
  static constexpr int kQuad = 4;   // of K, that one copy along k has
  // One operand of a stage: each k has its rows (or columns) side by side; or, of copies along k (kQuads), each row has its
  // k side by side, and four rows are kPad apart from the next four, so that neighbouring threads' are in different banks.
  template <int kExtent, bool kInQuads>
  struct alignas(16) Part {
    static constexpr bool kQuads = kInQuads;
    static constexpr int kRows = 4, kGroup = kRows * kDepth + kPad;
    static constexpr int kLength = kQuads ? kExtent / kRows * kGroup : kDepth * (kExtent + kPad);
    Acc values[kLength];
    static __device__ __forceinline__ constexpr int place(int k, int row) {
      return kQuads ? row / kRows * kGroup + row % kRows * kDepth + k : k * (kExtent + kPad) + row;
    }
  };
  using XPart = Part<BM, kXVector && kXAlongK>;
  using YPart = Part<BN, kYVector && kYAlongK>;
  struct Stage {
    XPart x;
    YPart y;
  };
  static constexpr int kStageLength = sizeof(Stage) / sizeof(Acc);

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

  // What a thread loads of one operand: kLoads copies of kWidth elements of each stage. Along k a warp has a sector of
  // memory of each of its rows: single elements, whose places in the stage are a row of it apart in k, are in different
  // banks.
  template <int kExtent, bool kAlongK, bool kVector, class T, class I>
  struct Loads {
    using To = Part<kExtent, kVector && kAlongK>;
    static constexpr int kWidth = kVector ? 4 : 1, kAcross = (kAlongK ? kDepth : kExtent) / kWidth;
    static constexpr int kLoads = kExtent * kDepth / kWidth / kThreads;
    static constexpr int kApart = kThreads / kAcross;  // in rows or columns, or in k
    static_assert(kThreads % kAcross == 0 && kExtent * kDepth % (kWidth * kThreads) == 0, "even shares of a stage");
    static_assert(!kVector || (sizeof(T) == 4 && sizeof(Acc) == 4), "copies of 16 bytes have four elements");
    static constexpr int kFirstApart = kAlongK ? kApart : 0, kDepthApart = kAlongK ? 0 : kApart;
    const T* from;  // of the next stage
    I apart, step;
    int k, at;
    uint32_t inside;  // bit i: load i lies inside the matrix, but for k
    int across;       // elements of a copy across k that lie inside

    __device__ __forceinline__ Loads(const T* base, I stride, I k_stride, I left, int thread)
        : apart(kApart * (kAlongK ? stride : k_stride)),
          step(kDepth * k_stride),
          k(kAlongK ? thread % kAcross * kWidth : thread / kAcross),
          at(kAlongK ? thread / kAcross : thread % kAcross * kWidth),
          inside(0),
          across(int(min(max(left - I(at), I(0)), I(kWidth)))) {
      from = base + at * stride + k * k_stride;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) inside |= uint32_t(at + i * kFirstApart < left) << i;
    }
    __device__ __forceinline__ bool has(int i, I k_left) const { return (inside >> i & 1) != 0 && k + i * kDepthApart < k_left; }
    // Of a copy: the others become zero.
    __device__ __forceinline__ int count(int i, I k_left) const {
      if (!has(i, k_left)) return 0;
      return !kVector ? 1 : kAlongK ? int(min(k_left - I(k), I(kWidth))) : across;
    }
    // Of the thread's first load, and of the others from there.
    __device__ __forceinline__ int first_place() const { return To::place(k, at); }
    static __device__ __forceinline__ constexpr int distance(int i) { return To::place(i * kDepthApart, i * kFirstApart); }
    // `to`: its first place. Elements that are not inside become zero.
    __device__ __forceinline__ void copy(Acc* to, I k_left) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const uint32_t address = shared_address(to) + uint32_t(distance(i) * int(sizeof(Acc)));
        const int bytes = count(i, k_left) * int(sizeof(T));
        if constexpr (kVector)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from + i * apart), "r"(bytes)
                       : "memory");
        else
          asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from + i * apart), "n"(sizeof(T)),
                       "r"(bytes)
                       : "memory");
      }
      from += step;
    }
    // The same by way of registers, of elements that are widened.
    __device__ __forceinline__ void fetch(Acc (&to)[kLoads], I k_left) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) to[i] = has(i, k_left) ? Acc(widen(from[i * apart])) : Acc(0);
      from += step;
    }
    static __device__ __forceinline__ void put(const Acc (&values)[kLoads], Acc* to) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) to[distance(i)] = values[i];
    }
  };

  // The rows or columns of a thread, in groups of 4 at a distance of kApart: of two k by turns, or of four that lie side by
  // side. `from`: where a stage has k = 0 of the first.
  template <int kCount, int kApart, class From>
  struct Fragment {
    static constexpr int kHeld = From::kQuads ? kQuad : 2;
    Acc values[kHeld][kCount];
    __device__ __forceinline__ void read(const Acc* from, int k) {
#pragma unroll
      for (int i = 0; i < kCount; i += From::kQuads ? 1 : 4) {
        Acc four[4];
        read_four(from + From::place(k, i / 4 * kApart + i % 4), four);
#pragma unroll
        for (int e = 0; e < 4; ++e) (From::kQuads ? values[e][i] : values[k % kHeld][i + e]) = four[e];
      }
    }
    // Before the product of k: the next one, or of four all.
    __device__ __forceinline__ void read_for(const Acc* from, int k) {
      if (From::kQuads ? k % kQuad == 0 : k + 1 < kDepth) read(from, From::kQuads ? k : k + 1);
    }
    __device__ __forceinline__ void begin(const Acc* from) {
      if constexpr (!From::kQuads) read(from, 0);
    }
    __device__ __forceinline__ const Acc (&of(int k) const)[kCount] { return values[k % kHeld]; }
  };
  static __device__ __forceinline__ void multiply(const Acc (&a)[TM], const Acc (&b)[TN], Acc (&acc)[TM][TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = multiply_add(a[i], b[j], acc[i][j]);
  }

  // Fragments are read one k ahead, over the end of a stage, too, but for those of four k. A stage's place is free for loads as soon as the barrier
  // in the last k of the step before has passed.
  template <class T, class I>
  static __device__ __forceinline__ void accumulate(const MatmulOperands<T, I>& o, const T* x, const T* y, I k_first, I k_end,
                                                    I m_left, I n_left, Stage* stages, Acc (&acc)[TM][TN]) {
    constexpr bool kCopies = sizeof(T) == sizeof(Acc);
    const int thread = int(threadIdx.x);
    if (k_first >= k_end) return;
    using XLoads = Loads<BM, kXAlongK, kXVector, T, I>;
    using YLoads = Loads<BN, kYAlongK, kYVector, T, I>;
    XLoads x_loads(x + k_first * o.x_column, o.x_row, o.x_column, m_left, thread);
    YLoads y_loads(y + k_first * o.y_row, o.y_column, o.y_row, n_left, thread);
    Acc next_x[XLoads::kLoads], next_y[YLoads::kLoads];
    I k_left = k_end - k_first;  // of what is loaded next
    Acc* const x_at = stages->x.values;
    Acc* const y_at = stages->y.values;
    Acc* const x_to = x_at + x_loads.first_place();
    Acc* const y_to = y_at + y_loads.first_place();
    // Stages are named by their places, in elements.
    const auto begin = [&](int stage) {
      if constexpr (kCopies) {
        if (k_left > 0) {
          x_loads.copy(x_to + stage, k_left);
          y_loads.copy(y_to + stage, k_left);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
      } else if (k_left > 0) {
        x_loads.fetch(next_x, k_left);
        y_loads.fetch(next_y, k_left);
      }
      k_left -= kDepth;
    };
    const auto end = [&](int stage) {
      if constexpr (!kCopies) {
        XLoads::put(next_x, x_to + stage);
        YLoads::put(next_y, y_to + stage);
      }
    };
    const auto wait = [&] {
      if constexpr (kCopies) asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
      sync_threads<kThreads>();
    };
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      begin(s * kStageLength);
      end(s * kStageLength);
    }
    wait();
    const Acc* const rows = x_at + XPart::place(0, row_of(thread, 0));
    const Acc* const columns = y_at + YPart::place(0, column_of(thread, 0));
    Fragment<TM, BM / (TM / 4), XPart> a;
    Fragment<TN, BN / (TN / 4), YPart> b;
    a.begin(rows);
    b.begin(columns);
    constexpr int kLast = (kStages - 1) * kStageLength;
    int at = 0, load_at = kLast;
#pragma unroll 1
    for (I k = k_first; k < k_end; k += kDepth) {
      const int next_at = at == kLast ? 0 : at + kStageLength;
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        a.read_for(rows + at, i);
        b.read_for(columns + at, i);
        if (i + 1 == kDepth) {
          end(load_at);
          wait();
          a.begin(rows + next_at);
          b.begin(columns + next_at);
        }
        if (i == 0) begin(load_at);
        multiply(a.of(i), b.of(i), acc);
      }
      load_at = at;
      at = next_at;
    }
    if constexpr (kCopies) asm volatile("cp.async.wait_group 0;" ::: "memory");
    sync_threads<kThreads>();
  }

  using Sum = PartsSum<kThreads, warps_of_parts(kParts), kGroups, kColumns, Acc>;

  // Part `block % kParts` of tile `block / kParts`; a part is `part_depth` of K.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, typename Operands::Index part_depth,
                             void* workspace, uint32_t block) {
    using I = typename Operands::Index;
    extern __shared__ __align__(16) char shared[];
    const Sum sum(block);  // Split::kSum
    const int thread = kSplit == Split::kSum ? sum.thread : int(threadIdx.x);
    const uint32_t tile_index = kSplit == Split::kSum ? sum.tile : block / kParts, part = block - tile_index * kParts;
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
      sum.run(workspace, int64_t(sum.tile) * kParts, kParts, [&](const Acc(&values)[kColumns]) { store(sum.group, values); });
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
