// What one warp of sliced.cuh does: it loads its slice of K to stages that no other warp touches, multiplies them, in f32 or
// tf32, and puts its sums of the whole tile into shared memory.
#pragma once

#include "matmul/cuda/mma.cuh"
#include "matmul/cuda/simt.cuh"

namespace aicf {

// How a slice's sums lie in shared memory, so that neither rows nor columns of lanes meet in a bank.
template <int BN>
struct SliceSums {
  static constexpr int kRow = BN + 8;
};

// What a warp loads to one tile of a stage. What lies beyond the end of k is zero; rows and columns beyond the result are
// whatever they were, and so is what is made of them. kRowsAreK: the tile's rows are those of k, else its columns are.
template <class Tile, int kRows, int kInner, bool kRowsAreK>
struct TileLoad {
  static __device__ __forceinline__ void clear(uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }

  // Rows start at multiples of 16 bytes and their elements are neighbours.
  template <class I>
  static __device__ __forceinline__ void vectors(uint32_t tile, const float* from, I row_stride, I rows_left, I inner_left,
                                                 int lane) {
    constexpr int kStep = 32 / Tile::kChunks;  // rows
    static_assert(32 % Tile::kChunks == 0 && kRows % kStep == 0, "a lane has one chunk of several rows");
    // How rows are swizzled comes again after 8 of them.
    constexpr int kPlaces = kStep >= 8 ? 1 : 8 / kStep, kRowBytes = Tile::kPanel * int(sizeof(float));
    const int row = lane / Tile::kChunks, chunk = lane % Tile::kChunks;
    const int bytes = min(max(int(inner_left) - chunk * 4, 0), 4) * 4;
    const float* at = bytes > 0 ? from + row * row_stride + chunk * 4 : from;
    const int64_t step = bytes > 0 ? int64_t(kStep) * row_stride : 0;
    uint32_t places[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) places[i] = tile + Tile::offset(row + i * kStep, chunk);
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const uint32_t to = places[i % kPlaces] + uint32_t(i / kPlaces * kPlaces * kStep * kRowBytes);
      if (row + i * kStep < rows_left)
        copy_async(to, at, bytes);
      else if constexpr (kRowsAreK)
        clear(to);
      at += step;
    }
  }

  // Any strides, one element at a time.
  template <class I>
  static __device__ __forceinline__ void elements(uint32_t tile, const float* from, I row_stride, I inner_stride, I rows_left,
                                                  I inner_left, int lane) {
    static_assert(kInner == 32, "a lane has a column");
    const float* at = from + lane * inner_stride;
#pragma unroll 8
    for (int row = 0; row < kRows; ++row) {
      const uint32_t to = tile + Tile::word_offset(row, lane);
      if (lane < inner_left && row < rows_left)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(at + row * row_stride) : "memory");
      else if (kRowsAreK ? row >= rows_left : lane >= inner_left)
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(0) : "memory");
    }
  }

  template <class I>
  static __device__ __forceinline__ void run(bool in_vectors, uint32_t tile, const float* from, I row_stride,
                                             I inner_stride, I rows_left, I inner_left, int lane) {
    if (in_vectors)
      vectors(tile, from, row_stride, rows_left, inner_left, lane);
    else
      elements(tile, from, row_stride, inner_stride, rows_left, inner_left, lane);
  }
};

// The tiles of a stage, 32 of K, placed as MmaMatmul reads them.
template <int BM, int BN, bool kXAlongK, bool kYAlongK>
struct SliceLoads : MmaMatmul<float, BM, BN, BM, BN, 1, kXAlongK, kYAlongK, true, true, Split::kNone, 1> {
  using Matmul = MmaMatmul<float, BM, BN, BM, BN, 1, kXAlongK, kYAlongK, true, true, Split::kNone, 1>;
  using typename Matmul::XTile, typename Matmul::YTile;
  static constexpr int kDepth = Matmul::kDepth;
  template <class Tile, bool kAlongK, int kOther>
  using Load = TileLoad<Tile, kAlongK ? kOther : kDepth, kAlongK ? kDepth : kOther, !kAlongK>;

  template <class Operands, class I>
  static __device__ __forceinline__ void load_x(const Operands& o, const float* x, I k, I k_end, I m_left, uint32_t stage,
                                                int lane) {
    const I k_left = k_end - k;
    Load<XTile, kXAlongK, BM>::run(o.x_vectors, stage, x + k * o.x_column, kXAlongK ? o.x_row : o.x_column,
                                   kXAlongK ? o.x_column : o.x_row, kXAlongK ? m_left : k_left,
                                   kXAlongK ? k_left : m_left, lane);
  }

  template <class Operands, class I>
  static __device__ __forceinline__ void load_y(const Operands& o, const float* y, I k, I k_end, I n_left, uint32_t stage,
                                                int lane) {
    const I k_left = k_end - k;
    Load<YTile, kYAlongK, BN>::run(o.y_vectors, stage + XTile::kBytes, y + k * o.y_row,
                                   kYAlongK ? o.y_column : o.y_row, kYAlongK ? o.y_row : o.y_column,
                                   kYAlongK ? n_left : k_left, kYAlongK ? k_left : n_left, lane);
  }
};

// Products of a warp's stage in f32, each result with k ascending. A lane has TM × TN results.
template <int BM, int BN, bool kXAlongK, bool kYAlongK>
struct SimtSlice {
  using Loads = SliceLoads<BM, BN, kXAlongK, kYAlongK>;
  static constexpr int TM = 8, TN = BM * BN / 32 / TM;
  static constexpr int kAcross = BN / TN, kDown = BM / TM;  // lanes
  static constexpr int kUnit = 4;                           // of K
  static_assert(kAcross * kDown == 32 && TN % 4 == 0, "a lane's results are whole groups of four");

  // Four at a time are neighbours in memory where rows run along m or n; else neighbouring lanes have neighbours.
  template <bool kAlongK, int kLanes>
  static __device__ __forceinline__ int place(int lane, int i) {
    return kAlongK ? i * kLanes + lane : i / 4 * 4 * kLanes + lane * 4 + i % 4;
  }

  float acc[TM][TN] = {};

  // Element [kk][i]: of k + kk and the lane's i-th row or column.
  template <class Tile, bool kAlongK, int kLanes, int kCount>
  static __device__ __forceinline__ void read(const char* tile, int k, int lane, float (&to)[kUnit][kCount]) {
    if constexpr (kAlongK) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const auto v = *reinterpret_cast<const AccVector<float>*>(tile + Tile::offset(place<true, kLanes>(lane, i), k / 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e][i] = v.values[e];
      }
    } else {
#pragma unroll
      for (int kk = 0; kk < kUnit; ++kk)
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const auto v = *reinterpret_cast<const AccVector<float>*>(
              tile + Tile::offset(k + kk, place<false, kLanes>(lane, i) / 4));
#pragma unroll
          for (int e = 0; e < 4; ++e) to[kk][i + e] = v.values[e];
        }
    }
  }

  __device__ __forceinline__ void multiply(const char* stage, int depth, int lane) {
#pragma unroll 1
    for (int k = 0; k < depth; k += kUnit) {
      float a[kUnit][TM], b[kUnit][TN];
      read<typename Loads::XTile, kXAlongK, kDown>(stage, k, lane / kAcross, a);
      read<typename Loads::YTile, kYAlongK, kAcross>(stage + Loads::XTile::kBytes, k, lane % kAcross, b);
#pragma unroll
      for (int kk = 0; kk < kUnit; ++kk)
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) acc[i][j] = multiply_add(a[kk][i], b[kk][j], acc[i][j]);
    }
  }

  __device__ __forceinline__ void put(float* sums, int lane) const {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      float* row = sums + place<kXAlongK, kDown>(lane / kAcross, i) * SliceSums<BN>::kRow;
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        AccVector<float> v;
#pragma unroll
        for (int e = 0; e < 4; ++e) v.values[e] = acc[i][j + e];
        if constexpr (!kYAlongK) {
          *reinterpret_cast<AccVector<float>*>(row + place<false, kAcross>(lane % kAcross, j)) = v;
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) row[place<true, kAcross>(lane % kAcross, j + e)] = v.values[e];
        }
      }
    }
  }
};

// The same in tf32.
template <int BM, int BN, bool kXAlongK, bool kYAlongK>
struct Tf32Slice {
  using Loads = SliceLoads<BM, BN, kXAlongK, kYAlongK>;
  static constexpr int kUnit = 8;
  float acc[Loads::kRowBlocks][Loads::kQuadBlocks][4][4] = {};

  __device__ __forceinline__ void multiply(const char* stage, int, int lane) {
    Loads::compute_stage(shared_address(stage), typename Loads::Warp{0, 0, lane}, acc);
  }

  __device__ __forceinline__ void put(float* sums, int lane) const {
#pragma unroll
    for (int i = 0; i < Loads::kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < Loads::kQuadBlocks * 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[(i * 16 + e / 2 * 8 + lane / 4) * SliceSums<BN>::kRow + j * 8 + lane % 4 * 2 + e % 2] =
              acc[i][j / 4][j % 4][e];
  }
};

}  // namespace aicf
