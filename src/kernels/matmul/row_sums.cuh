// Sums over k of the rows of x, which a product takes along: x times a matrix of ones, one more matrix instruction of eight
// columns beside each of the tile's. The blocks of the first column of tiles have them. Where x is the transposed gradient of a
// layer's results and the product that of its weights, they are the gradient of its bias.
//
// Operands with kSumsX say which instruction (`Ones`, as Multiply for eight columns), of what type the sums are (`SumOfX`) and
// where those of a batch go (`x_sums(batch)`; null: nowhere).
#pragma once

#include "matmul/wgmma_instructions.cuh"
#include "tile/tile_memory.cuh"

namespace aicf {

// Of shared memory, before the stages: eight rows of 64 ones.
template <class Operands>
constexpr int kOnesBytes = Operands::kSumsX ? 1024 : 0;

// By all threads, before the barrier of the block's set-up.
template <class Operands>
__device__ __forceinline__ void put_ones(uint32_t memory) {
  if constexpr (Operands::kSumsX) {
    const uint32_t one = tile::pack<typename Operands::Element>(1.0f, 1.0f);
    for (uint32_t at = threadIdx.x * 4; at < kOnesBytes<Operands>; at += blockDim.x * 4)
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(memory + at), "r"(one) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the matrix instructions read them
  }
}

// What accumulate() does with the x of each instruction beside multiplying it.
struct NoRowSums {
  __device__ __forceinline__ void add(int, uint64_t, int) {}
};

template <class Product, class Operands>
struct RowSums {
  float sums[Product::kRowBlocks][4];
  uint64_t ones;

  __device__ __forceinline__ explicit RowSums(uint32_t memory) : ones(wgmma_descriptor<true>(memory)) {
#pragma unroll
    for (int i = 0; i < Product::kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
  }
  __device__ __forceinline__ void add(int block, uint64_t x, int k) {
    Operands::Ones::run(sums[block], x, ones + k * wgmma_k_step<true>);
  }
  // Each thread has two rows of a block of 64, four threads the same ones.
  __device__ __forceinline__ void store(const Operands& o, const MatmulTile& tile, int first_row) const {
    typename Operands::SumOfX* const to = o.x_sums(tile.batch);
    const int lane = int(threadIdx.x) % 32;
    if (to == nullptr || lane % 4 != 0) return;
    const int first = int(tile.row) * Product::kBlockM + first_row + int(threadIdx.x) / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < Product::kRowBlocks; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + i * 64 + half * 8;
        if (Operands::kWholeTiles || row < int(o.m)) to[row] = tile::narrowed<typename Operands::SumOfX>(sums[i][half * 2]);
      }
  }
};

}  // namespace aicf
