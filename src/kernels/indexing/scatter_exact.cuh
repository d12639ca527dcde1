// scatter_elements that adds f16, bf16 or f32, of lines with indices of their own, with the same bits in whatever order updates
// come: a target's updates are added as whole numbers of one unit, which no addition rounds. Their sum with x is then rounded:
// once of f16, of which every number is a multiple of 2^-24, else by way of f64. The unit of other types is 2^-kGuardBits of
// the last bit of a target's largest update; smaller ones are rounded to it. 64 bits hold the sum of 2^22 updates either way.
//
// Neighbouring lines are a group. A bucket is a range of their targets, whose sums one block keeps in shared memory. Blocks
// count the updates of each bucket, tile by tile, move them there, and add them up.
#pragma once

#include "indexing/scatter_buckets.cuh"

namespace aicf {

constexpr int kSumThreads = 512, kSumWarps = kSumThreads / 32;
constexpr int kSumTile = 8192, kSumEach = kSumTile / kSumThreads;  // updates of a block, and of a thread
constexpr int kSlotBits = 13;                                      // of a target's number within its bucket, at most
constexpr int kGuardBits = 17;
constexpr int kSpecials = 16;  // above an exponent

constexpr uint32_t kHasNan = 1, kHasInfinity = 2, kHasMinusInfinity = 4;

__device__ __forceinline__ uint32_t special_of(f16 x) {
  if ((x.bits & 0x7c00) != 0x7c00) return 0;
  if ((x.bits & 0x3ff) != 0) return kHasNan;
  return (x.bits & 0x8000) != 0 ? kHasMinusInfinity : kHasInfinity;
}
__device__ __forceinline__ uint32_t special_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7f800000) != 0x7f800000) return 0;
  if ((bits & 0x7fffff) != 0) return kHasNan;
  return (bits & 0x80000000) != 0 ? kHasMinusInfinity : kHasInfinity;
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

// The exponent field of a number, at least 1; 0 of -0, which changes no sum.
__device__ __forceinline__ uint32_t exponent_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits == 0x80000000 ? 0 : max(bits >> 23 & 255u, 1u);
}

// Of a number, in units of a target whose largest exponent is `exponent`, to nearest. Nobody reads what it is of others.
__device__ __forceinline__ int64_t whole_number(float x, uint32_t exponent) {
  const uint32_t bits = __float_as_uint(x), field = bits >> 23 & 255u;
  const int64_t fraction = bits & 0x7fffff | (field != 0 ? 0x800000 : 0);
  const uint32_t shift = min(exponent - max(field, 1u), 62u);
  const int64_t size = ((fraction << kGuardBits) + ((int64_t(1) << shift) >> 1)) >> shift;
  return (bits & 0x80000000) != 0 ? -size : size;
}

// With x, which stays as it is if nothing but -0 was added. `exponent`: of the largest update, or specials above kSpecials.
template <class T>
__device__ __forceinline__ T scaled_sum(T x, int64_t sum, uint32_t exponent) {
  constexpr int kUnit = 127 + 23 + kGuardBits;  // of exponent 0, below 1
  if (exponent == 0) return x;
  const uint32_t special = exponent >> kSpecials;
  const float start = Element<T>::load(x);
  if (special != 0) {
    const uint32_t bits = special == kHasInfinity ? 0x7f800000 : special == kHasMinusInfinity ? 0xff800000 : 0x7fffffff;
    return Element<T>::store(start + __uint_as_float(bits));
  }
  const double unit = __longlong_as_double(int64_t(exponent + 1023 - kUnit) << 52);
  return Element<T>::store(float(double(start) + double(sum) * unit));
}

// The sums of a bucket's targets in shared memory: 64 bits as two words, whose sums of 32 bits are single operations. Each that
// passes the end of the lower word carries to the upper one.
template <int kSlots>
struct WholeSums {
  uint32_t low[kSlots], high[kSlots];

  __device__ __forceinline__ void add(uint32_t slot, int64_t value) {
    if (value == 0) return;
    const uint32_t part = uint32_t(value), sum = atomicAdd(&low[slot], part) + part;
    const uint32_t rest = uint32_t(uint64_t(value) >> 32) + (sum < part ? 1 : 0);
    if (rest != 0) atomicAdd(&high[slot], rest);
  }
  __device__ __forceinline__ int64_t sum(uint32_t slot) const { return int64_t(uint64_t(high[slot]) << 32 | low[slot]); }
};

template <class T, int kSlots>
struct ExactSums : WholeSums<kSlots> {
  static constexpr bool kScaled = true;  // by the exponent of its largest update, which is noted before any is added
  uint32_t exponents[kSlots];            // or specials above kSpecials

  // Of an update's exponent that is to be noted.
  __device__ __forceinline__ uint32_t exponent(uint32_t slot, T update) {
    const float x = Element<T>::load(update);
    const uint32_t special = special_of(x);
    if (special != 0) atomicOr(&exponents[slot], special << kSpecials);
    return special != 0 ? 0 : exponent_of(x);
  }
  __device__ __forceinline__ void note(uint32_t slot, uint32_t exponent) { atomicMax(&exponents[slot], exponent); }
  __device__ __forceinline__ int64_t units(uint32_t slot, T update) {
    return whole_number(Element<T>::load(update), exponents[slot]);
  }
  __device__ __forceinline__ bool is_reached(uint32_t slot) const { return exponents[slot] != 0; }
  __device__ __forceinline__ T total(uint32_t slot, T x) const { return scaled_sum(x, this->sum(slot), exponents[slot]); }
};
template <int kSlots>
struct ExactSums<f16, kSlots> : WholeSums<kSlots> {
  static constexpr bool kScaled = false;
  uint32_t specials[kSlots / 8];

  __device__ __forceinline__ int64_t units(uint32_t slot, f16 update) {
    const uint32_t special = special_of(update);
    if (special != 0) atomicOr(&specials[slot / 8], special << (slot % 8 * 4));
    return special != 0 ? 0 : whole_number(update);
  }
  __device__ __forceinline__ uint32_t special(uint32_t slot) const { return specials[slot / 8] >> (slot % 8 * 4) & 15u; }
  __device__ __forceinline__ bool is_reached(uint32_t slot) const { return this->sum(slot) != 0 || special(slot) != 0; }
  __device__ __forceinline__ f16 total(uint32_t slot, f16 x) const { return exact_sum(x, this->sum(slot), special(slot)); }
};

__device__ __forceinline__ void clear_bucket_counts(uint4* memory, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) memory[i] = uint4{0, 0, 0, 0};
}

// How kSumTile updates of a group of kLines lines are shared out to threads, and numbers of targets within a bucket, slots.
// kAcross: neighbouring lines lie together in memory.
template <int kLinesOfGroup, int kBitsOfTarget, bool kAcross>
struct SumShape {
  static constexpr int kLines = kLinesOfGroup, kBits = kBitsOfTarget, kRows = kSumTile / kLines, kSlots = kLines << kBits;
  static_assert(kSlots <= 1 << kSlotBits && kSumThreads % kLines == 0, "a slot is beyond its bits");

  // Of a thread's update `n`.
  static __device__ __forceinline__ int line_of(int n) {
    if constexpr (kAcross) return int(threadIdx.x % kLines);
    if constexpr (kRows < kSumThreads) return n * (kSumThreads / kRows) + int(threadIdx.x / kRows);
    return n * kSumThreads / kRows;
  }
  static __device__ __forceinline__ int row_of(int n) {
    if constexpr (kAcross) return n * (kSumThreads / kLines) + int(threadIdx.x / kLines);
    if constexpr (kRows < kSumThreads) return int(threadIdx.x % kRows);
    return n * kSumThreads % kRows + int(threadIdx.x);
  }
  static __device__ __forceinline__ uint32_t slot(int line, uint32_t target) {
    const uint32_t in_bucket = target & ((1u << kBits) - 1);
    return kAcross ? in_bucket * kLines + uint32_t(line) : uint32_t(line) << kBits | in_bucket;
  }
  static __device__ __forceinline__ int line_of_slot(uint32_t slot) {
    return int(kAcross ? slot % kLines : slot >> kBits);
  }
  static __device__ __forceinline__ int target_of_slot(uint32_t slot) {
    return int(kAcross ? slot / kLines : slot & ((1u << kBits) - 1));
  }
};

// The tile of a block. Neighbouring blocks have neighbouring groups.
template <class Shape, class I, int R>
struct SumTile {
  const BucketLines<I, R>& s;
  I group, number;

  __device__ __forceinline__ explicit SumTile(const BucketLines<I, R>& lines) : s(lines) {
    const I groups = divide(s.lines.count() + I(Shape::kLines - 1), I(Shape::kLines));
    number = divide(I(blockIdx.x), groups);
    group = I(blockIdx.x) - number * groups;
  }
  // Whether the thread has an update n; then where its index lies, and itself.
  __device__ __forceinline__ bool find(int n, I& index, I& update) const {
    const I line = group * Shape::kLines + Shape::line_of(n), row = number * Shape::kRows + Shape::row_of(n);
    using U = typename UnsignedOf<I>::type;  // beyond the last row offsets may wrap around
    I at[4] = {0, 0, 0, 0};
    s.lines.locate(min(line, s.lines.count() - 1), at);
    index = I(U(at[0]) + U(row) * U(s.index_stride));
    update = I(U(at[1]) + U(row) * U(s.update_stride));
    return line < s.lines.count() && row < s.updates;
  }
};

// The rank of an update among those that the block counts for its bucket; kNoTarget has none. Whole warps call it.
__device__ __forceinline__ uint32_t next_of_bucket(uint32_t* counts, uint32_t bucket) {
  const uint32_t lane = threadIdx.x % 32, first = __shfl_sync(0xffffffffu, bucket, 0);
  if (!__all_sync(0xffffffffu, bucket == first)) return bucket == kNoTarget ? 0 : atomicAdd(&counts[bucket], 1u);
  if (first == kNoTarget) return 0;
  const uint32_t before = lane == 0 ? atomicAdd(&counts[first], 32u) : 0;
  return __shfl_sync(0xffffffffu, before, 0) + lane;
}

// Dynamic shared memory has four bytes for each bucket.
template <class Shape, class Index, class I, int R>
__device__ __forceinline__ void count_bucket_updates(const BucketLines<I, R>& s, const Index* indices, uint32_t* counts,
                                                     CallError* error) {
  extern __shared__ __align__(16) char sum_memory[];
  constexpr int kAtOnce = 8;
  uint32_t* of_tile = reinterpret_cast<uint32_t*>(sum_memory);
  const SumTile<Shape, I, R> tile(s);
  for (int bucket = threadIdx.x; bucket < s.buckets; bucket += kSumThreads) of_tile[bucket] = 0;
  __syncthreads();
  for (int first = 0; first < kSumEach; first += kAtOnce) {
    Index index[kAtOnce];  // read at once: no load passes a report
    bool is_one[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      I at, update;
      is_one[n] = tile.find(first + n, at, update);
      if (is_one[n]) index[n] = indices[at];
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t target = is_one[n] ? resolve_index(index[n], s.size, error) : -1;
      next_of_bucket(of_tile, target < 0 ? kNoTarget : uint32_t(target) >> Shape::kBits);
    }
  }
  __syncthreads();
  uint32_t* of_group = counts + int64_t(tile.group) * s.buckets;
  for (int bucket = threadIdx.x; bucket < s.buckets; bucket += kSumThreads)
    if (of_tile[bucket] != 0) atomicAdd(&of_group[bucket], of_tile[bucket]);
}

// What a block of place_bucket_updates has in dynamic shared memory, and behind it twice four bytes for each bucket.
template <class T>
struct PlacedTile {
  BucketItem<sizeof(T)> items[kSumTile];
  uint16_t buckets[kSumTile];
};

// `starts`: of each group, where the updates of its buckets begin, and the last ones end. `placed`: how many of each bucket are
// in their places.
template <class Shape, class T, class Index, class I, int R>
__device__ __forceinline__ void place_bucket_updates(const BucketLines<I, R>& s, const Index* indices, const T* updates,
                                                     const uint32_t* counts, uint32_t* placed, uint32_t* starts,
                                                     BucketItem<sizeof(T)>* items) {
  extern __shared__ __align__(16) char sum_memory[];
  __shared__ uint32_t warps[kSumWarps];
  constexpr int kAtOnce = 8;
  using Update = Bits<sizeof(T)>;
  PlacedTile<T>& memory = *reinterpret_cast<PlacedTile<T>*>(sum_memory);
  uint32_t *of_tile = reinterpret_cast<uint32_t*>(&memory + 1), *shifts = of_tile + s.buckets;
  const SumTile<Shape, I, R> tile(s);
  for (int bucket = threadIdx.x; bucket < s.buckets; bucket += kSumThreads) of_tile[bucket] = 0;
  __syncthreads();
  uint32_t keys[kSumEach], ranks[kSumEach];  // a bucket above its slot
#pragma unroll
  for (int first = 0; first < kSumEach; first += kAtOnce) {
    Index index[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      I at, from;
      index[n] = tile.find(first + n, at, from) ? indices[at] : Index(s.size);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n;
      const bool is_one = index[n] >= -s.size && index[n] < s.size;
      const uint32_t target = uint32_t(index[n]) + (index[n] < 0 ? uint32_t(s.size) : 0);
      const uint32_t bucket = is_one ? target >> Shape::kBits : kNoTarget;
      keys[i] = is_one ? bucket << kSlotBits | Shape::slot(Shape::line_of(i), target) : kNoTarget;
      ranks[i] = next_of_bucket(of_tile, bucket);
    }
  }
  Update update[kSumEach];
#pragma unroll
  for (int i = 0; i < kSumEach; ++i) {
    I at, from;
    tile.find(i, at, from);
    if (keys[i] != kNoTarget) update[i] = reinterpret_cast<const Update*>(updates)[from];
  }
  __syncthreads();
  const uint32_t* of_group = counts + int64_t(tile.group) * s.buckets;
  const int each = (s.buckets + kSumThreads - 1) / kSumThreads;
  const int begin = min(int(threadIdx.x) * each, s.buckets), end = min(begin + each, s.buckets);
  uint32_t in_tile = 0, in_group = 0;
  for (int bucket = begin; bucket < end; ++bucket) in_tile += of_tile[bucket], in_group += of_group[bucket];
  const Before<uint32_t> before = sum_before<uint32_t>(in_tile, warps), all = sum_before<uint32_t>(in_group, warps);
  in_tile = before.sum, in_group = all.sum;
  uint32_t* starts_of_group = starts + int64_t(tile.group) * (s.buckets + 1);
  for (int bucket = begin; bucket < end; ++bucket) {
    const uint32_t count = of_tile[bucket];
    if (tile.number == 0) starts_of_group[bucket] = in_group;
    if (count != 0)
      shifts[bucket] = in_group + atomicAdd(&placed[int64_t(tile.group) * s.buckets + bucket], count) - in_tile;
    of_tile[bucket] = in_tile;
    in_tile += count, in_group += of_group[bucket];
  }
  if (tile.number == 0 && threadIdx.x == 0) starts_of_group[s.buckets] = all.all;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSumEach; ++i) {
    if (keys[i] == kNoTarget) continue;
    const uint32_t bucket = keys[i] >> kSlotBits, at = of_tile[bucket] + ranks[i];
    memory.items[at] = BucketItem<sizeof(T)>::make(update[i], keys[i] & ((1u << kSlotBits) - 1));
    memory.buckets[at] = uint16_t(bucket);
  }
  __syncthreads();
  BucketItem<sizeof(T)>* to = items + int64_t(tile.group) * Shape::kLines * s.updates;
  for (uint32_t i = threadIdx.x; i < before.all; i += kSumThreads) to[shifts[memory.buckets[i]] + i] = memory.items[i];
}

// One block per bucket, of neighbouring groups first. Dynamic shared memory has the sums.
template <class Shape, int kStart, class T, class I, int R>
__device__ __forceinline__ void sum_buckets(const BucketLines<I, R>& s, const uint32_t* starts,
                                            const BucketItem<sizeof(T)>* items, const T* x, T* out) {
  extern __shared__ __align__(16) char sum_memory[];
  constexpr int kAhead = 4;
  using Sums = ExactSums<T, Shape::kSlots>;
  Sums& sums = *reinterpret_cast<Sums*>(sum_memory);
  const SumTile<Shape, I, R> of(s);
  const int bucket = int(of.number);
  static_assert(sizeof(Sums) % sizeof(uint4) == 0, "they are cleared by accesses of 16 bytes");
  for (int i = threadIdx.x; i < int(sizeof(Sums) / sizeof(uint4)); i += kSumThreads)
    reinterpret_cast<uint4*>(&sums)[i] = uint4{0, 0, 0, 0};
  const uint32_t* start = starts + int64_t(of.group) * (s.buckets + 1) + bucket;
  const uint32_t begin = start[0], end = start[1];
  const BucketItem<sizeof(T)>* from = items + int64_t(of.group) * Shape::kLines * s.updates;
  __syncthreads();
  const auto visit = [&](const auto& use) {
    for (uint32_t first = begin + threadIdx.x; first < end; first += kAhead * kSumThreads) {
      BucketItem<sizeof(T)> item[kAhead];
#pragma unroll
      for (int n = 0; n < kAhead; ++n) item[n] = from[min(first + n * kSumThreads, end - 1)];
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        if (first + n * kSumThreads >= end) break;
        union {
          Bits<sizeof(T)> bits;
          T element;
        } update;
        update.bits = item[n].bits();
        use(item[n].key(), update.element);
      }
    }
  };
  // What comes for one target after the other, as of sorted or equal indices, is added up by its thread first.
  uint32_t last = kNoTarget;
  if constexpr (Sums::kScaled) {
    uint32_t largest = 0;
    visit([&](uint32_t slot, T update) {
      const uint32_t exponent = sums.exponent(slot, update);
      if (slot == last && exponent <= largest) return;
      if (exponent != 0) sums.note(slot, exponent);
      last = slot, largest = exponent;
    });
    __syncthreads();
    last = kNoTarget;
  }
  int64_t sum = 0;
  visit([&](uint32_t slot, T update) {
    if (slot != last) sums.add(last, sum), sum = 0;
    last = slot;
    sum += sums.units(slot, update);
  });
  sums.add(last, sum);
  __syncthreads();
  for (uint32_t first = threadIdx.x; first < Shape::kSlots; first += kAhead * kSumThreads) {
    bool writes[kAhead];
    T* to[kAhead];
    T old[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const uint32_t slot = first + n * kSumThreads;
      const I line = of.group * Shape::kLines + Shape::line_of_slot(slot);
      const int64_t target = (int64_t(bucket) << Shape::kBits) + Shape::target_of_slot(slot);
      writes[n] = slot < Shape::kSlots && line < s.lines.count() && target < s.size;
      if constexpr (kStart == kInPlace) writes[n] = writes[n] && sums.is_reached(slot);
      if (!writes[n]) continue;
      I at[4] = {0, 0, 0, 0};
      s.lines.locate(line, at);
      to[n] = out + (at[2] + I(target) * s.out_stride);
      if constexpr (kStart == kInPlace)
        old[n] = *to[n];
      else
        old[n] = kStart == kFromOne ? *x : x[at[3] + I(target) * s.x_stride];
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      if (writes[n]) *to[n] = sums.total(first + n * kSumThreads, old[n]);
  }
}

}  // namespace aicf
