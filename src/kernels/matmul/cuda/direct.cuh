// Contraction of few rows of halves on the matrix units (mma.sync m16n8k16, f32 sums), of operands that run along k: the time is
// that of reading y. A block has 8 columns, and its warps neighbouring parts of K. Nothing passes through shared memory: a lane
// loads 16 bytes of the row and of the column whose parts of fragments are its own, wherever they start, several steps before the
// first is multiplied. Of a step of 32 of k the matrix instructions take each lane's elements as they come, k in another order, the
// same of x and y. The warps' sums are added in order.
#pragma once

#include "matmul/cuda/mma.cuh"

namespace aicf {

// BM: 8 or 16 rows. kXWhole, kYWhole: rows, or columns, start at multiples of 16 bytes.
template <class T, int BM, int kWarps, bool kXWhole, bool kYWhole>
struct DirectMatmul {
  static constexpr int BN = 8, kThreads = 32 * kWarps, kDepth = 32, kVector = 8;
  static constexpr int kRowsOfLane = BM / 8;
  // Steps that are loaded at a time, for which a thread has registers.
  static constexpr int kAhead = (BM == 8 ? 8 : 6) / (kXWhole && kYWhole ? 1 : 2);
  using Piece = UnalignedPiece<T>;

  // From k on, as far as k_end; zeros of what is not `inside`.
  template <bool kWhole, class I>
  static __device__ __forceinline__ void load(Piece& to, const T* row, bool inside, I k, I k_end) {
    const int count = inside ? int(max(min(k_end - k, I(kVector)), I(0))) : 0;
    if constexpr (kWhole)
      to.load_aligned(row + k, count);
    else
      to.load(row + k, count);
  }

  static __device__ __forceinline__ void multiply(const uint4 (&x)[kRowsOfLane], const uint4& y, float (&acc)[4]) {
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const uint4& low = x[0];
    const uint4& high = kRowsOfLane > 1 ? x[kRowsOfLane - 1] : zero;
    const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
    mma_16x8x16(T{}, acc, first, y.x, y.y);
    mma_16x8x16(T{}, acc, second, y.z, y.w);
  }

  // Tile `block`.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, uint32_t block) {
    using I = typename Operands::Index;
    __shared__ float4 sums[kWarps][32];
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const MatmulTile tile = tile_at(block, uint32_t(tiles_of<I>(o.m, BM)), uint32_t(tiles_of<I>(o.n, BN)));
    const I row = I(tile.row) * BM + lane / 4, column = I(tile.column) * BN + lane / 4;
    const bool has_column = column < o.n;
    const T* const y = o.y_of(tile.batch) + (has_column ? column : I(0)) * o.y_column;
    const T* x[kRowsOfLane];
    bool has_row[kRowsOfLane];
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      has_row[i] = row + i * 8 < o.m;
      x[i] = o.x_of(tile.batch) + (has_row[i] ? I(row + i * 8) : I(0)) * o.x_row;
    }
    const int steps = int(tiles_of<I>(o.k, kDepth)), of_warp = (steps + kWarps - 1) / kWarps;
    const int begin = warp * of_warp, end = min(steps, begin + of_warp);
    float acc[4] = {};
#pragma unroll 1
    for (int first = begin; first < end; first += kAhead) {
      Piece xs[kAhead][kRowsOfLane], ys[kAhead];
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const I k = I(first + s) * kDepth + lane % 4 * kVector;
        const bool has_step = first + s < end;
        load<kYWhole>(ys[s], y, has_column && has_step, k, o.k);
#pragma unroll
        for (int i = 0; i < kRowsOfLane; ++i) load<kXWhole>(xs[s][i], x[i], has_row[i] && has_step, k, o.k);
      }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        uint4 rows[kRowsOfLane];
#pragma unroll
        for (int i = 0; i < kRowsOfLane; ++i) rows[i] = xs[s][i].get();
        multiply(rows, ys[s].get(), acc);
      }
    }
    sums[warp][lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
    sync_threads<kThreads>();
    if (warp > 0) return;
    store(o, epilogue, tile, row, I(tile.column) * BN + lane % 4 * 2, sums, lane);
  }

  template <class Operands, class Epilogue, class I>
  static __device__ __forceinline__ void store(const Operands& o, const Epilogue& epilogue, const MatmulTile& tile, I row, I column,
                                               const float4 (&sums)[kWarps][32], int lane) {
    float sum[4];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float4 v = sums[w][lane];
      const float part[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] = w == 0 ? part[e] : sum[e] + part[e];
    }
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      if (row + i * 8 >= o.m || column >= o.n) continue;
      const auto at = epilogue.row(int64_t(tile.batch) * o.m + row + i * 8);
      if constexpr (Operands::kStoredColumns > 1) {
        const float both[2] = {sum[i * 2], sum[i * 2 + 1]};
        epilogue.template apply<2>(at, column, both);
      } else {
        const float one[1] = {sum[i * 2]}, next[1] = {sum[i * 2 + 1]};
        epilogue.template apply<1>(at, column, one);
        if (column + 1 < o.n) epilogue.template apply<1>(at, column + 1, next);
      }
    }
  }
};

}  // namespace aicf
