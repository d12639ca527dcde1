// Sorting items (key, index) in shared memory and merging sorted runs in global memory. Items differ by their index, so
// any sorting network gives the stable order. An item of all ones sorts last and pads tiles.
//
// Inside a tile: Batcher's bitonic network, among the registers of a thread, the lanes of a warp, and the warps of a block.
// Beyond: bottom-up merging where each thread finds the part of the two runs that its outputs come from by binary search
// along a diagonal (Odeh, Green, Mwassi, Shmueli, Birk: "Merge Path", 2012).
#pragma once

#include "indexing/elements.cuh"

namespace aicf {

// A key of 16 bits and an index below 2^16 - 1.
struct ShortItem {
  uint32_t word;
  __device__ static ShortItem make(uint32_t key, uint64_t index) { return {key << 16 | uint32_t(index)}; }
  __device__ static ShortItem last() { return {~uint32_t(0)}; }
  __device__ int64_t index() const { return int64_t(word & 0xffff); }
  __device__ bool before(ShortItem other) const { return word < other.word; }
};

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

// The same order in 16 bits, of types that have no more.
__device__ __forceinline__ uint16_t short_sort_key(f16 x) {
  const uint32_t bits = reinterpret_cast<const uint16_t&>(x), size = bits & 0x7fff, plain = size == 0 ? 0 : bits;
  return uint16_t(size > 0x7c00 ? 0xffffu : plain ^ (plain >> 15 ? 0xffffu : 0x8000u));
}
__device__ __forceinline__ uint16_t short_sort_key(bf16 x) { return uint16_t(sort_key(x) >> 16); }
__device__ __forceinline__ uint16_t short_sort_key(int16_t x) { return uint16_t(uint16_t(x) ^ 0x8000); }
__device__ __forceinline__ uint16_t short_sort_key(int8_t x) { return short_sort_key(int16_t(x)); }
__device__ __forceinline__ uint16_t short_sort_key(uint8_t x) { return x; }

template <class Item, class T>
__device__ __forceinline__ auto item_key(T x) {
  if constexpr (sizeof(Item) == sizeof(ShortItem))
    return short_sort_key(x);
  else
    return sort_key(x);
}

__device__ __forceinline__ ShortItem shuffled(const ShortItem& item, int lane) {
  return {__shfl_sync(0xffffffffu, item.word, lane)};
}
__device__ __forceinline__ NarrowItem shuffled(const NarrowItem& item, int lane) {
  return {__shfl_sync(0xffffffffu, item.word, lane)};
}
__device__ __forceinline__ WideItem shuffled(const WideItem& item, int lane) {
  return {__shfl_sync(0xffffffffu, item.high, lane), __shfl_sync(0xffffffffu, item.low, lane)};
}

// The first of two items, or the second of them.
template <class Item>
__device__ __forceinline__ Item first_or_second(const Item& a, const Item& b, bool first) {
  if constexpr (sizeof(Item) == sizeof(ShortItem))
    return {first ? min(a.word, b.word) : max(a.word, b.word)};
  else
    return b.before(a) == first ? b : a;
}
template <class Item>
__device__ __forceinline__ void put_in_order(Item& a, Item& b) {
  const Item first = first_or_second(a, b, true);
  b = first_or_second(a, b, false);
  a = first;
}
// Of words of 64 bits a maximum would take a second comparison.
__device__ __forceinline__ void put_in_order(NarrowItem& a, NarrowItem& b) {
  const uint64_t first = a.word < b.word ? a.word : b.word;
  b.word ^= a.word ^ first;
  a.word = first;
}

// What a thread has, kEach neighbours. Merges turn both halves of a segment, of which the second is read backwards, into one
// that ascends; so each comparison puts the first item first.
template <int kStep, int kEach, class Item>
__device__ __forceinline__ void merge_own(Item (&own)[kEach]) {
  if constexpr (kStep > 0) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if ((i & kStep) == 0) put_in_order(own[i], own[i + kStep]);
    merge_own<kStep / 2>(own);
  }
}
// Sorts segments of kSize.
template <int kSize, int kEach, class Item>
__device__ __forceinline__ void sort_own(Item (&own)[kEach]) {
  if constexpr (kSize > 1) {
    sort_own<kSize / 2>(own);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if ((i & (kSize / 2)) == 0) put_in_order(own[i], own[i ^ (kSize - 1)]);
    merge_own<kSize / 4>(own);
  }
}

constexpr int kSortThreads = 256;  // of a block

// Where item i of a tile is: threads that read neighbours of their own meet no bank twice. The place of a sum of a multiple
// of 2^n and a number below 2^n is the sum of their places.
template <class Item>
__host__ __device__ constexpr int tile_place(int i) {
  return i + i / int(128 / sizeof(Item));
}

// Compares with the threads whose numbers differ by `mask`, if `mirrored` in their opposite order.
template <bool kFarThreads, bool kMirrored, int kEach, class Item>
__device__ __forceinline__ void exchange_own(Item (&own)[kEach], Item* items, int mask, bool first) {
  if (kFarThreads && mask >= 32) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) items[i * kSortThreads + threadIdx.x] = own[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const Item other = items[(kMirrored ? kEach - 1 - i : i) * kSortThreads + (threadIdx.x ^ mask)];
      own[i] = first_or_second(own[i], other, first);
    }
    return;
  }
  const int lane = (threadIdx.x ^ mask) % 32;
  if constexpr (kMirrored) {
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const Item a = shuffled(own[kEach - 1 - i], lane), b = shuffled(own[i], lane);
      own[i] = first_or_second(own[i], a, first);
      own[kEach - 1 - i] = first_or_second(own[kEach - 1 - i], b, first);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) own[i] = first_or_second(own[i], shuffled(own[i], lane), first);
  }
}

// Sorts every segment of P of T items in shared memory, item i at tile_place(i); both are powers of two, P <= T and
// T >= 2 * kSortThreads. All threads of the block call it.
template <int T, int P, class Item>
__device__ __forceinline__ void sort_segments(Item* items) {
  constexpr int kEach = T / kSortThreads, kThreads = P / kEach;  // of a segment
  const int thread = threadIdx.x;
  Item own[kEach], *places = items + tile_place<Item>(thread * kEach);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kEach; ++i) own[i] = places[tile_place<Item>(i)];
  sort_own<(P < kEach ? P : kEach)>(own);
  // One text for all: unrolled, it would not fit a cache of instructions.
#pragma unroll 1
  for (int threads = 2; threads <= kThreads; threads *= 2) {
    exchange_own<(kThreads > 32), true>(own, items, threads - 1, (thread & (threads / 2)) == 0);
#pragma unroll 1
    for (int step = threads / 4; step > 0; step /= 2)
      exchange_own<(kThreads > 32), false>(own, items, step, (thread & step) == 0);
    merge_own<kEach / 2>(own);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kEach; ++i) places[tile_place<Item>(i)] = own[i];
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
