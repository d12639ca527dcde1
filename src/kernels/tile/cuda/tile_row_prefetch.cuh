// Prefetched rows (sm_90), a software pipeline: while a group of threads, a warp or a block, works on one row of its walk,
// the copy engine brings the next ones into shared memory. PTX ISA, "cp.async.bulk" and "mbarrier".
#pragma once

#include "prelude.cuh"

namespace aicf {
namespace tile {

// kStages rows of kBytes bytes lie in `memory`, each with a barrier on which its bytes arrive; both are the group's own.
// All threads of the group make it and call wait() and leave(); the one that leads calls expect() and copy().
template <int kGroup, int kStages, int kBytes>
class RowPrefetch {
 public:
  __device__ __forceinline__ RowPrefetch(char* memory, uint64_t* barriers) : memory_(memory), barriers_(address(barriers)) {
    if (leads()) {
      for (int stage = 0; stage < kStages; ++stage)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + stage * 8) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    sync();
  }

  __device__ __forceinline__ bool leads() const { return threadIdx.x % kGroup == 0; }
  // The bytes of all the copies that follow into this stage.
  __device__ __forceinline__ void expect(int stage, uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barriers_ + stage * 8), "r"(bytes)
                 : "memory");
  }
  // Addresses and bytes are multiples of 16.
  __device__ __forceinline__ void copy(int stage, int at, const void* from, uint32_t bytes) const {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address(memory_) + stage * kBytes + at),
                 "l"(from), "r"(bytes), "r"(barriers_ + stage * 8)
                 : "memory");
  }

  // For the row whose turn it is.
  __device__ __forceinline__ void wait() const {
    uint32_t done;
    do {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(barriers_ + stage_ * 8), "r"(parity_)
                   : "memory");
    } while (!done);
  }
  template <class T>
  __device__ __forceinline__ const T* row(int at) const {
    return reinterpret_cast<const T*>(memory_ + stage_ * kBytes + at);
  }
  // The group is done with the row. Gives its stage, which is free now, and goes on to the next.
  __device__ __forceinline__ int leave() {
    sync();
    const int left = stage_;
    if (++stage_ == kStages) stage_ = 0, parity_ ^= 1;
    return left;
  }

 private:
  static __device__ __forceinline__ uint32_t address(const void* shared) { return uint32_t(__cvta_generic_to_shared(shared)); }
  static __device__ __forceinline__ void sync() {
    if constexpr (kGroup <= 32)
      __syncwarp();
    else
      sync_threads<kGroup>();
  }

  char* memory_;
  uint32_t barriers_;
  int stage_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace tile
}  // namespace aicf
