// The end of a product of up to eight rows whose K is split among the blocks of a cluster. Each block sends its part to the
// block that adds the parts, into shared memory that the pipeline does not use, and leaves; a barrier there counts the
// bytes that have come. No other block waits, and no fence waits for other accesses, as finish_cluster
// (matmul_common.cuh) must.
#pragma once

#include "cluster_sends.cuh"
#include "matmul/cuda/matmul_common.cuh"

namespace aicf {

// kParts blocks, kQuads blocks of 32 columns, of which each block adds every kParts-th.
template <int kParts, int kQuads>
struct FewRows {
  static constexpr int kOwn = (kQuads + kParts - 1) / kParts, kLaneBytes = 32;
  static constexpr int kBarrierAt = kParts * kOwn * 32 * kLaneBytes, kBytes = kBarrierAt + 16;

  static __device__ __forceinline__ uint32_t place(uint32_t memory, int part, int quad, int lane) {
    return memory + uint32_t(((part * kOwn + quad / kParts) * 32 + lane) * kLaneBytes);
  }

#if __CUDA_ARCH__ >= 900
  // By one thread of each block, before the cluster's first barrier.
  static __device__ __forceinline__ void set_up(uint32_t memory, int rows) {
    const int own = int(cluster_rank()), quads = own < kQuads ? (kQuads - own + kParts - 1) / kParts : 0;
    expect_sends(memory + kBarrierAt, kParts * quads * rows * 4 * kLaneBytes);
  }

  static __device__ __forceinline__ void send(uint32_t memory, int own, int quad, int lane, const float (&x)[8]) {
    const uint32_t to = in_block(place(memory, own, quad, lane), quad % kParts),
                   barrier = in_block(memory + kBarrierAt, quad % kParts);
#pragma unroll
    for (int i = 0; i < 8; i += 4) send_four(to + i * 4, barrier, x[i], x[i + 1], x[i + 2], x[i + 3]);
  }
#endif

  // Called by the warp that has the rows: a lane 8 columns of row lane / 4 in each quad, values(quad, to). store(quad, sum)
  // gets the sum of the parts in order, in exactly one block.
  template <class Values, class Store>
  static __device__ __forceinline__ void finish(uint32_t memory, int rows, const Values& values, const Store& store) {
#if __CUDA_ARCH__ >= 900
    const int own = int(cluster_rank()), lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      float x[8];
      values(quad, x);
      if (lane / 4 < rows) send(memory, own, quad, lane, x);
    }
    if (own >= kQuads || lane / 4 >= rows) return;
    wait_for_sends(memory + kBarrierAt);
#pragma unroll 1
    for (int quad = own; quad < kQuads; quad += kParts) {
      float parts[kParts][8];
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int i = 0; i < 8; i += 4)
          asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(parts[part][i]), "=f"(parts[part][i + 1]), "=f"(parts[part][i + 2]), "=f"(parts[part][i + 3])
                       : "r"(place(memory, part, quad, lane) + uint32_t(i * 4))
                       : "memory");
      float sum[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        sum[e] = parts[0][e];
#pragma unroll
        for (int part = 1; part < kParts; ++part) sum[e] += parts[part][e];
      }
      store(quad, sum);
    }
#endif
  }
};

}  // namespace aicf
