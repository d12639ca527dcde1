// sort, top_k, argmax, argmin, cumsum, cumprod along one axis. "Lines" are all other axes.
#pragma once

#include "order/sort.cuh"
#include "indexing/walk.cuh"

namespace aicf {

// Lines are walked with x, values, indices.
template <class I, int R>
struct SortLines {
  Walk<I, R, 3> lines;
  I size, kept, x_stride, value_stride, index_stride;
};

template <class Item, bool kDescending, class T>
__device__ __forceinline__ Item item_of(T x, int64_t index) {
  auto key = sort_key(x);
  if (kDescending) key = ~key;
  return Item::make(key, uint64_t(index));
}

// Writes place `at` of a sorted line; the value comes from x, so that its bits stay.
template <class Item, class T, class I, int R>
__device__ __forceinline__ void store_sorted(const SortLines<I, R>& s, const T* x, T* values, int64_t* indices, I line,
                                             I at, const Item& item) {
  I offset[3] = {0, 0, 0};
  s.lines.locate(line, offset);
  values[offset[1] + at * s.value_stride] = x[offset[0] + I(item.index()) * s.x_stride];
  indices[offset[2] + at * s.index_stride] = item.index();
}

// Lines of at most P elements, T / P of them per block.
template <class Item, int T, int P, bool kDescending, class E, class I, int R>
__device__ __forceinline__ void sort_short_lines(const SortLines<I, R>& s, const E* x, E* values, int64_t* indices) {
  __shared__ Item items[T];
  const I count = s.lines.count(), first = I(blockIdx.x) * (T / P);
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const I line = first + i / P, at = i % P;
    Item item = Item::last();
    if (line < count && at < s.size) {
      I offset[3] = {0, 0, 0};
      s.lines.locate(line, offset);
      item = item_of<Item, kDescending>(x[offset[0] + at * s.x_stride], at);
    }
    items[i] = item;
  }
  sort_segments<T, P>(items);
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const I line = first + i / P, at = i % P;
    if (line < count && at < s.kept) store_sorted(s, x, values, indices, line, at, items[i]);
  }
}

// Tiles of T elements of long lines, sorted, the first `keep` of each tile kept in rows of `row` items.
template <class Item, int T, bool kDescending, class E, class I, int R>
__device__ __forceinline__ void sort_tiles(const SortLines<I, R>& s, const E* x, Item* to, int64_t row, I keep) {
  __shared__ Item items[T];
  const I tiles = (s.size + T - 1) / T, line = divide(I(blockIdx.x), tiles), tile = I(blockIdx.x) - line * tiles;
  I offset[3] = {0, 0, 0};
  s.lines.locate(line, offset);
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const I at = tile * T + i;
    items[i] = at < s.size ? item_of<Item, kDescending>(x[offset[0] + at * s.x_stride], at) : Item::last();
  }
  sort_segments<T, T>(items);
  for (I i = threadIdx.x; i < keep; i += blockDim.x)
    if (tile * keep + i < row) to[int64_t(line) * row + tile * keep + i] = items[i];
}

// The same over rows of items: the next round of top_k.
template <class Item, int T>
__device__ __forceinline__ void sort_item_tiles(const Item* from, int64_t from_row, Item* to, int64_t to_row, int64_t keep) {
  __shared__ Item items[T];
  const int64_t tiles = (from_row + T - 1) / T, line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const int64_t at = tile * T + i;
    items[i] = at < from_row ? from[line * from_row + at] : Item::last();
  }
  sort_segments<T, T>(items);
  for (int64_t i = threadIdx.x; i < keep; i += blockDim.x)
    if (tile * keep + i < to_row) to[line * to_row + tile * keep + i] = items[i];
}

// One thread per result, from rows of `row` sorted items.
template <class Item, class E, class I, int R>
__device__ __forceinline__ void store_lines(const SortLines<I, R>& s, const Item* sorted, int64_t row, const E* x, E* values,
                                            int64_t* indices) {
  const I flat = flat_thread<I>();
  if (past(flat, s.lines.count() * s.kept)) return;
  const I line = divide(flat, s.kept), at = flat - line * s.kept;
  store_sorted(s, x, values, indices, line, at, sorted[int64_t(line) * row + at]);
}

// --- argmax, argmin -------------------------------------------------------------------------------------------------

// Lines are walked with x, output.
template <class I, int R>
struct ScanLines {
  Walk<I, R, 2> lines;
  I size, x_stride, out_stride;
};

// An element's rank, where the largest wins and NaN is the largest of all, and its index; of equals the first, or the last.
struct Candidate {
  uint64_t rank;
  int64_t index;
};

template <bool kMinimum, class T>
__device__ __forceinline__ uint64_t rank_of(T x) {
  const auto key = sort_key(x);
  using Key = decltype(sort_key(x));
  constexpr bool kHasNan = IsFloat<typename Element<T>::Value>::value;
  if (!kMinimum || (kHasNan && key == Key(~Key(0)))) return key;
  return Key(~key);
}

template <bool kLast>
__device__ __forceinline__ Candidate better(Candidate a, Candidate b) {
  const bool second = b.rank > a.rank || (b.rank == a.rank && (kLast ? b.index > a.index : b.index < a.index));
  return second ? b : a;
}

// The best of kThreads neighbouring threads, in the first of them. `some`: whether this thread has any.
template <int kThreads, bool kLast>
__device__ __forceinline__ Candidate best_of(Candidate best, bool some, int64_t size) {
  if constexpr (kThreads == 1) return best;
  // What loses to everything: rank 0 at an index that is never preferred.
  if (!some) best = {0, kLast ? -1 : size};
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    Candidate other;
    other.rank = __shfl_down_sync(0xffffffffu, best.rank, step);
    other.index = __shfl_down_sync(0xffffffffu, best.index, step);
    best = better<kLast>(best, other);
  }
  if constexpr (kThreads > 32) {
    const int part = threadIdx.x % kThreads;
    __shared__ Candidate warps[kThreads / 32];
    if (part % 32 == 0) warps[part / 32] = best;
    __syncthreads();
    if (part == 0)
      for (int w = 1; w < kThreads / 32; ++w) best = better<kLast>(best, warps[w]);
  }
  return best;
}

// kThreads of a block of 256 per line: 1, 32 or 256.
template <int kThreads, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_lines(const ScanLines<I, R>& s, const T* x, int64_t* out) {
  const int part = threadIdx.x % kThreads;
  const I line = I(blockIdx.x) * (256 / kThreads) + I(threadIdx.x / kThreads);
  const bool exists = line < s.lines.count();
  I at[2] = {0, 0};
  if (exists) s.lines.locate(line, at);
  Candidate best = {0, 0};
  bool some = false;
  if (exists)
    for (I i = part; i < s.size; i += kThreads) {
      const Candidate candidate = {rank_of<kMinimum>(x[at[0] + i * s.x_stride]), i};
      best = some ? better<kLast>(best, candidate) : candidate;
      some = true;
    }
  best = best_of<kThreads, kLast>(best, some, s.size);
  if (exists && part == 0) out[at[1]] = best.index;
}

// Few long lines: each block of 256 takes kPart elements of one, kUnit neighbours at a time, ...
template <int kPart, int kUnit, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_parts(const ScanLines<I, R>& s, const T* x, Candidate* parts) {
  const uint32_t per_line = uint32_t((s.size + kPart - 1) / kPart);
  I at[2] = {0, 0};
  s.lines.locate(I(blockIdx.x / per_line), at);
  const I first = I(blockIdx.x % per_line) * kPart;
  constexpr int kLoads = kPart / kUnit / 256;
  Pack<T, kUnit> values[kLoads];
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const I i = first + (load * 256 + I(threadIdx.x)) * kUnit;
    if (i < s.size) values[load] = *reinterpret_cast<const Pack<T, kUnit>*>(x + at[0] + i * s.x_stride);
  }
  Candidate best = {0, 0};
  bool some = false;
#pragma unroll
  for (int load = 0; load < kLoads; ++load)
#pragma unroll
    for (int u = 0; u < kUnit; ++u) {
      const I i = first + (load * 256 + I(threadIdx.x)) * kUnit + u;
      if (i >= s.size) continue;
      const Candidate candidate = {rank_of<kMinimum>(values[load].at[u]), i};
      best = some ? better<kLast>(best, candidate) : candidate;
      some = true;
    }
  best = best_of<256, kLast>(best, some, s.size);
  if (threadIdx.x == 0) parts[blockIdx.x] = best;
}

// ... and a warp finds the best of a line's parts.
template <int kPart, bool kLast, class I, int R>
__device__ __forceinline__ void arg_of_parts(const ScanLines<I, R>& s, const Candidate* parts, int64_t* out) {
  const uint32_t per_line = uint32_t((s.size + kPart - 1) / kPart);
  I at[2] = {0, 0};
  s.lines.locate(I(blockIdx.x), at);
  Candidate best = {0, 0};
  bool some = false;
  for (uint32_t i = threadIdx.x; i < per_line; i += 32) {
    const Candidate candidate = parts[int64_t(blockIdx.x) * per_line + i];
    best = some ? better<kLast>(best, candidate) : candidate;
    some = true;
  }
  best = best_of<32, kLast>(best, some, s.size);
  if (threadIdx.x == 0) out[at[1]] = best.index;
}

// --- cumsum, cumprod ------------------------------------------------------------------------------------------------

template <class V>
struct Running {
  using type = V;
};
template <>
struct Running<float> {
  using type = double;
};

template <bool kProduct, class V>
__device__ __forceinline__ V accumulated(V a, V b) {
  return kProduct ? wrapping_mul<V>(a, b) : wrapping_add<V>(a, b);
}

constexpr int kScanItems = 4;  // per thread and tile

// Running totals of floats are kept in double and rounded at every element. Order: kScanItems neighbours one after the
// other, 32 such sums by shuffles (Hillis, Steele: "Data parallel algorithms", 1986), 8 warps and then the tiles one after
// the other. A line of at most 128 elements has one warp's work only, so kThreads = 32 gives the bits of 256.
template <int kThreads, bool kProduct, bool kExclusive, bool kReverse, class T, class I, int R>
__device__ __forceinline__ void scan_lines(const ScanLines<I, R>& s, const T* x, T* out) {
  using E = Element<T>;
  using V = typename Running<typename E::Value>::type;
  const V neutral = V(kProduct ? 1 : 0);
  __shared__ V warps[8];
  const int part = threadIdx.x % kThreads, lane = part % 32, warp = part / 32;
  const I line = I(blockIdx.x) * (256 / kThreads) + I(threadIdx.x / kThreads);
  const bool exists = line < s.lines.count();
  I at[2] = {0, 0};
  if (exists) s.lines.locate(line, at);
  V carry = neutral;
  for (I tile = 0; tile < s.size; tile += kThreads * kScanItems) {
    const I first = tile + part * kScanItems;
    V value[kScanItems], total = neutral;
#pragma unroll
    for (int n = 0; n < kScanItems; ++n) {
      const I i = kReverse ? s.size - 1 - (first + n) : first + n;
      value[n] = exists && first + n < s.size ? V(E::load(x[at[0] + i * s.x_stride])) : neutral;
      total = accumulated<kProduct>(total, value[n]);
    }
    V sum = total;  // of this lane and those before
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const V other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum = accumulated<kProduct>(other, sum);
    }
    V before = __shfl_up_sync(0xffffffffu, sum, 1);
    if (lane == 0) before = neutral;
    if constexpr (kThreads > 32) {
      if (lane == 31) warps[warp] = sum;
      __syncthreads();
      V ahead = carry;
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w == warp) before = accumulated<kProduct>(ahead, before);
        ahead = accumulated<kProduct>(ahead, warps[w]);
      }
      carry = ahead;
      __syncthreads();
    } else {
      before = accumulated<kProduct>(carry, before);
      carry = accumulated<kProduct, V>(carry, __shfl_sync(0xffffffffu, sum, 31));
    }
#pragma unroll
    for (int n = 0; n < kScanItems; ++n) {
      const V after = accumulated<kProduct>(before, value[n]);
      const I i = kReverse ? s.size - 1 - (first + n) : first + n;
      if (exists && first + n < s.size)
        out[at[1] + i * s.out_stride] = E::store(typename E::Value(kExclusive ? before : after));
      before = after;
    }
  }
}

}  // namespace aicf
