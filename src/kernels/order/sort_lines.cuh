// sort, top_k along one axis. "Lines" are all other axes.
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
  auto key = item_key<Item>(x);
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

// Lines of at most P elements, T / P of them per block. A thread has some loads in flight before it waits for one.
template <class Item, int T, int P, bool kDescending, class E, class I, int R>
__device__ __forceinline__ void sort_short_lines(const SortLines<I, R>& s, const E* x, E* values, int64_t* indices) {
  constexpr int kEach = T / kSortThreads, kAtOnce = kEach < 8 ? kEach : 8;
  __shared__ Item items[tile_place<Item>(T)];
  const I count = s.lines.count(), first = I(blockIdx.x) * (T / P);
  const auto place = [](int n) { return n * kSortThreads + int(threadIdx.x); };
  // Whether place n of the thread is among the first `size` of a line, and where that line begins.
  const auto locate = [&](int n, I size, I (&offset)[3]) {
    offset[0] = offset[1] = offset[2] = 0;
    const I line = first + place(n) / P;
    const bool some = line < count && place(n) % P < size;
    if (some) s.lines.locate(line, offset);
    return some;
  };
#pragma unroll 1
  for (int from = 0; from < kEach; from += kAtOnce) {
    E loaded[kAtOnce] = {};
    bool some[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      I offset[3];
      some[n] = locate(from + n, s.size, offset);
      if (some[n]) loaded[n] = x[offset[0] + I(place(from + n) % P) * s.x_stride];
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const Item item = item_of<Item, kDescending>(loaded[n], place(from + n) % P);
      items[tile_place<Item>(place(from + n))] = some[n] ? item : Item::last();
    }
  }
  sort_segments<T, P>(items);
#pragma unroll 1
  for (int from = 0; from < kEach; from += kAtOnce) {
    E sorted[kAtOnce];
    I index[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      I offset[3];
      index[n] = I(items[tile_place<Item>(place(from + n))].index());
      if (locate(from + n, s.kept, offset)) sorted[n] = x[offset[0] + index[n] * s.x_stride];
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      I offset[3];
      if (!locate(from + n, s.kept, offset)) continue;
      const I at = place(from + n) % P;
      values[offset[1] + at * s.value_stride] = sorted[n];
      indices[offset[2] + at * s.index_stride] = int64_t(index[n]);
    }
  }
}

// Tiles of T elements of long lines, sorted, the first `keep` of each tile kept in rows of `row` items.
template <class Item, int T, bool kDescending, class E, class I, int R>
__device__ __forceinline__ void sort_tiles(const SortLines<I, R>& s, const E* x, Item* to, int64_t row, I keep) {
  __shared__ Item items[tile_place<Item>(T)];
  const I tiles = (s.size + T - 1) / T, line = divide(I(blockIdx.x), tiles), tile = I(blockIdx.x) - line * tiles;
  I offset[3] = {0, 0, 0};
  s.lines.locate(line, offset);
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const I at = tile * T + i;
    Item item = Item::last();
    if (at < s.size) item = item_of<Item, kDescending>(x[offset[0] + at * s.x_stride], at);
    items[tile_place<Item>(i)] = item;
  }
  sort_segments<T, T>(items);
  for (I i = threadIdx.x; i < keep; i += blockDim.x)
    if (tile * keep + i < row) to[int64_t(line) * row + tile * keep + i] = items[tile_place<Item>(int(i))];
}

// The same over rows of items: the next round of top_k.
template <class Item, int T>
__device__ __forceinline__ void sort_item_tiles(const Item* from, int64_t from_row, Item* to, int64_t to_row, int64_t keep) {
  __shared__ Item items[tile_place<Item>(T)];
  const int64_t tiles = (from_row + T - 1) / T, line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const int64_t at = tile * T + i;
    items[tile_place<Item>(i)] = at < from_row ? from[line * from_row + at] : Item::last();
  }
  sort_segments<T, T>(items);
  for (int64_t i = threadIdx.x; i < keep; i += blockDim.x)
    if (tile * keep + i < to_row) to[line * to_row + tile * keep + i] = items[tile_place<Item>(int(i))];
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

// --- the first few of a line ------------------------------------------------------------------------------------------

// One stage of a bitonic network over lanes whose numbers differ by kStep.
template <int kStep, class Item>
__device__ __forceinline__ Item exchanged(const Item& item, bool ascending) {
  const int lane = threadIdx.x % 32;
  const Item other = shuffled(item, lane ^ kStep);
  return other.before(item) == (((lane & kStep) == 0) == ascending) ? other : item;
}
template <int kStep, class Item>
__device__ __forceinline__ Item merged_lanes(Item item, bool ascending) {
  item = exchanged<kStep>(item, ascending);
  if constexpr (kStep > 1) item = merged_lanes<kStep / 2>(item, ascending);
  return item;
}
// The items of a warp, sorted by lane.
template <class Item>
__device__ __forceinline__ Item sorted_lanes(Item item) {
  const int lane = threadIdx.x % 32;
  item = merged_lanes<1>(item, (lane & 2) == 0);
  item = merged_lanes<2>(item, (lane & 4) == 0);
  item = merged_lanes<4>(item, (lane & 8) == 0);
  item = merged_lanes<8>(item, (lane & 16) == 0);
  return merged_lanes<16>(item, true);
}
// The first 32 of two sorted warps of items.
template <class Item>
__device__ __forceinline__ Item first_of(const Item& a, const Item& b) {
  const Item other = shuffled(b, 31 - threadIdx.x % 32);
  return merged_lanes<16>(other.before(a) ? other : a, true);
}

// At most 32 results of each line. kWarps of a block of 8 share a line, a tile of 32 * kLoads elements each at a time. The
// kept-th of what lanes have as their first bounds what can be a result. Such elements are read again, wait until there are 32,
// and are sorted and merged into those found so far. kUnit: neighbours that a lane loads as one.
template <class Item, int kWarps, int kLoads, int kUnit, bool kDescending, class E, class I, int R>
__device__ __forceinline__ void select_lines(const SortLines<I, R>& s, const E* x, E* values, int64_t* indices) {
  using Key = decltype(sort_key(E()));
  __shared__ Item waiting[8][64];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I line = I(blockIdx.x) * (8 / kWarps) + warp / kWarps;
  const bool exists = line < s.lines.count();
  if (kWarps == 1 && !exists) return;
  const int last = int(s.kept) - 1;
  I offset[3] = {0, 0, 0};
  s.lines.locate(line, offset);
  Item found = Item::last();
  Item* queue = waiting[warp];
  int count = 0;
  const auto merge = [&](int these) {
    const Item item = lane < these ? queue[lane] : Item::last();
    found = first_of(found, sorted_lanes(item));
  };
  constexpr I kTile = 32 * kLoads;
  for (I tile = warp % kWarps * kTile; tile < s.size; tile += kWarps * kTile) {
    const auto place = [&](int n) { return tile + (n / kUnit * 32 + lane) * kUnit + n % kUnit; };
    const auto key_of = [](E element) {
      const Key key = sort_key(element);
      return kDescending ? Key(~key) : key;
    };
    Key keys[kLoads], first = ~Key(0);
#pragma unroll
    for (int n = 0; n < kLoads; n += kUnit) {
      Pack<E, kUnit> unit;
      const bool some = place(n) < s.size;
      if (some) unit = *reinterpret_cast<const Pack<E, kUnit>*>(x + offset[0] + place(n) * s.x_stride);
#pragma unroll
      for (int u = 0; u < kUnit; ++u) {
        keys[n + u] = some ? key_of(unit.at[u]) : ~Key(0);
        first = min(first, keys[n + u]);
      }
    }
    Key bound = Key(shuffled(sorted_lanes(Item::make(first, lane)), last).key());
    bound = min(bound, Key(shuffled(found, last).key()));
    uint32_t left = 0;  // of this lane's elements
#pragma unroll
    for (int n = 0; n < kLoads; ++n)
      if (keys[n] <= bound && place(n) < s.size) left |= 1u << n;
    while (__any_sync(0xffffffffu, left != 0)) {
      const I at = place(__ffs(left) - 1);
      bool is_one = left != 0;
      left &= left - 1;
      Key key = 0;
      if (is_one) key = key_of(x[offset[0] + at * s.x_stride]);
      is_one = is_one && key <= bound;
      const uint32_t all = __ballot_sync(0xffffffffu, is_one);
      if (is_one) queue[count + __popc(all & ((1u << lane) - 1))] = Item::make(key, at);
      count += __popc(all);
      __syncwarp();
      if (count < 32) continue;
      merge(32);
      count -= 32;
      const Item rest = queue[32 + lane];
      __syncwarp();
      queue[lane] = rest;
      __syncwarp();
      bound = min(bound, Key(shuffled(found, last).key()));
    }
  }
  merge(count);
  if constexpr (kWarps > 1) {
    __syncthreads();
    queue[lane] = found;
    __syncthreads();
    if (warp != 0) return;
    for (int w = 1; w < kWarps; ++w) found = first_of(found, waiting[w][lane]);
  }
  if (lane <= last) store_sorted(s, x, values, indices, line, I(lane), found);
}

}  // namespace aicf
