// random_bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). Element i takes word
// i mod 4 of the block with counter (i/4 low, i/4 high, step low, stream) under the key (seed low, seed high).
#pragma once

#include "indexing/walk.cuh"

namespace aicf {

struct PhiloxBlock {
  uint32_t word[4];
};

__device__ __forceinline__ PhiloxBlock philox(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * counter.word[0], p1 = uint64_t(0xCD9E8D57u) * counter.word[2];
    counter = {uint32_t(p1 >> 32) ^ counter.word[1] ^ key0, uint32_t(p1), uint32_t(p0 >> 32) ^ counter.word[3] ^ key1,
               uint32_t(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// One thread per block of four elements. kWide: they lie in one aligned unit.
template <bool kWide, class I, int R>
__device__ __forceinline__ void random_bits(const Walk<I, R, 1>& walk, int64_t seed, int64_t step, uint32_t stream,
                                            int32_t* out) {
  const I number = flat_thread<I>(), count = walk.count();
  if (past(number, (count + 3) / 4)) return;
  const PhiloxBlock block =
      philox({uint32_t(number), uint32_t(uint64_t(number) >> 32), uint32_t(step), stream}, uint32_t(seed),
             uint32_t(uint64_t(seed) >> 32));
  if constexpr (kWide) {
    I at[1] = {0};
    walk.locate(number * 4, at);
    *reinterpret_cast<uint4*>(out + at[0]) = make_uint4(block.word[0], block.word[1], block.word[2], block.word[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      I at[1] = {0};
      if (number * 4 + i >= count) break;
      walk.locate(number * 4 + i, at);
      out[at[0]] = int32_t(block.word[i]);
    }
  }
}

}  // namespace aicf
