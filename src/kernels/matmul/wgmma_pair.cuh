// What the two blocks of a Split::kPair in wgmma.cuh do together: they have neighbouring row tiles of the same columns,
// and each loads half of every tile of y into the shared memory of both. A stage is free when the warps of both blocks
// have read it.
#pragma once

#include "matmul/matmul_common.cuh"

namespace aicf {

// A box that comes to the same place of both blocks' shared memory, and counts at the same barrier of each.
__device__ __forceinline__ void load_pair_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "h"(uint16_t(3))
      : "memory");
}
__device__ __forceinline__ void load_pair_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "h"(uint16_t(3))
      : "memory");
}
__device__ __forceinline__ void load_pair_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2,
                                              int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(uint16_t(3))
      : "memory");
}

// By lanes 0 and 1 of a warp, at this barrier of block 0 and of block 1.
__device__ __forceinline__ void pair_arrive(uint32_t barrier) {
  const uint32_t lane = threadIdx.x & 31;
  if (lane < 2)
    asm volatile(
        "{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, "
        "[at];\n}" ::"r"(barrier),
        "r"(lane)
        : "memory");
}

}  // namespace aicf
