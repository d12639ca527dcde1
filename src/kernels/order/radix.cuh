// Sorts items (key, index) by key, items of one key as they come: a radix sort from the lowest digit on (Satish,
// Harris, Garland: "Designing efficient sorting algorithms for manycore GPUs", 2009). A pass is three launches: every
// block counts the digits of its tile, the counts of a digit are added up over the blocks, every block puts its items
// in their places. Where blocks are few, they add up the counts themselves. `read(i)` gives item i. An item of all ones sorts last: no key has all its digits set.
#pragma once

#include "order/sort.cuh"

namespace aicf {

constexpr int kRadixThreads = 256, kRadixWarps = kRadixThreads / 32;

template <int kShift, int kBits, class Item>
__device__ __forceinline__ uint32_t digit_of(const Item& item) {
  return uint32_t(item.key() >> kShift) & ((1u << kBits) - 1);
}

// The lanes whose value has the same kBits lowest bits. A vote for each takes a fraction of the time of a match.
template <int kBits>
__device__ __forceinline__ uint32_t equal_lanes(uint32_t value) {
  uint32_t equal = 0xffffffffu;
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) {
    const bool set = value >> bit & 1;
    const uint32_t all = __ballot_sync(0xffffffffu, set);
    equal &= set ? all : ~all;
  }
  return equal;
}

// The number of a lane's item among those of its warp with the same digit, of which `placed` came before these 32; it then
// counts these, too. All lanes of a warp call it.
template <int kBits>
__device__ __forceinline__ uint32_t next_rank(uint32_t digit, uint32_t& placed) {
  const uint32_t equal = equal_lanes<kBits>(digit);
  const uint32_t before = __popc(equal & ((1u << threadIdx.x % 32) - 1)), placed_before = placed;
  __syncwarp();
  if (before == 0) placed = placed_before + __popc(equal);
  __syncwarp();
  return placed_before + before;
}

// The sum of the values of the threads before, and of all.
template <class V>
struct Before {
  V sum, all;
};
template <class V, int kWarps>
__device__ __forceinline__ Before<V> sum_before(V value, V (&warps)[kWarps]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  V sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const V other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  V ahead = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) ahead = all;
    all += warps[w];
  }
  __syncthreads();
  return {ahead + sum - value, all};
}

// Counts of one digit lie together where add_counts goes through them (kAdded), else those of one block, of which each
// thread of place_items reads its own digit's.
template <int kBits, bool kAdded>
__device__ __forceinline__ int64_t count_at(uint32_t digit, uint32_t block) {
  return kAdded ? int64_t(digit) * gridDim.x + block : (int64_t(block) << kBits) + digit;
}

// `report(i)` says why item i is left out, once all are read: no load passes a report.
template <int kItems, int kShift, int kBits, bool kAdded, class Count, class Read, class Report>
__device__ __forceinline__ void count_digits(const Read& read, const Report& report, int64_t count, Count* counts) {
  constexpr int kDigits = 1 << kBits;
  __shared__ uint32_t seen[kDigits];
  for (int digit = threadIdx.x; digit < kDigits; digit += kRadixThreads) seen[digit] = 0;
  __syncthreads();
  const int64_t first = int64_t(blockIdx.x) * (kRadixThreads * kItems) + threadIdx.x;
  decltype(read(0)) items[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n)
    if (first + n * kRadixThreads < count) items[n] = read(first + n * kRadixThreads);
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const int64_t i = first + n * kRadixThreads;
    if (i >= count) break;
    if (items[n].is_last()) report(i);
    atomicAdd(&seen[digit_of<kShift, kBits>(items[n])], 1u);
  }
  __syncthreads();
  for (int digit = threadIdx.x; digit < kDigits; digit += kRadixThreads)
    counts[count_at<kBits, kAdded>(uint32_t(digit), blockIdx.x)] = seen[digit];
}

// One block per digit: counts become those of the blocks before, totals[digit] their sum.
template <class Count>
__device__ __forceinline__ void add_counts(Count* counts, int64_t blocks, Count* totals) {
  __shared__ Count warps[kRadixWarps];
  Count* of_digit = counts + int64_t(blockIdx.x) * blocks;
  Count carry = 0;
  for (int64_t first = 0; first < blocks; first += kRadixThreads) {
    const int64_t i = first + threadIdx.x;
    const Before<Count> before = sum_before<Count>(i < blocks ? of_digit[i] : 0, warps);
    if (i < blocks) of_digit[i] = carry + before.sum;
    carry += before.all;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

// A warp's items are neighbours, 32 of them at a time. They go to shared memory in their order first, from where runs of
// one digit leave together.
// kAdded: add_counts has been.
template <int kItems, int kShift, int kBits, bool kAdded, class Item, class Count, class Read>
__device__ __forceinline__ void place_items(const Read& read, int64_t count, const Count* counts, const Count* totals,
                                            Item* to) {
  constexpr int kDigits = 1 << kBits, kTile = kRadixThreads * kItems;
  static_assert(kDigits <= kRadixThreads, "a thread has one digit at most");
  __shared__ Item items[kTile];
  __shared__ uint32_t places[kRadixWarps][kDigits], warp_sums[kRadixWarps];
  __shared__ Count bases[kDigits], warp_totals[kRadixWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t tile = int64_t(blockIdx.x) * kTile, first = tile + warp * (32 * kItems) + lane;
  for (int digit = lane; digit < kDigits; digit += 32) places[warp][digit] = 0;
  Item mine[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) mine[n] = first + n * 32 < count ? read(first + n * 32) : Item::last();
  const bool has_digit = threadIdx.x < kDigits;
  Count total = 0, before_block = 0;
  // Threads that share a digit each add up some of the blocks.
  constexpr int kShares = kAdded ? 1 : kRadixThreads / kDigits, kLoads = 8;
  __shared__ Count shared_totals[kShares * kDigits], shared_before[kShares * kDigits];
  if constexpr (kAdded) {
    if (has_digit) {
      total = totals[threadIdx.x];
      before_block = counts[count_at<kBits, true>(threadIdx.x, blockIdx.x)];
    }
  } else {
    for (uint32_t first_block = threadIdx.x / kDigits; first_block < gridDim.x; first_block += kShares * kLoads) {
      Count of_blocks[kLoads];
#pragma unroll
      for (int n = 0; n < kLoads; ++n) {
        const uint32_t block = first_block + n * kShares;
        of_blocks[n] = block < gridDim.x ? counts[count_at<kBits, false>(threadIdx.x % kDigits, block)] : 0;
      }
#pragma unroll
      for (int n = 0; n < kLoads; ++n) {
        total += of_blocks[n];
        if (first_block + n * kShares < blockIdx.x) before_block += of_blocks[n];
      }
    }
    shared_totals[threadIdx.x] = total;
    shared_before[threadIdx.x] = before_block;
  }
  __syncwarp();
  uint32_t ranks[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const auto digit = digit_of<kShift, kBits>(mine[n]);
    ranks[n] = next_rank<kBits>(digit, places[warp][digit]);
  }
  __syncthreads();
  uint32_t in_tile = 0;
  if (has_digit)
    for (int w = 0; w < kRadixWarps; ++w) {
      const uint32_t of_warp = places[w][threadIdx.x];
      places[w][threadIdx.x] = in_tile;
      in_tile += of_warp;
    }
  if (!kAdded && has_digit)
    for (int share = 1; share < kShares; ++share) {
      total += shared_totals[share * kDigits + threadIdx.x];
      before_block += shared_before[share * kDigits + threadIdx.x];
    }
  if (!has_digit) total = 0;
  const uint32_t start = sum_before(in_tile, warp_sums).sum;
  const Count base = sum_before(total, warp_totals).sum;
  if (has_digit) {
    for (int w = 0; w < kRadixWarps; ++w) places[w][threadIdx.x] += start;
    bases[threadIdx.x] = base + before_block - start;
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kItems; ++n) items[places[warp][digit_of<kShift, kBits>(mine[n])] + ranks[n]] = mine[n];
  __syncthreads();
  const int64_t left = count - tile;
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const int i = n * kRadixThreads + threadIdx.x;
    if (i >= left) break;
    const Item item = items[i];
    to[Count(bases[digit_of<kShift, kBits>(item)] + i)] = item;
  }
}

}  // namespace aicf
