// Sums over k of the rows of x, which a product takes along: a matrix of ones in registers times 24 rows of x as columns, one more
// matrix instruction beside each 64 rows of the tile's. The tiles of the first columns have a part of these rows each, so that there are
// registers for them. Where x is the transposed gradient of a layer's results and the product that of its weights, they are the gradient
// of its bias. (With x times eight columns of ones instead, in the first column of tiles alone, GPT-2's step gained 0.2 ms on H100 in
// place of 0.5: bench/results/gpu_passes_in_turns_2026-11-22.json.xz. They still cost 15 % of the products' time. Behind the four
// matrix instructions of a step in place of beside each the products take 3 % longer, with sums by the warp that loads, between its loads,
// 27 % longer: bench/results/gpu_gpt2_step_2026-11-22.json.)
//
// Operands with kSumsX say how many columns of tiles (`kColumnsWithSums`), which instruction (`Ones`, as MultiplyRs for 24 columns whose
// layout is that of x), of what type the sums are (`SumOfX`) and where those of a batch go (`x_sums(batch)`; null: nowhere).
#pragma once

#include "matmul/cuda/wgmma_instructions.cuh"
#include "tile/cuda/tile_memory.cuh"

namespace aicf {

// What accumulate() does with each 64 rows of x beside multiplying them.
struct NoRowSums {
  __device__ __forceinline__ void add(int, uint64_t) {}
};

template <class Product, class Operands>
struct RowSums {
  static constexpr int kRows = 24, kResults = kRows / 2;  // the last part ends behind the 64 rows
  static_assert(Operands::kColumnsWithSums * kRows >= 64 && (Operands::kColumnsWithSums - 1) * kRows < 64);
  float sums[Product::kRowBlocks][kResults];
  uint32_t one;
  uint32_t part;  // where the rows begin, in a descriptor's unit

  __device__ __forceinline__ explicit RowSums(uint32_t column)
      : one(tile::pack<typename Operands::Element>(1.0f, 1.0f)),
        part(column * uint32_t(kRows * (Product::kXRowsAlongK ? 128 : 2) / 16)) {
#pragma unroll
    for (int i = 0; i < Product::kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kResults; ++j) sums[i][j] = 0.0f;
  }
  __device__ __forceinline__ void add(int block, uint64_t x) { Operands::Ones::run(sums[block], one, x + part); }

  // All 64 rows of a result are the same: the first four lanes of a warpgroup have two of each eight columns.
  __device__ __forceinline__ void store(const Operands& o, const MatmulTile& tile, int first_row) const {
    typename Operands::SumOfX* const to = o.x_sums(tile.batch);
    const int lane = int(threadIdx.x) % 128;
    if (to == nullptr || lane >= 4) return;
    const int first = int(tile.row) * Product::kBlockM + first_row + int(tile.column) * kRows + lane * 2;
    const int count = min(kRows, 64 - int(tile.column) * kRows);
#pragma unroll
    for (int i = 0; i < Product::kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kResults / 2; ++j) {
        const int at = j / 2 * 8 + j % 2, row = first + i * 64 + at;
        if (at + lane * 2 < count && (Operands::kWholeTiles || row < int(o.m)))
          to[row] = tile::narrowed<typename Operands::SumOfX>(sums[i][j / 2 * 4 + j % 2]);
      }
  }
};

}  // namespace aicf
