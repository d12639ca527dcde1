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

// Sums with zero make -0 a 0 and every NaN the one that has all bits but the sign.
template <bool kMinimum>
__device__ __forceinline__ uint32_t rank_of(float x) {
  const uint32_t bits = __float_as_uint(kMinimum ? 0.0f - x : x + 0.0f);
  return bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u);
}
template <bool kMinimum>
__device__ __forceinline__ uint32_t rank_of(f16 x) {
  return rank_of<kMinimum>(to_float(x));
}
template <bool kMinimum>
__device__ __forceinline__ uint32_t rank_of(bf16 x) {
  return rank_of<kMinimum>(to_float(x));
}
template <bool kMinimum, class T>
__device__ __forceinline__ auto rank_of(T x) {
  const auto key = sort_key(x);
  using Key = decltype(sort_key(x));
  const bool nan = IsFloat<T>::value && key == Key(~Key(0));
  return kMinimum && !nan ? Key(~key) : key;
}

template <bool kLast>
__device__ __forceinline__ Candidate better(Candidate a, Candidate b) {
  const bool second = b.rank > a.rank || (b.rank == a.rank && (kLast ? b.index > a.index : b.index < a.index));
  return second ? b : a;
}

// The best of kThreads neighbouring threads, a power of two, in the first of them.
template <int kThreads, bool kLast>
__device__ __forceinline__ Candidate best_of(Candidate best) {
  const auto best_lane = [](Candidate own, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
      Candidate other;
      other.rank = __shfl_down_sync(0xffffffffu, own.rank, step);
      other.index = __shfl_down_sync(0xffffffffu, own.index, step);
      own = better<kLast>(own, other);
    }
    return own;
  };
  if constexpr (kThreads <= 32) {
    return best_lane(best, kThreads);
  } else {
    constexpr int kWarps = kThreads / 32;
    __shared__ Candidate warps[kWarps < 8 ? 8 : kWarps];  // of all groups of a block of 256
    best = best_lane(best, 32);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x % kThreads < 32)
      best = best_lane(warps[threadIdx.x / kThreads * kWarps + threadIdx.x % kWarps], kWarps);
    return best;
  }
}
// `some`: whether this thread has any.
template <int kThreads, bool kLast>
__device__ __forceinline__ Candidate best_of(Candidate best, bool some, int64_t size) {
  // What loses to everything: rank 0 at an index that is never preferred.
  return best_of<kThreads, kLast>(some ? best : Candidate{0, kLast ? -1 : size});
}

// A block of 256 is kLines neighbouring lines by shares of these; the best of a line's shares, in its first.
template <int kLines, bool kLast>
__device__ __forceinline__ Candidate best_of_shares(Candidate best) {
  if constexpr (kLines == 256) return best;
  __shared__ Candidate of[256];
  of[threadIdx.x] = best;
#pragma unroll
  for (int half = 128; half >= kLines; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of[threadIdx.x] = better<kLast>(of[threadIdx.x], of[threadIdx.x + half]);
  }
  return of[threadIdx.x];
}

// kThreads of a block of 256 per line: 32 or 256.
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

// An element that wins over none.
template <bool kMinimum, class T>
__device__ __forceinline__ T weakest() {
  using E = Element<T>;
  using V = typename E::Value;
  if constexpr (IsFloat<V>::value) {
    return E::store(V(__uint_as_float(kMinimum ? 0x7f800000u : 0xff800000u)));
  } else {
    constexpr T kLow = T(-1) < T(0) ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
    return kMinimum ? T(~uint64_t(kLow)) : kLow;
  }
}

// 16 bytes of elements. As words, since halves would be taken apart where they are loaded, one unit after the other.
struct alignas(16) ArgUnit {
  uint32_t words[4] = {};
};
template <class T>
__device__ __forceinline__ T element_of(const ArgUnit& unit, int n) {
  constexpr int kEach = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // of a word
  Bits<sizeof(T)> bits;
  if constexpr (sizeof(T) == 8)
    bits = unit.words[2 * n] | uint64_t(unit.words[2 * n + 1]) << 32;
  else
    bits = Bits<sizeof(T)>(unit.words[n / kEach] >> (n % kEach * 8 * (4 / kEach)));
  return reinterpret_cast<const T&>(bits);
}
template <class T>
__device__ __forceinline__ void set_element(ArgUnit& unit, int n, T x) {
  constexpr int kEach = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  const Bits<sizeof(T)> bits = reinterpret_cast<const Bits<sizeof(T)>&>(x);
  if constexpr (sizeof(T) == 8)
    unit.words[2 * n] = uint32_t(bits), unit.words[2 * n + 1] = uint32_t(bits >> 32);
  else
    unit.words[n / kEach] |= uint32_t(bits) << (n % kEach * 8 * (4 / kEach));
}

// A row's elements from `first` on, whose address is a multiple of 16; the weakest where there are none.
template <bool kMinimum, class T, class I>
__device__ __forceinline__ ArgUnit unit_of(const T* row, I first, I size) {
  constexpr int kUnit = 16 / sizeof(T);
  if (first >= 0 && first + kUnit <= size) return *reinterpret_cast<const ArgUnit*>(row + first);
  ArgUnit unit;
#pragma unroll
  for (int u = 0; u < kUnit; ++u)
    set_element(unit, u, first + u >= 0 && first + u < size ? row[first + u] : weakest<kMinimum, T>());
  return unit;
}

// The rank and the number of the best of a thread's elements.
template <bool kMinimum, bool kLast, class T, int kUnits, class Key>
__device__ __forceinline__ void best_of_units(const ArgUnit (&units)[kUnits], Key& most, int& number) {
  constexpr int kUnit = 16 / sizeof(T);
  most = 0, number = 0;
#pragma unroll
  for (int n = 0; n < kUnits * kUnit; ++n) {
    const Key key = rank_of<kMinimum>(element_of<T>(units[n / kUnit], n % kUnit));
    if (kLast ? key >= most : key > most) most = key, number = n;
  }
}
// Two elements times 1 or -1, with one zero and one NaN, which has all bits but the sign.
template <bool kMinimum>
__device__ __forceinline__ uint32_t plain_halves(f16, uint32_t pair) {
  asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(kMinimum ? 0xbc00bc00u : 0x3c003c00u), "r"(0u));
  asm("max.NaN.f16x2 %0, %0, %0;" : "+r"(pair));
  return pair;
}
template <bool kMinimum>
__device__ __forceinline__ uint32_t plain_halves(bf16, uint32_t pair) {
  asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(kMinimum ? 0xbf80bf80u : 0x3f803f80u), "r"(0u));
  asm("max.NaN.bf16x2 %0, %0, %0;" : "+r"(pair));
  return pair;
}
// The same of halves: rank and number are one word. Ranks are of 16 bits.
template <bool kMinimum, bool kLast, class T, int kUnits>
__device__ __forceinline__ void best_of_halves(const ArgUnit (&units)[kUnits], uint32_t& most, int& number) {
  const auto item = [](uint32_t upper, int n) {
    const uint32_t rank = upper ^ (uint32_t(int32_t(upper) >> 31) | 0x80000000u);
    return (rank & 0xffff0000u) | uint32_t(kLast ? n : 0xffff - n);
  };
  uint32_t best = 0;
#pragma unroll
  for (int n = 0; n < kUnits * 8; n += 2) {
    const uint32_t pair = plain_halves<kMinimum>(T(), units[n / 8].words[n % 8 / 2]);
    best = max(best, max(item(pair << 16, n), item(pair, n + 1)));
  }
  most = best >> 16;
  number = kLast ? int(best & 0xffffu) : int(0xffffu - (best & 0xffffu));
}

// Lines of neighbours, kThreads for each of kRows lines at once; a thread has kUnits times 16 bytes of a line in flight. Units
// begin where an address allows it, up to kUnit - 1 elements before the line. If kRows is not 1 they hold all of a line.
template <int kThreads, int kUnits, int kRows, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_rows(const ScanLines<I, R>& s, const T* x, int64_t* out) {
  constexpr int kUnit = 16 / sizeof(T), kGroups = kThreads < 256 ? 256 / kThreads : 1;
  constexpr I kTile = I(kThreads) * kUnits * kUnit;
  using Key = decltype(rank_of<kMinimum>(T()));
  const int part = threadIdx.x % kThreads;
  const I count = s.lines.count(), first_line = I(blockIdx.x) * (kGroups * kRows) + I(threadIdx.x / kThreads);
  I at[kRows][2], size[kRows], begin[kRows];
  ArgUnit units[kRows][kUnits];
  const auto load = [&](int r, I tile) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
      units[r][u] = unit_of<kMinimum>(x + at[r][0], tile + begin[r] + (u * kThreads + part) * kUnit, size[r]);
  };
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const I line = first_line + r * kGroups;
    const bool exists = line < count;
    at[r][0] = at[r][1] = 0;
    if (exists) s.lines.locate(line, at[r]);
    size[r] = exists ? s.size : 0;
    begin[r] = -I(reinterpret_cast<uint64_t>(x + at[r][0]) / sizeof(T) % kUnit);
    if (kRows > 1) load(r, 0);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Key best = 0;
    I found = 0;
    for (I tile = 0; tile == 0 || tile + begin[r] < size[r]; tile += kTile) {
      if (kRows == 1) load(r, tile);
      Key most;
      int number;
      if constexpr (IsFloat<typename Element<T>::Value>::value && sizeof(T) == 2)
        best_of_halves<kMinimum, kLast, T>(units[r], most, number);
      else
        best_of_units<kMinimum, kLast, T>(units[r], most, number);
      if (tile == 0 || (kLast ? most >= best : most > best))
        best = most, found = tile + begin[r] + (number / kUnit * kThreads + part) * kUnit + number % kUnit;
      if (kRows > 1) break;
    }
    const Candidate candidate = best_of<kThreads, kLast>(Candidate{best, int64_t(found)});
    // Where all are the weakest, none of these has been told from places outside.
    if (part == 0 && size[r] > 0) out[at[r][1]] = max(min(I(candidate.index), s.size - 1), I(0));
  }
}

// Lines that are neighbours in memory: each block of 256 takes kPart elements of kLines of them and gives the best to
// `parts`; or all elements, where kPart is 0, and gives it to `out`. ...
template <int kLines, int kPart, bool kMinimum, bool kLast, class T, class I, int R>
__device__ __forceinline__ void arg_columns(const ScanLines<I, R>& s, const T* x, Candidate* parts, int64_t* out) {
  constexpr int kShares = 256 / kLines, kLoads = 16;
  const int share = threadIdx.x / kLines;
  const I count = s.lines.count(), groups = (count + (kLines - 1)) / kLines;
  const I line = I(blockIdx.x) % groups * kLines + threadIdx.x % kLines, part = I(blockIdx.x) / groups;
  const bool exists = line < count;
  I at[2] = {0, 0};
  if (exists) s.lines.locate(line, at);
  const I begin = part * I(kPart), end = kPart == 0 ? s.size : min(s.size, begin + I(kPart));
  // What loses to everything where there is no element; indices grow, so that keys alone decide.
  Candidate best = {0, kLast ? int64_t(-1) : int64_t(s.size)};
  if (exists && begin + share < end) {
    decltype(sort_key(*x)) most = 0;
    I found = begin + share;
    for (I first = begin + share; first < end; first += kShares * kLoads) {
      T values[kLoads];
#pragma unroll
      for (int load = 0; load < kLoads; ++load)
        if (first + load * kShares < end) values[load] = x[at[0] + (first + load * kShares) * s.x_stride];
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        const I i = first + load * kShares;
        const auto key = decltype(most)(rank_of<kMinimum>(values[load]));
        if (i < end && (kLast ? key >= most : key > most)) most = key, found = i;
      }
    }
    best = {most, int64_t(found)};
  }
  best = best_of_shares<kLines, kLast>(best);
  if (share != 0 || !exists) return;
  if constexpr (kPart == 0) {
    out[at[1]] = best.index;
  } else {
    parts[int64_t(part) * count + line] = best;
  }
}

// ... and a block finds the best of the parts of kLines lines.
template <int kLines, int kPart, bool kLast, class I, int R>
__device__ __forceinline__ void arg_of_columns(const ScanLines<I, R>& s, const Candidate* parts, int64_t* out) {
  const I count = s.lines.count(), line = I(blockIdx.x) * kLines + threadIdx.x % kLines;
  const uint32_t per_line = uint32_t((s.size + (kPart - 1)) / kPart);
  Candidate best = {0, kLast ? int64_t(-1) : int64_t(s.size)};
  if (line < count)
    for (uint32_t i = threadIdx.x / kLines; i < per_line; i += 256 / kLines)
      best = better<kLast>(best, parts[int64_t(i) * count + line]);
  best = best_of_shares<kLines, kLast>(best);
  if (threadIdx.x >= kLines || line >= count) return;
  I at[2] = {0, 0};
  s.lines.locate(line, at);
  out[at[1]] = best.index;
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
// the other. Threads without elements change nothing, so the fewest that hold a line give the bits of 256. kUnit:
// neighbours that move as one, 1 or kScanItems, of which a line is a multiple.
template <int kThreads, int kUnit, bool kProduct, bool kExclusive, bool kReverse, class T, class I, int R>
__device__ __forceinline__ void scan_lines(const ScanLines<I, R>& s, const T* x, T* out) {
  using E = Element<T>;
  using V = typename Running<typename E::Value>::type;
  const V neutral = V(kProduct ? 1 : 0);
  __shared__ V warps[8];
  constexpr int kLanes = kThreads < 32 ? kThreads : 32;
  const int part = threadIdx.x % kThreads, lane = part % 32, warp = part / 32;
  const I line = I(blockIdx.x) * (256 / kThreads) + I(threadIdx.x / kThreads);
  const bool exists = line < s.lines.count();
  I at[2] = {0, 0};
  if (exists) s.lines.locate(line, at);
  V carry = neutral;
  for (I tile = 0; tile < s.size; tile += kThreads * kScanItems) {
    const I first = tile + part * kScanItems;
    V value[kScanItems], total = neutral;
    // Of the unit of element n, the first one in memory.
    const auto unit_at = [&](int n) { return kReverse ? s.size - kUnit - (first + n) : first + n; };
#pragma unroll
    for (int n = 0; n < kScanItems; n += kUnit) {
      const bool some = exists && first + n < s.size;
      Pack<T, kUnit> unit;
      if (some) unit = *reinterpret_cast<const Pack<T, kUnit>*>(x + at[0] + unit_at(n) * s.x_stride);
#pragma unroll
      for (int u = 0; u < kUnit; ++u) {
        value[n + u] = some ? V(E::load(unit.at[kReverse ? kUnit - 1 - u : u])) : neutral;
        total = accumulated<kProduct>(total, value[n + u]);
      }
    }
    V sum = total;  // of this lane and those before
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
      const V other = __shfl_up_sync(0xffffffffu, sum, step, kLanes);
      if (lane >= step) sum = accumulated<kProduct>(other, sum);
    }
    V before = __shfl_up_sync(0xffffffffu, sum, 1, kLanes);
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
      carry = accumulated<kProduct, V>(carry, __shfl_sync(0xffffffffu, sum, kLanes - 1, kLanes));
    }
#pragma unroll
    for (int n = 0; n < kScanItems; n += kUnit) {
      Pack<T, kUnit> unit;
#pragma unroll
      for (int u = 0; u < kUnit; ++u) {
        const V after = accumulated<kProduct>(before, value[n + u]);
        unit.at[kReverse ? kUnit - 1 - u : u] = E::store(typename E::Value(kExclusive ? before : after));
        before = after;
      }
      if (exists && first + n < s.size)
        *reinterpret_cast<Pack<T, kUnit>*>(out + at[1] + unit_at(n) * s.out_stride) = unit;
    }
  }
}

}  // namespace aicf
