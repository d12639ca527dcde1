// What both launches of attention's gradients share on Hopper (backward_wgmma.cuh): copies, products of tiles, stores.
#pragma once

#include "attention/cuda/backward_call.cuh"
#include "attention/cuda/hopper.cuh"

namespace aicf::attention {

// `count` floats (a multiple of 4).
__device__ __forceinline__ void copy_floats(uint32_t to, const float* from, uint32_t barrier, int count) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(count * 4), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ float2 shared_pair(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
  return pair;
}

// Eight columns of a row; columns from `columns` on are left as they are.
template <class T>
struct Eight {
  uint4 bits = make_uint4(0, 0, 0, 0);
  template <bool kVector>
  __device__ __forceinline__ void load(const T* row, int column, int columns, int64_t stride) {
    if constexpr (kVector) {
      bits = *reinterpret_cast<const uint4*>(row + column);
    } else {
      uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (column + i < columns) word[i / 2] |= uint32_t(row[(column + i) * stride].bits) << i % 2 * 16;
      bits = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
  __device__ __forceinline__ float get(int i) const {
    const uint32_t word = i / 2 == 0 ? bits.x : i / 2 == 1 ? bits.y : i / 2 == 2 ? bits.z : bits.w;
    return to_float(T{uint16_t(word >> i % 2 * 16)});
  }
};

// A tile of kRows rows as 64-column halves into shared memory.
template <int kRows, int kHalves>
__device__ __forceinline__ void load_halves(uint32_t to, const CUtensorMap& map, uint32_t barrier, int32_t row, int32_t head,
                                            int32_t batch) {
  for (int half = 0; half < kHalves; ++half) copy_box(to + half * kRows * 128, map, barrier, half * 64, row, head, batch);
}

// d = a b^T over kHalves halves of 64 columns; tiles of kARows and kBRows rows.
template <class T, int kHalves, int kARows, int kBRows, int kCount>
__device__ __forceinline__ void multiply_tiles(float (&d)[kCount], uint32_t a, uint32_t b) {
#pragma unroll
  for (int step = 0; step < kHalves * 4; ++step) {
    const uint32_t half = step / 4, at = step % 4 * 32;
    wgmma_shared(d, descriptor(a + half * kARows * 128 + at, 16), descriptor(b + half * kBRows * 128 + at, 16), step > 0, T());
  }
  commit_wgmma();
}

// d += a b, a in registers, b a tile of kSteps · 16 rows.
template <class T, int kSteps, int kCount>
__device__ __forceinline__ void add_products(float (&d)[kCount], const uint32_t (&a)[kSteps][4], uint32_t b) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    wgmma_registers(d, a[step], descriptor(b + step * 16 * 128, kSteps * 16 * 128), T());
  commit_wgmma();
}

// Accumulators as left operands.
template <class T, int kSteps, int kCount>
__device__ __forceinline__ void pack_products(uint32_t (&a)[kSteps][4], const float (&s)[kCount]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[step][i] = pack<T>(s[step * 8 + 2 * i], s[step * 8 + 2 * i + 1]);
}

// Stores a lane's two rows of sums times `factor` to a head of `to`.
template <int kColumns, bool kVector, class T, int kCount>
__device__ __forceinline__ void store_gradient(const float (&sums)[kCount], float factor, T* to, const View& view,
                                               int32_t batch, int32_t head, int32_t row, int32_t rows) {
  const float factors[2] = {factor, factor};
  store_fragments<kColumns, kVector>(sums, factors, to + batch * view.batch + head * view.head, view, row, rows);
}

struct BackwardMaps {
  const CUtensorMap &q, &k, &v, &dout;
  __device__ __forceinline__ void prefetch() const {
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
    prefetch_map(dout);
  }
};

}  // namespace aicf::attention
