// Contraction of f32, plain or in tf32, of so few results that every multiprocessor has one block or a few, and the wait
// for memory is the time. Every warp of a block has the whole tile and a slice of K, for which it loads by itself, as many
// stages ahead as there are: no barrier stands between a load and its use. The slices' sums are added in order, and so are
// the parts of a K that is split among the blocks of a cluster.
#pragma once

#include "matmul/mma.cuh"
#include "matmul/simt.cuh"

namespace aicf {

// How a slice's sums lie in shared memory, so that neither rows nor columns of lanes meet in a bank.
template <int BN>
struct SliceSums {
  static constexpr int kRow = BN + 8;
};

// Products of a warp's stage in f32, each result with k ascending. A lane has TM × TN results.
template <int BM, int BN, int kStages, bool kXAlongK, bool kYAlongK, bool kXWhole, bool kYWhole>
struct SimtSlice {
  using Loads = MmaMatmul<float, BM, BN, BM, BN, kStages, kXAlongK, kYAlongK, kXWhole, kYWhole, Split::kNone, 1>;
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
template <int BM, int BN, int kStages, bool kXAlongK, bool kYAlongK, bool kXWhole, bool kYWhole>
struct Tf32Slice {
  using Loads = MmaMatmul<float, BM, BN, BM, BN, kStages, kXAlongK, kYAlongK, kXWhole, kYWhole, Split::kNone, 1>;
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

template <class Slice, int BM, int BN, int kStages, int kSlices, Split kSplit, int kParts>
struct SlicedMatmul {
  using Loads = typename Slice::Loads;
  static constexpr int kThreads = kSlices * 32, kColumns = 4;
  static constexpr int kGroups = BM * BN / kColumns / kThreads;
  static constexpr int kSliceBytes = kStages * Loads::kStageBytes;
  static_assert(kGroups > 0 && kSliceBytes >= BM * SliceSums<BN>::kRow * int(sizeof(float)), "sums take the stages' place");
  // Epilogue operands come while K is walked or, where registers are short, while slices meet; if a thread knows its
  // groups at compile time.
  static constexpr bool kAhead = kSplit == Split::kNone || kGroups == 1;

  template <class Operands, class I>
  static __device__ __forceinline__ void accumulate(const Operands& o, const float* x, const float* y, I k_first, I k_end,
                                                    I m_left, I n_left, char* stages, int lane, Slice& slice) {
    const int steps = k_first < k_end ? int((k_end - k_first + Loads::kDepth - 1) / Loads::kDepth) : 0;
    const auto load = [&](int step) {
      if (step < steps)
        Loads::load_stage(o, x, y, I(k_first + I(step) * Loads::kDepth), k_end, m_left, n_left,
                          stages + step % kStages * Loads::kStageBytes, lane);
      commit_copies();
    };
#pragma unroll
    for (int step = 0; step < kStages; ++step) load(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<kStages - 1>();
      __syncwarp();
      const I left = k_end - (k_first + I(step) * Loads::kDepth);
      slice.multiply(stages + step % kStages * Loads::kStageBytes, int(min(left, I(Loads::kDepth))), lane);
      __syncwarp();
      load(step + kStages);
    }
    wait_for_copies<0>();
  }

  static __device__ __forceinline__ void add_slices(const char* shared, int thread, float (&sums)[kGroups][kColumns]) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int index = thread + g * kThreads;
      const int at = index / (BN / kColumns) * SliceSums<BN>::kRow + index % (BN / kColumns) * kColumns;
#pragma unroll
      for (int s = 0; s < kSlices; ++s) {
        const auto v = *reinterpret_cast<const AccVector<float>*>(shared + s * kSliceBytes + at * int(sizeof(float)));
#pragma unroll
        for (int e = 0; e < kColumns; ++e) sums[g][e] = s == 0 ? v.values[e] : sums[g][e] + v.values[e];
      }
    }
  }

  // A group that the last column cuts: everything it reads is under way before the first use.
  template <class Epilogue>
  static __device__ __forceinline__ void store_tail(const Epilogue& epilogue, const typename Epilogue::Row& row,
                                                    int64_t column, int64_t n, const float (&values)[kColumns]) {
    typename Epilogue::template Shared<1> shared_operands[kColumns];
    typename Epilogue::template Own<1> own_operands[kColumns];
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      if (column + e >= n) continue;
      epilogue.fetch(shared_operands[e], column + e);
      epilogue.fetch(own_operands[e], row, column + e);
    }
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      const float one[1] = {values[e]};
      if (column + e < n) epilogue.apply(row, column + e, one, shared_operands[e], own_operands[e]);
    }
  }

  // Part `block % kParts` of tile `block / kParts`; a part is `part_depth` of K.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, typename Operands::Index part_depth,
                             uint32_t block) {
    using I = typename Operands::Index;
    extern __shared__ __align__(128) char shared[];
    const int thread = int(threadIdx.x), lane = thread % 32, number = thread / 32;
    const uint32_t tile_index = block / kParts, part = block - tile_index * kParts;
    const MatmulTile tile = tile_at(tile_index, uint32_t(tiles_of<I>(o.m, BM)), uint32_t(tiles_of<I>(o.n, BN)));
    const I row = I(tile.row) * BM, column = I(tile.column) * BN;
    const auto row_of = [&](int g) { return row + I((thread + g * kThreads) / (BN / kColumns)); };
    const auto column_of = [&](int g) { return column + I((thread + g * kThreads) % (BN / kColumns) * kColumns); };
    const auto epilogue_row = [&](int g) { return epilogue.row(int64_t(tile.batch) * o.m + row_of(g)); };
    const auto is_whole = [&](int g) {
      return Operands::kWholeTiles || (row_of(g) < o.m && column_of(g) + kColumns <= o.n);
    };

    const I k_first = I(part) * part_depth, k_end = min(o.k, I(k_first + part_depth));
    const I depth = (max(k_end - k_first, I(0)) + kSlices * Slice::kUnit - 1) / (kSlices * Slice::kUnit) * Slice::kUnit;
    const I slice_first = k_first + number * depth;
    Slice slice;
    typename Epilogue::template Shared<kColumns> shared_operands[kAhead ? kGroups : 1];
    typename Epilogue::template Own<kColumns> own_operands[kAhead ? kGroups : 1];
    const auto fetch_ahead = [&] {
#pragma unroll
      for (int g = 0; kAhead && g < kGroups; ++g)
        if (is_whole(g) && part == 0) {
          epilogue.fetch(shared_operands[g], column_of(g));
          epilogue.fetch(own_operands[g], epilogue_row(g), column_of(g));
        }
    };
    char* stages = shared + number * kSliceBytes;
    if constexpr (kGroups == 1) fetch_ahead();
    accumulate(o, o.x_of(tile.batch) + row * o.x_row, o.y_of(tile.batch) + column * o.y_column, slice_first,
               min(k_end, I(slice_first + depth)), Operands::kWholeTiles ? I(BM) : I(o.m - row),
               Operands::kWholeTiles ? I(BN) : I(o.n - column), stages, lane, slice);
    if constexpr (kGroups > 1) fetch_ahead();
    __syncwarp();
    slice.put(reinterpret_cast<float*>(stages), lane);
    sync_threads<kThreads>();
    float sums[kGroups][kColumns];
    add_slices(shared, thread, sums);
    const auto store = [&](int g, const float(&values)[kColumns]) {
      if (is_whole(g)) {
        if constexpr (kAhead)
          epilogue.apply(epilogue_row(g), column_of(g), values, shared_operands[kGroups == 1 ? 0 : g],
                         own_operands[kGroups == 1 ? 0 : g]);
        else
          epilogue.template apply<kColumns>(epilogue_row(g), column_of(g), values);
      } else if constexpr (!Operands::kWholeTiles) {
        if (row_of(g) < o.m && column_of(g) < o.n) store_tail(epilogue, epilogue_row(g), column_of(g), o.n, values);
      }
    };
    if constexpr (kSplit == Split::kNone) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) store(g, sums[g]);
    } else {
      sync_threads<kThreads>();
      finish_cluster<kThreads, kParts>(sums, thread, reinterpret_cast<AccVector<float>*>(shared), store);
    }
  }
};

}  // namespace aicf
