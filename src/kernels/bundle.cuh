// The barrier of a bundle's blocks between two stages (codegen/bundle_code.cc).
#pragma once

#include "prelude.cuh"

namespace aicf {

// All threads of the kBlocks blocks, one block or one cluster, wait for one another. What any of them wrote before is
// visible to all of them after: within a block by the barrier itself, in a cluster because it releases and acquires.
template <int kBlocks>
__device__ __forceinline__ void stage_barrier() {
  if constexpr (kBlocks == 1) {
    __syncthreads();
  } else {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
  }
}

}  // namespace aicf
