// Contraction of f16, bf16 and, in tf32, f32 on the matrix units of sm_80 and later: mma.sync m16n8k16 (tf32: m16n8k8)
// with f32 sums. Tiles of x and y come to shared memory through a pipeline of kStages asynchronous copies; 16-byte chunks
// are placed by an exclusive or with the row, so that neither the copies nor the loads of fragments meet bank conflicts. A
// result is the sum of its products of 16 (tf32: 8) steps of k each in ascending order; a split K adds the parts in order.
// Instruction layouts: PTX ISA, "Matrix multiply-accumulate operation using mma instruction".
#pragma once

#include "matmul/cuda/matmul_common.cuh"

namespace aicf {

constexpr int kStepBytes = 128;              // of K in one stage
constexpr int kHalfDepth = kStepBytes / 2;  // of halves

__device__ __forceinline__ void copy_async(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <bool kTransposed>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t address) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// c += a · b; the first argument only chooses the type.
__device__ __forceinline__ void mma_16x8x16(f16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_16x8x16(bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_16x8x8_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// What the matrix units, which leave out the last 13 bits, take for the element rounded, halves away from zero.
__device__ __forceinline__ uint32_t to_tf32(uint32_t bits) {
  return fabsf(__uint_as_float(bits)) < __int_as_float(0x7f800000) ? bits + 0x1000 : bits;
}

// What the pipeline needs to know of a type. A fragment of x is 16 rows, one of y 16 columns, each of kStep of k; four
// words, as ldmatrix leaves them of rows that run along k.
template <class T>
struct MmaType {
  using Word = uint16_t;
  static constexpr int kStep = 16;
  static __device__ __forceinline__ Word word(T x) { return x.bits; }
  static __device__ __forceinline__ void prepare(uint32_t (&)[4]) {}
  static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_16x8x16(T{}, c, a, b0, b1);
  }
};
template <>
struct MmaType<float> {
  using Word = uint32_t;
  static constexpr int kStep = 8;
  static __device__ __forceinline__ Word word(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ void prepare(uint32_t (&fragment)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragment[i] = to_tf32(fragment[i]);
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_16x8x8_tf32(c, a, b0, b1);
  }
};

// 16 bytes from anywhere, of which the first `count` elements count and the others become zero: from the one or two
// aligned vectors that hold them. Loads use nothing of what they load, so that a thread has many under way at a time.
template <class T>
struct UnalignedPiece {
  static constexpr int kSize = int(sizeof(T));
  uint4 low, high;
  int first, bytes;  // where they begin in `low`; that count

  __device__ __forceinline__ void load(const T* from, int count) {
    first = int(reinterpret_cast<uint64_t>(from) % 16);
    const auto* vectors = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(from) - first);
    bytes = count * kSize;
    low = high = make_uint4(0, 0, 0, 0);
    if (bytes > 0) low = vectors[0];
    if (bytes > 0 && first + bytes > 16) high = vectors[1];
  }
  // The same where 16 bytes start at a multiple of them.
  __device__ __forceinline__ void load_aligned(const T* from, int count) {
    first = 0;
    bytes = count * kSize;
    low = high = make_uint4(0, 0, 0, 0);
    if (bytes > 0) low = *reinterpret_cast<const uint4*>(from);
  }
  __device__ __forceinline__ void set(const uint4& all) {
    low = all;
    high = make_uint4(0, 0, 0, 0);
    first = 0;
    bytes = 16;
  }
  __device__ __forceinline__ uint4 get() const {
    uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (first != 0) {
#pragma unroll
      for (int by = 2; by >= 1; by /= 2)
#pragma unroll
        for (int i = 0; i + by < 8; ++i) w[i] = first & by * 4 ? w[i + by] : w[i];
      if constexpr (kSize == 2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], (first & 2) * 8);
      }
    }
    if (bytes < 16) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int left = bytes - 4 * i;
        w[i] = left >= 4 ? w[i] : left <= 0 ? 0 : w[i] & 0xffff;
      }
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
  }
};

// kRows × kInner elements in shared memory, in panels of at most 128 bytes of a row. kWords: read by words, 4 rows of 8
// columns at a time, else by ldmatrix, 8 rows of a chunk of 16 bytes.
template <class T, int kRows, int kInner, bool kWords>
struct StageTile {
  static constexpr int kSize = int(sizeof(T)), kVector = 16 / kSize;
  static constexpr int kPanel = kInner < kStepBytes / kSize ? kInner : kStepBytes / kSize;
  static constexpr int kChunks = kInner / kVector, kPanelChunks = kPanel / kVector;
  static constexpr int kBytes = kRows * kInner * kSize;

  // Byte offset of the elements from column kVector · chunk on.
  static __device__ __forceinline__ uint32_t offset(int row, int chunk) {
    const int place = kPanelChunks == 8 ? row & 7 : kPanelChunks == 4 ? (row >> 1) & 3 : (row >> 2) & 1;
    const int swizzle = kWords ? place * 2 & (kPanelChunks - 1) : place;
    const int panel = chunk / kPanelChunks, in_panel = chunk % kPanelChunks;
    return uint32_t((panel * kRows + row) * kPanel * kSize + ((in_panel ^ swizzle) << 4));
  }
  static __device__ __forceinline__ uint32_t word_offset(int row, int column) {
    return offset(row, column / kVector) + uint32_t(column % kVector * kSize);
  }

  // Elements beyond rows_left or inner_left are zero. By kThreads threads, numbered `thread`, each of which has so many
  // chunks of kVector elements.
  template <int kThreads>
  static constexpr int kOfThread = kRows * kChunks / kThreads;

  // Of rows that start at multiples of 16 bytes.
  template <int kThreads, class I>
  static __device__ __forceinline__ void copy(uint32_t shared, const T* from, I row_stride, I rows_left, I inner_left,
                                              int thread) {
    static_assert(kRows * kChunks % kThreads == 0, "every thread copies as many chunks");
#pragma unroll
    for (int i = 0; i < kOfThread<kThreads>; ++i) {
      const int index = thread + i * kThreads;
      const int row = index / kChunks, chunk = index % kChunks;
      const I left = row < rows_left ? inner_left - chunk * kVector : I(0);
      const int count = int(left <= 0 ? I(0) : left >= kVector ? I(kVector) : left);
      copy_async(shared + offset(row, chunk), count > 0 ? from + row * row_stride + chunk * kVector : from, count * kSize);
    }
  }

  // Of other rows, by way of registers: all that a thread reads is under way before it stores the first of it.
  template <int kThreads, class I>
  static __device__ __forceinline__ void fetch(UnalignedPiece<T> (&to)[kOfThread<kThreads>], const T* from, I row_stride, I inner_stride,
                                               I rows_left, I inner_left, int thread) {
    static_assert(kRows * kChunks % kThreads == 0, "every thread fetches as many chunks");
#pragma unroll
    for (int i = 0; i < kOfThread<kThreads>; ++i) {
      const int index = thread + i * kThreads;
      const int row = index / kChunks, chunk = index % kChunks;
      const I left = row < rows_left ? inner_left - chunk * kVector : I(0);
      if (inner_stride == 1) {
        to[i].load(from + row * row_stride + chunk * kVector, int(left < 0 ? I(0) : min(left, I(kVector))));
        continue;
      }
      union {
        typename MmaType<T>::Word elements[kVector];
        uint4 all;
      } v;
#pragma unroll
      for (int e = 0; e < kVector; ++e)
        v.elements[e] = e < left ? MmaType<T>::word(from[row * row_stride + (chunk * kVector + e) * inner_stride]) : 0;
      to[i].set(v.all);
    }
  }
  template <int kThreads>
  static __device__ __forceinline__ void put(char* tile, const UnalignedPiece<T> (&from)[kOfThread<kThreads>], int thread) {
#pragma unroll
    for (int i = 0; i < kOfThread<kThreads>; ++i) {
      const int index = thread + i * kThreads;
      *reinterpret_cast<uint4*>(tile + offset(index / kChunks, index % kChunks)) = from[i].get();
    }
  }
};

// BM × BN results by warps of WM × WN, with Operands::kDualGemm of each of two products. kXAlongK: rows of the tile of x run
// along k (else along m); kYAlongK: rows of the tile of y run along k (else along n). kXWhole, kYWhole:
// their rows in memory start at multiples of 16 bytes and their elements follow each other, so that stages come by
// asynchronous copies.
template <class T, int BM, int BN, int WM, int WN, int kStages, bool kXAlongK, bool kYAlongK, bool kXWhole, bool kYWhole,
          Split kSplit, int kParts>
struct MmaMatmul {
  static constexpr int kWarpRows = BM / WM, kWarpColumns = BN / WN;
  static constexpr int kThreads = kWarpRows * kWarpColumns * 32;
  static constexpr int kRowBlocks = WM / 16, kQuadBlocks = WN / 32;  // of 16 rows, of 32 columns
  static constexpr int kGroups = kRowBlocks * kQuadBlocks * 2;       // of 8 columns, for the epilogue
  using Type = MmaType<T>;
  static constexpr bool kHalf = sizeof(T) == 2;        // ldmatrix can turn matrices of halves only
  static constexpr int kDepth = kStepBytes / int(sizeof(T));  // K of one stage
  static constexpr int kVector = 16 / int(sizeof(T));
  using XTile = StageTile<T, kXAlongK ? BM : kDepth, kXAlongK ? kDepth : BM, !kXAlongK && !kHalf>;
  using YTile = StageTile<T, kYAlongK ? BN : kDepth, kYAlongK ? kDepth : BN, !kYAlongK && !kHalf>;
  static constexpr int kStageBytes = XTile::kBytes + YTile::kBytes;
  static_assert(WN % 32 == 0 && WM % 16 == 0, "the epilogue takes 32 columns of a warp at a time");

  struct Warp {
    int row, column, lane;
  };

  static __device__ Warp warp(int thread = int(threadIdx.x)) {
    const int number = thread / 32;
    return {number / kWarpColumns * WM, number % kWarpColumns * WN, thread & 31};
  }

  // What a thread has read of a stage and not yet stored.
  template <int kMatrices>
  struct Fetched {
    UnalignedPiece<T> x[kXWhole ? 1 : XTile::template kOfThread<kThreads>];
    UnalignedPiece<T> y[kMatrices][kYWhole ? 1 : YTile::template kOfThread<kThreads>];
  };

  template <class Tile, bool kWhole, int kCount, class I>
  static __device__ __forceinline__ void begin_tile(UnalignedPiece<T> (&fetched)[kCount], uint32_t tile, const T* from, I row_stride,
                                                    I inner_stride, I rows_left, I inner_left) {
    if constexpr (kWhole)
      Tile::template copy<kThreads>(tile, from, row_stride, rows_left, inner_left, int(threadIdx.x));
    else
      Tile::template fetch<kThreads>(fetched, from, row_stride, inner_stride, rows_left, inner_left, int(threadIdx.x));
  }

  // Loads of a stage: asynchronous copies into it, or into registers, which end_stage stores.
  template <class I, int kMatrices>
  static __device__ __forceinline__ void begin_stage(const MatmulOperands<T, I>& o, const T* x,
                                                     const T* const (&y)[kMatrices], I k, I k_end, I m_left, I n_left,
                                                     char* stage, Fetched<kMatrices>& fetched) {
    const uint32_t shared = shared_address(stage);
    const T* x_at = x + k * o.x_column;
    const T* y_at[kMatrices];
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) y_at[i] = y[i] + k * o.y_row;
    if constexpr (kXAlongK)
      begin_tile<XTile, kXWhole>(fetched.x, shared, x_at, o.x_row, o.x_column, m_left, I(k_end - k));
    else
      begin_tile<XTile, kXWhole>(fetched.x, shared, x_at, o.x_column, o.x_row, I(k_end - k), m_left);
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
      const uint32_t at = shared + XTile::kBytes + i * YTile::kBytes;
      if constexpr (kYAlongK)
        begin_tile<YTile, kYWhole>(fetched.y[i], at, y_at[i], o.y_column, o.y_row, n_left, I(k_end - k));
      else
        begin_tile<YTile, kYWhole>(fetched.y[i], at, y_at[i], o.y_row, o.y_column, I(k_end - k), n_left);
    }
  }
  template <int kMatrices>
  static __device__ __forceinline__ void end_stage(char* stage, const Fetched<kMatrices>& fetched) {
    if constexpr (!kXWhole) XTile::template put<kThreads>(stage, fetched.x, int(threadIdx.x));
    if constexpr (!kYWhole) {
#pragma unroll
      for (int i = 0; i < kMatrices; ++i)
        YTile::template put<kThreads>(stage + XTile::kBytes + i * YTile::kBytes, fetched.y[i], int(threadIdx.x));
    }
  }

  // Quads of columns of the first product, then those of the second.
  template <int kQuads>
  static __device__ __forceinline__ void compute_stage(uint32_t stage, const Warp& warp,
                                                       float (&acc)[kRowBlocks][kQuads][4][4]) {
    const int in_matrix = warp.lane & 7, matrix = warp.lane >> 3;
#pragma unroll
    for (int k = 0; k < kDepth; k += Type::kStep) {
      uint32_t a[kRowBlocks][4], b[kQuads * 2][4];
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i) {
        const int row = warp.row + i * 16;
        if constexpr (kXAlongK)
          load_matrices<false>(a[i],
                               stage + XTile::offset(row + in_matrix + (matrix & 1) * 8, k / kVector + (matrix >> 1)));
        else if constexpr (kHalf)
          load_matrices<true>(a[i], stage + XTile::offset(k + in_matrix + (matrix >> 1) * 8, row / 8 + (matrix & 1)));
        else
          load_words<XTile, true>(a[i], stage, k + warp.lane % 4, row + warp.lane / 4);
        Type::prepare(a[i]);
      }
#pragma unroll
      for (int j = 0; j < kQuads * 2; ++j) {
        const int column = warp.column + j % (kQuadBlocks * 2) * 16;
        const uint32_t y = stage + XTile::kBytes + j / (kQuadBlocks * 2) * YTile::kBytes;
        if constexpr (kYAlongK)
          load_matrices<false>(b[j],
                               y + YTile::offset(column + in_matrix + (matrix >> 1) * 8, k / kVector + (matrix & 1)));
        else if constexpr (kHalf)
          load_matrices<true>(b[j], y + YTile::offset(k + in_matrix + (matrix & 1) * 8, column / 8 + (matrix >> 1)));
        else
          load_words<YTile, false>(b[j], y, k + warp.lane % 4, column + warp.lane / 4);
        Type::prepare(b[j]);
      }
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int j = 0; j < kQuads * 4; ++j)
          Type::multiply(acc[i][j / 4][j % 4], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }

  // A fragment of 32-bit elements from rows that run along m or n. Its words move on in the result (8 rows or columns) and
  // in k (4), those of x first in the result, those of y first in k.
  template <class Tile, bool kResultFirst>
  static __device__ __forceinline__ void load_words(uint32_t (&to)[4], uint32_t tile, int k, int other) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int in_result = kResultFirst ? r & 1 : r >> 1, in_k = kResultFirst ? r >> 1 : r & 1;
      const uint32_t address = tile + Tile::word_offset(k + in_k * 4, other + in_result * 8);
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(to[r]) : "r"(address) : "memory");
    }
  }

  template <class I, int kMatrices, int kQuads>
  static __device__ __forceinline__ void accumulate(const MatmulOperands<T, I>& o, const T* x,
                                                    const T* const (&y)[kMatrices], I k_first, I k_end, I m_left, I n_left,
                                                    char* shared, const Warp& warp, float (&acc)[kRowBlocks][kQuads][4][4]) {
    constexpr int kBytes = kStageBytes + (kMatrices - 1) * YTile::kBytes;
    const int steps = k_first < k_end ? int((k_end - k_first + kDepth - 1) / kDepth) : 0;
    Fetched<kMatrices> fetched;
    const auto stage_of = [&](int step) { return shared + step % kStages * kBytes; };
    const auto begin = [&](int step) {
      if (step < steps)
        begin_stage(o, x, y, I(k_first + I(step) * kDepth), k_end, m_left, n_left, stage_of(step), fetched);
      commit_copies();
    };
    const auto end = [&](int step) {
      if (step < steps) end_stage(stage_of(step), fetched);
    };
    if constexpr (kStages == 1) {  // which holds all of K
      begin(0);
      end(0);
      wait_for_copies<0>();
      __syncthreads();
      if (steps > 0) compute_stage(shared_address(shared), warp, acc);
      __syncthreads();
      return;
    }
#pragma unroll
    for (int step = 0; step < kStages - 1; ++step) {
      begin(step);
      end(step);
    }
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<(kStages > 1 ? kStages - 2 : 0)>();
      __syncthreads();
      begin(step + kStages - 1);
      compute_stage(shared_address(shared) + step % kStages * kBytes, warp, acc);
      end(step + kStages - 1);
    }
    wait_for_copies<0>();
    __syncthreads();
  }

  // Results of rows that start anywhere: neighbouring threads have neighbouring columns, by way of shared memory.
  template <class Operands, class Epilogue>
  static __device__ __forceinline__ void store_narrow(const Operands& o, const Epilogue& epilogue, typename Operands::Index row,
                                                      typename Operands::Index column, int64_t outer, char* shared, int lane,
                                                      const float (&acc)[kRowBlocks][kQuadBlocks][4][4]) {
    constexpr int kStored = Operands::kStoredColumns;
    constexpr int kStride = WN + 4;  // eight rows lie in different banks
    static_assert(kThreads / 32 * 16 * kStride * 4 <= (kStages == 1 ? 1 : 2) * kStageBytes,
                  "the warps' rows lie where stages were");
    float* rows = reinterpret_cast<float*>(shared) + int(threadIdx.x) / 32 * 16 * kStride;
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < kQuadBlocks * 4; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(rows + (lane / 4 + half * 8) * kStride + j * 8 + lane % 4 * 2) =
              make_float2(acc[i][j / 4][j % 4][half * 2], acc[i][j / 4][j % 4][half * 2 + 1]);
      __syncwarp();
      store_narrow_rows<kStored, WN>(epilogue, outer + row + i * 16, o.m - row - i * 16, column, o.n, lane, [&](int r, int c) {
        struct {
          float at[kStored];
        } values;
#pragma unroll
        for (int v = 0; v < kStored; ++v) values.at[v] = rows[r * kStride + c + v];
        return values;
      });
      __syncwarp();
    }
  }

  using Sum = PartsSum<kThreads, warps_of_parts(kParts), kGroups, 8, float>;

  // Part `blockIdx.x % kParts` of tile `blockIdx.x / kParts`; a part is `part_depth` of K.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, typename Operands::Index part_depth,
                             void* workspace) {
    using I = typename Operands::Index;
    extern __shared__ __align__(128) char shared[];
    const Sum sum(blockIdx.x);  // Split::kSum
    const int thread = kSplit == Split::kSum ? sum.thread : int(threadIdx.x);
    const Warp at = warp(thread);
    const uint32_t tile_index = kSplit == Split::kSum ? sum.tile : blockIdx.x / kParts;
    const uint32_t part = blockIdx.x - tile_index * kParts;
    const MatmulTile tile = tile_at(tile_index, uint32_t(tiles_of<I>(o.m, BM)), uint32_t(tiles_of<I>(o.n, BN)));
    const I row = I(tile.row) * BM, column = I(tile.column) * BN;
    const int64_t outer = int64_t(tile.batch) * o.m;
    const auto store = [&](int g, const auto&... values) {
      const I r = row + at.row + g / (kQuadBlocks * 2) * 16 + g % 2 * 8 + at.lane / 4;
      const I c = column + at.column + g / 2 % kQuadBlocks * 32 + at.lane % 4 * 8;
      if (r < o.m && c < o.n) store_columns<8>(epilogue, epilogue.row(outer + r), c, o.n, values...);
    };
    constexpr int64_t kTileVectors = int64_t(BM) * BN / 4;
    auto* parts_at = static_cast<AccVector<float>*>(workspace) + tile_index * kParts * kTileVectors;
    if constexpr (kSplit == Split::kSum) {
      sum.run(workspace, int64_t(sum.tile) * kParts, kParts, [&](const float(&values)[8]) { store(sum.group, values); });
    } else {
      constexpr int kMatrices = Operands::kDualGemm ? 2 : 1, kQuads = kMatrices * kQuadBlocks;
      float acc[kRowBlocks][kQuads][4][4] = {};
      const I k_first = kSplit == Split::kNone ? I(0) : I(part) * part_depth;
      const I k_end = kSplit == Split::kNone ? o.k : min(o.k, I(k_first + part_depth));
      const T* x = o.x_of(tile.batch) + row * o.x_row;
      const T* y[kMatrices] = {o.y_of(tile.batch) + column * o.y_column};
      if constexpr (Operands::kDualGemm) y[1] = o.y1_of(tile.batch) + column * o.y_column;
      accumulate(o, x, y, k_first, k_end, I(o.m - row), I(o.n - column), shared, at, acc);
      if constexpr (kSplit == Split::kNone && Operands::kStoredColumns < 8) {
        store_narrow(o, epilogue, row + at.row, column + at.column, outer, shared, at.lane, acc);
        return;
      }
      float groups[kMatrices * kGroups][8];  // those of the first product, then those of the second
#pragma unroll
      for (int i = 0; i < kMatrices * kGroups; ++i) {
        const int g = i % kGroups, quad = i / kGroups * kQuadBlocks + g / 2 % kQuadBlocks;
#pragma unroll
        for (int e = 0; e < 8; ++e) groups[i][e] = acc[g / (kQuadBlocks * 2)][quad][e / 2][g % 2 * 2 + e % 2];
        transpose_quad(groups[i]);
      }
      if constexpr (Operands::kDualGemm) {
        static_assert(kSplit == Split::kNone, "a pair's K is in one piece");
#pragma unroll
        for (int g = 0; g < kGroups; ++g) store(g, groups[g], groups[kGroups + g]);
      } else {
        finish_groups<kThreads, kSplit, kParts>(groups, thread, shared, parts_at + part * kTileVectors, store);
      }
    }
  }
};

}  // namespace aicf
