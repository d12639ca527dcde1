// f32 on the matrix units of sm_90a as three products in tf32 (OpMultiplyAddFastF32 in CUTLASS, TF32_TF32_F32_X3 in XLA):
// x = hi + lo, where hi is x rounded to tf32 and lo the rest, and x · y becomes lo · hi + hi · lo + hi · hi. What is left
// out, lo · lo and the last bit of lo, is at most 2^-21 of |x · y|, of either sign.
//
// The matrix units cut what they add, a bias that grows with K. So the products of one stage, 32 of k, have sums of their
// own, the small ones first, which are then added in f32 (promotion, as DeepGEMM has it).
#pragma once

#include "matmul/cuda/mma.cuh"
#include "matmul/cuda/wgmma_instructions.cuh"

namespace aicf {

// x rounded to tf32, halves away from zero. Of a number that is not finite, hi or the rest is not finite either.
__device__ __forceinline__ uint32_t tf32_high(uint32_t x) { return (x + 0x1000) & 0xffffe000; }
// The rest, exact. The matrix units cut its last bit where it has 12 of them.
__device__ __forceinline__ uint32_t tf32_low(uint32_t x, uint32_t high) {
  return __float_as_uint(__uint_as_float(x) - __uint_as_float(high));
}

__device__ __forceinline__ void store_shared(uint32_t to, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

// Both parts of `vectors` of 16 bytes: hi in their place, lo as far behind `low`. Some vectors at a time, whose loads wait
// together.
template <int kThreads>
__device__ __forceinline__ void split_vectors(uint32_t from, uint32_t low_at, int vectors, int thread) {
  constexpr int kAtOnce = 4;
#pragma unroll 1
  for (int first = thread; first < vectors; first += kThreads * kAtOnce) {
    uint4 y[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kThreads < vectors) y[i] = load_shared(from + (first + i * kThreads) * 16);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const uint32_t to = uint32_t(first + i * kThreads) * 16;
      const uint32_t high[4] = {tf32_high(y[i].x), tf32_high(y[i].y), tf32_high(y[i].z), tf32_high(y[i].w)};
      const uint32_t low[4] = {tf32_low(y[i].x, high[0]), tf32_low(y[i].y, high[1]), tf32_low(y[i].z, high[2]),
                               tf32_low(y[i].w, high[3])};
      if (first + i * kThreads >= vectors) continue;
      store_shared(from + to, high);
      store_shared(low_at + to, low);
    }
  }
}

// What the instructions of a stage, 8 of k each, take of a warp's 16 rows of the first operand.
template <int kInstructions>
struct SplitRows {
  uint32_t high[kInstructions][4], low[kInstructions][4];

  // Of rows of 128 bytes with the 128-byte swizzle.
  __device__ __forceinline__ void load(uint32_t x, int first_row) {
    const uint32_t lane = threadIdx.x % 32, row = uint32_t(first_row) + threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < kInstructions; ++k)
      load_matrices<false>(low[k], x + row * 128 + ((uint32_t(k) * 2 + lane / 16 ^ (row & 7)) << 4));
    split();
  }
  // From `low`, which has them whole.
  __device__ __forceinline__ void split() {
#pragma unroll
    for (int k = 0; k < kInstructions; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t all = low[k][i];
        high[k][i] = tf32_high(all);
        low[k][i] = tf32_low(all, high[k][i]);
      }
  }

  // The sums of a stage: `high_y` and `low_y` describe the parts of the second operand.
  template <class Multiply, class MultiplyFirst, int kResults>
  __device__ __forceinline__ void multiply(uint64_t high_y, uint64_t low_y, float (&acc)[kResults]) const {
    wgmma_fence();
    MultiplyFirst::run(acc, high[0], low_y);
    Multiply::run(acc, low[0], high_y);
#pragma unroll
    for (int k = 1; k < kInstructions; ++k) {
      Multiply::run(acc, high[k], low_y + k * wgmma_k_step<true>);
      Multiply::run(acc, low[k], high_y + k * wgmma_k_step<true>);
    }
#pragma unroll
    for (int k = 0; k < kInstructions; ++k) Multiply::run(acc, high[k], high_y + k * wgmma_k_step<true>);
    wgmma_commit();
  }
};

// Whether a sum among these is not finite, which is then computed anew by multiply-adds: the parts of an infinity, or of a
// number that tf32 rounds to one, make results that are no numbers, and so may sums that overflow in another order.
template <int kResults>
__device__ __forceinline__ bool has_non_finite(const float (&sums)[kResults]) {
  float zero = 0;
#pragma unroll
  for (int i = 0; i < kResults; ++i) zero = __fmaf_rn(sums[i], 0.0f, zero);
  return zero != 0;
}

}  // namespace aicf
