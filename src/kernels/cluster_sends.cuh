// Stores into the shared memory of other blocks of a cluster (distributed shared memory, sm_90), whose bytes a barrier
// there counts: the receiver alone waits for them. All blocks of the cluster must have set up their barriers before the
// first store.
#pragma once

#include "prelude.cuh"

namespace aicf {

// The address of the same shared variable in block `rank`.
__device__ __forceinline__ uint32_t in_block(uint32_t address, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// By one thread of the receiver, for a barrier that is used once.
__device__ __forceinline__ void expect_sends(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_for_sends(uint32_t barrier) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier)
        : "memory");
  } while (!done);
}

// To addresses of in_block; 16 and 8 bytes.
__device__ __forceinline__ void send_four(uint32_t to, uint32_t barrier, float a, float b, float c, float d) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send_two(uint32_t to, uint32_t barrier, float a, float b) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(a),
               "f"(b), "r"(barrier)
               : "memory");
}

}  // namespace aicf
