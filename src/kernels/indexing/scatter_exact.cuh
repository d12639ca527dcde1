// Sums of f16 that no addition rounds: every f16 is a multiple of 2^-24 below 2^16, so 64 bits hold the sum of 2^22 of
// them as a whole number, which atomic operations give in any order. What comes out is the sum rounded once. Infinities
// and NaNs are noted beside the sums: four bits of each target.
#pragma once

#include "indexing/scatter_any_order.cuh"

namespace aicf {

constexpr uint32_t kHasNan = 1, kHasInfinity = 2, kHasMinusInfinity = 4;

__device__ __forceinline__ uint32_t special_of(f16 x) {
  if ((x.bits & 0x7c00) != 0x7c00) return 0;
  if ((x.bits & 0x3ff) != 0) return kHasNan;
  return (x.bits & 0x8000) != 0 ? kHasMinusInfinity : kHasInfinity;
}

// Of a number, in units of 2^-24.
__device__ __forceinline__ int64_t whole_number(f16 x) {
  const int exponent = x.bits >> 10 & 31, fraction = x.bits & 0x3ff;
  const int64_t size = exponent == 0 ? fraction : int64_t(fraction | 0x400) << (exponent - 1);
  return (x.bits & 0x8000) != 0 ? -size : size;
}

// Beyond 2^53 units a sum is beyond f16, too.
__device__ __forceinline__ f16 rounded_sum(int64_t units) {
  f16 result;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(result.bits) : "d"(double(units) * 0x1p-24));
  return result;
}

// With x, which stays as it is if nothing but zeros was added.
__device__ __forceinline__ f16 exact_sum(f16 x, int64_t sum, uint32_t special) {
  if (sum == 0 && special == 0) return x;
  const uint32_t all = special | special_of(x);
  if (all == 0) return rounded_sum(sum + whole_number(x));
  if (all == kHasInfinity) return f16{0x7c00};
  if (all == kHasMinusInfinity) return f16{0xfc00};
  return f16{0x7fff};
}

__device__ __forceinline__ void clear_exact_sums(uint4* memory, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) memory[i] = uint4{0, 0, 0, 0};
}

// One thread per element of the updates. The places of s are numbers of targets.
template <class Index, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ void add_exactly(const Scatter<I, LR, PR, BR, K>& s, const Index* indices, const f16* updates,
                                            int64_t* sums, uint32_t* specials, CallError* error) {
  const I length = s.block.count(), flat = flat_thread<I>();
  if (past(flat, s.lines.count() * length)) return;
  const I line = divide(flat, length);
  I from = 0;
  const int64_t to = place_of(s, indices, line, flat - line * length, from, error);
  if (to < 0) return;
  const f16 update = updates[from];
  const uint32_t special = special_of(update);
  if (special != 0)
    atomicOr(&specials[to / 8], special << (to % 8 * 4));
  else
    atomicAdd(reinterpret_cast<uint64_t*>(sums + to), uint64_t(whole_number(update)));
}

// kOne: x is one element.
template <bool kOne>
__device__ __forceinline__ void finish_exact_sums(const int64_t* sums, const uint32_t* specials, int64_t count,
                                                  const f16* x, f16* out) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = exact_sum(x[kOne ? 0 : i], sums[i], specials[i / 8] >> (i % 8 * 4) & 15u);
}

}  // namespace aicf
