// Several products of the same sizes and strides in one launch, as batches of one product: their tiles fill the
// multiprocessors together, where each by itself would leave some idle in its last round. Only their buffers differ: which
// ones a tile reads and writes follows from its batch. Results are those of the same tiles in launches of their own, bit
// for bit.
#pragma once

#include "matmul/cuda/wgmma_epilogue.cuh"

namespace aicf {

// The element of a short list that stays in registers or constant memory.
template <class T, int kCount>
__device__ __forceinline__ T picked(const T (&list)[kCount], uint32_t index) {
  T found = list[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i)
    if (index == uint32_t(i)) found = list[i];
  return found;
}

// The epilogues of the products, one for each batch.
template <class Inner, int kCount>
struct GroupedEpilogue {
  using Tile = typename Inner::Tile;
  Inner products[kCount];
};

template <class Inner, int kCount>
struct EpilogueOf<GroupedEpilogue<Inner, kCount>> {
  static constexpr bool kByBatch = true;
  using Held = Inner;
  using Type = Inner;
  static __device__ __forceinline__ Held get(const GroupedEpilogue<Inner, kCount>& group, uint32_t batch) {
    return picked(group.products, batch);
  }
};

}  // namespace aicf
