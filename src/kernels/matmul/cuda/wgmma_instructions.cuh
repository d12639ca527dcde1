// What wgmma kernels ask of an sm_90a machine: barriers in shared memory, copies of boxes of a tensor, descriptors of
// matrices and stores of 8 × 8 blocks. PTX ISA, "mbarrier", "cp.async.bulk.tensor" and "Asynchronous warpgroup level matrix
// multiply-accumulate".
#pragma once

#include "matmul/cuda/matmul_common.cuh"

namespace aicf {

constexpr int kWgmmaDepth = 64;       // K of one stage: 128 bytes, the widest swizzle
constexpr int kPanelBytes = 64 * 128; // 64 rows of 128 bytes

// What is made of the value afterwards the compiler knows only then: it takes up no predicates before, which loops that
// round want (wgmma_tf32.cuh), six of the seven being gone a stage of a tile took half as long again.
template <class T>
__device__ __forceinline__ void keep_in_register(T& value) {
  asm volatile("" : "+r"(value));
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the same barrier of a block of the cluster. No wider than that of a block: .release.cluster waits for all of the
// warp's memory accesses (MEMBAR.ALL.GPU) in every step, which took products twice the time on an H100; what is released,
// wgmma's reads, has ended.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

// For what other blocks of the cluster write: the first phase.
__device__ __forceinline__ void wait_for_cluster(uint32_t barrier) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier)
        : "memory");
  } while (!done);
}

// A box of the tensor from the given coordinates, innermost first.
__device__ __forceinline__ void load_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}
__device__ __forceinline__ void load_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
__device__ __forceinline__ void load_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void load_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2, int c3,
                                         int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// The same for the first kBlocks of the cluster: to the same place in each, and counted by the same barrier of each.
template <int kBlocks>
__device__ __forceinline__ void send_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "h"(uint16_t((1 << kBlocks) - 1))
      : "memory");
}
template <int kBlocks>
__device__ __forceinline__ void send_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "h"(uint16_t((1 << kBlocks) - 1))
      : "memory");
}
template <int kBlocks>
__device__ __forceinline__ void send_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2,
                                         int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(uint16_t((1 << kBlocks) - 1))
      : "memory");
}

// The same of memory that is read once: the L2 cache gives it up first, so that it keeps what is read again, caches of
// keys and values and instructions among it.
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void load_box_once(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], "
      "[%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "l"(evict_first())
      : "memory");
}
__device__ __forceinline__ void load_box_once(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, "
      "%5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "l"(evict_first())
      : "memory");
}
__device__ __forceinline__ void load_box_once(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2,
                                              int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, "
      "%5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(evict_first())
      : "memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// A matrix in shared memory with the 128-byte swizzle. Along k: rows of 64 k, eight of them 1024 bytes. Along m or n:
// panels of 64 m or n by 64 k.
template <bool kAlongK>
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address) {
  const uint64_t leading = kAlongK ? 1 : kPanelBytes >> 4;
  return uint64_t((address & 0x3ffff) >> 4) | leading << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// Bytes from one 16 steps of k to the next, in the descriptor's unit.
template <bool kAlongK>
constexpr uint64_t wgmma_k_step = (kAlongK ? 32 : 16 * 128) >> 4;

// Four matrices of 8 × 8 halves; lane l has the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}
__device__ __forceinline__ void store_pair(uint32_t to, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}
// Few elements, together 2, 4 or 8 bytes.
template <class Vector>
__device__ __forceinline__ void load_shared(uint32_t from, Vector& to) {
  if constexpr (sizeof(Vector) == 2)
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(reinterpret_cast<uint16_t&>(to)) : "r"(from) : "memory");
  else if constexpr (sizeof(Vector) == 4)
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(reinterpret_cast<uint32_t&>(to)) : "r"(from) : "memory");
  else
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(reinterpret_cast<uint2&>(to).x), "=r"(reinterpret_cast<uint2&>(to).y)
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}

}  // namespace aicf
