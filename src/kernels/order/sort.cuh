// Sorting items (key, index) in shared memory and merging sorted runs in global memory. Items differ by their index, so
// any sorting network gives the stable order. An item of all ones sorts last and pads tiles.
//
// Inside a tile: Batcher's bitonic network. Beyond: bottom-up merging where each thread finds the part of the two runs
// that its outputs come from by binary search along a diagonal (Odeh, Green, Mwassi, Shmueli, Birk: "Merge Path", 2012).
#pragma once

#include "indexing/elements.cuh"

namespace aicf {

// A key and an index below 2^32.
struct NarrowItem {
  uint64_t word;
  __device__ static NarrowItem make(uint64_t key, uint64_t index) { return {key << 32 | index}; }
  __device__ static NarrowItem last() { return {~uint64_t(0)}; }
  __device__ bool is_last() const { return word == ~uint64_t(0); }
  __device__ uint64_t key() const { return word >> 32; }
  __device__ int64_t index() const { return int64_t(word & 0xffffffff); }
  __device__ bool before(NarrowItem other) const { return word < other.word; }
};

struct alignas(16) WideItem {
  uint64_t high, low;
  __device__ static WideItem make(uint64_t key, uint64_t index) { return {key, index}; }
  __device__ static WideItem last() { return {~uint64_t(0), ~uint64_t(0)}; }
  __device__ bool is_last() const { return high == ~uint64_t(0) && low == ~uint64_t(0); }
  __device__ uint64_t key() const { return high; }
  __device__ int64_t index() const { return int64_t(low); }
  __device__ bool before(const WideItem& other) const {
    return high < other.high || (high == other.high && low < other.low);
  }
};

// Numbers as unsigned keys in the order of the op semantics: -0 equals 0, NaN is above everything.
__device__ __forceinline__ uint32_t sort_key(float x) {
  if (x != x) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ uint64_t sort_key(double x) {
  if (x != x) return ~uint64_t(0);
  const uint64_t bits = uint64_t(__double_as_longlong(x + 0.0));
  return bits >> 63 ? ~bits : bits | uint64_t(1) << 63;
}
__device__ __forceinline__ uint32_t sort_key(int32_t x) { return uint32_t(x) ^ 0x80000000u; }
__device__ __forceinline__ uint64_t sort_key(int64_t x) { return uint64_t(x) ^ uint64_t(1) << 63; }
__device__ __forceinline__ uint32_t sort_key(f16 x) { return sort_key(to_float(x)); }
__device__ __forceinline__ uint32_t sort_key(bf16 x) { return sort_key(to_float(x)); }
__device__ __forceinline__ uint32_t sort_key(int16_t x) { return sort_key(int32_t(x)); }
__device__ __forceinline__ uint32_t sort_key(int8_t x) { return sort_key(int32_t(x)); }
__device__ __forceinline__ uint32_t sort_key(uint8_t x) { return sort_key(int32_t(x)); }

// Sorts every segment of P of T items in shared memory; both are powers of two, P <= T. All threads of the block call it.
template <int T, int P, class Item>
__device__ __forceinline__ void sort_segments(Item* items) {
  for (int k = 2; k <= P; k *= 2) {
    for (int j = k / 2; j > 0; j /= 2) {
      __syncthreads();
      for (int t = threadIdx.x; t < T / 2; t += blockDim.x) {
        const int i = 2 * t - (t & (j - 1));
        const bool ascending = (i & k) == 0 || k == P;
        const Item a = items[i], b = items[i + j];
        if (b.before(a) == ascending) {
          items[i] = b;
          items[i + j] = a;
        }
      }
    }
  }
  __syncthreads();
}

// How many merge passes turn runs of `run` items into one of `size`: says which of two buffers holds the result.
__device__ __forceinline__ int merge_passes(int64_t size, int64_t run) {
  int passes = 0;
  for (; run < size; run *= 2) ++passes;
  return passes;
}

constexpr int kMergedPerThread = 8;

// Merges neighbouring runs of `width` items of every row of `size` items. Grid: rows × blocks_per_row.
template <class Item>
__device__ __forceinline__ void merge_runs(const Item* from, Item* to, int64_t size, int64_t width,
                                           int64_t blocks_per_row) {
  const int64_t row = blockIdx.x / blocks_per_row;
  const int64_t first = (blockIdx.x % blocks_per_row * blockDim.x + threadIdx.x) * kMergedPerThread;
  if (first >= size) return;
  const int64_t base = first / (2 * width) * (2 * width), diagonal = first - base;
  const int64_t left = min(width, size - base), right = max(int64_t(0), min(width, size - base - width));
  const Item *a = from + row * size + base, *b = a + left;
  int64_t low = max(int64_t(0), diagonal - right), high = min(diagonal, left);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (b[diagonal - 1 - middle].before(a[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  int64_t i = low, j = diagonal - low;
  Item* out = to + row * size + first;
  for (int n = 0; n < kMergedPerThread && first + n < size; ++n) {
    const bool take_right = i >= left || (j < right && b[j].before(a[i]));
    out[n] = take_right ? b[j++] : a[i++];
  }
}

}  // namespace aicf
