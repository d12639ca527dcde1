// scatter_elements and scatter_nd on a copy of x. Updates of one place are combined in row-major order of the updates, as
// docs/precision.md says: halves in f32, rounded once.
//
// Short lines of updates (scatter_elements; lines never meet) are walked by one thread each. Otherwise the updates are
// sorted by the place that they go to, which makes runs of equal places. A run is cut into chunks, counted from its own
// beginning: x and the first chunk are one sum, every other chunk is one, and so are kLongChunk updates of which chunks
// are added. What a run adds up to so depends on its length alone.
#pragma once

#include "indexing/elements.cuh"
#include "indexing/walk.cuh"
#include "order/radix.cuh"

namespace aicf {

enum Reduction { kReplace, kAdd, kMul, kMax, kMin };

template <int kReduction, class V>
__device__ __forceinline__ V combined(V old, V update) {
  if constexpr (kReduction == kAdd) return wrapping_add<V>(old, update);
  if constexpr (kReduction == kMul) return wrapping_mul<V>(old, update);
  if constexpr (kReduction == kMax) return larger<V>(old, update);
  if constexpr (kReduction == kMin) return smaller<V>(old, update);
  return update;
}

// Lines are walked with indices, updates, output.
template <class I, int R>
struct ScatterLines {
  Walk<I, R, 3> lines;
  I updates, index_stride, update_stride, out_stride;
  int64_t size;
};

// Updates of one place are combined at the first of them.
template <int kReduction, class T, class Index, class I, int R>
__device__ __forceinline__ void scatter_short_lines(const ScatterLines<I, R>& s, const Index* indices, const T* updates,
                                                    T* out, CallError* error) {
  using E = Element<T>;
  const I line = flat_thread<I>();
  if (past(line, s.lines.count())) return;
  I at[3] = {0, 0, 0};
  s.lines.locate(line, at);
  for (I i = 0; i < s.updates; ++i) {
    const int64_t index = resolve_index(indices[at[0] + i * s.index_stride], s.size, error);
    if (index < 0) continue;
    const auto goes_here = [&](I other) {
      const int64_t value = indices[at[0] + other * s.index_stride];
      return value == index || value == index - s.size;
    };
    bool first = true;
    for (I before = 0; before < i && first; ++before) first = !goes_here(before);
    if (!first) continue;
    T& to = out[at[2] + I(index) * s.out_stride];
    typename E::Value value = E::load(to);
    for (I j = i; j < s.updates; ++j)
      if (goes_here(j)) value = combined<kReduction>(value, E::load(updates[at[1] + j * s.update_stride]));
    to = E::store(value);
  }
}

// Nothing is rounded on the way: T computes as itself, or the reduction chooses.
template <int kReduction, class T, class Index, class I, int R>
__device__ __forceinline__ void scatter_lines(const ScatterLines<I, R>& s, const Index* indices, const T* updates, T* out,
                                              CallError* error) {
  using E = Element<T>;
  const I line = flat_thread<I>();
  if (past(line, s.lines.count())) return;
  I at[3] = {0, 0, 0};
  s.lines.locate(line, at);
  for (I i = 0; i < s.updates; ++i) {
    const int64_t index = resolve_index(indices[at[0] + i * s.index_stride], s.size, error);
    if (index < 0) continue;
    T& to = out[at[2] + I(index) * s.out_stride];
    to = E::store(combined<kReduction>(E::load(to), E::load(updates[at[1] + i * s.update_stride])));
  }
}

// Updates are walked with indices, updates, and the part of the target that does not come from indices. A target is the
// row-major number of a place in the axes of the output that are not of the block, which `places` finds: output, x.
// `block`: updates, output, x.
template <class I, int LR, int PR, int BR, int K>
struct Scatter {
  static constexpr int kComponents = K > 0 ? K : 1;
  Walk<I, LR, 3> lines;
  Walk<I, PR, 2> places;
  Walk<I, BR, 3> block;
  int64_t bounds[kComponents], target_steps[kComponents];
  I component_stride;

  // The item of an update; one outside of the output is left out and sorts last. Where a block is one element of up to four
  // bytes, the item can carry it in place of the update's number.
  template <class Item, bool kReports, bool kCarries, class Index, class T>
  __device__ __forceinline__ Item item(const Index* indices, const T* updates, int64_t line, CallError* error) const {
    I at[3] = {0, 0, 0};
    lines.locate(I(line), at);
    int64_t target = at[2];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      int64_t index = indices[at[0] + k * component_stride];
      if constexpr (kReports)
        index = resolve_index(index, bounds[k], error);
      else
        index = index >= -bounds[k] && index < bounds[k] ? index + (index < 0 ? bounds[k] : 0) : -1;
      if (index < 0) return Item::last();
      target += index * target_steps[k];
    }
    if constexpr (kCarries)
      return Item::make(uint64_t(target), reinterpret_cast<const Bits<sizeof(T)>*>(updates)[at[1]]);
    else
      return Item::make(uint64_t(target), uint64_t(line));
  }
  // Where the block of a sorted update begins.
  __device__ __forceinline__ I update(int64_t line) const {
    I at[3] = {0, 0, 0};
    lines.locate(I(line), at);
    return at[1];
  }
};

// At most T updates, sorted by one block.
template <class Item, int T, class Read>
__device__ __forceinline__ void sort_in_block(const Read& read, int64_t count, Item* sorted) {
  __shared__ Item items[T];
  for (int i = threadIdx.x; i < T; i += blockDim.x) items[i] = i < count ? read(i) : Item::last();
  sort_segments<T, T>(items);
  for (int i = threadIdx.x; i < count; i += blockDim.x) sorted[i] = items[i];
}

constexpr int kChunk = 128, kLongChunk = 32 * kChunk;

// The first of sorted items [low, high) of which the key is not below `key`.
template <class Item>
__device__ __forceinline__ int64_t first_not_below(const Item* sorted, int64_t low, int64_t high, uint64_t key) {
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted[middle].key() < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// starts[t]: how many sorted updates go to targets before t, for t up to `targets`.
template <class Item, class Count>
__device__ __forceinline__ void find_start(const Item* sorted, int64_t count, int64_t target, int64_t targets,
                                           Count* starts) {
  if (target <= targets) starts[target] = Count(first_not_below(sorted, 0, count, uint64_t(target)));
}

struct Chunk {
  int64_t first, end;
};
// Of a run's chunks of kLength items, except its first, the one that begins in window `window` of so many sorted items.
// There is one at most.
template <int kLength, class Item>
__device__ __forceinline__ Chunk chunk_in(const Item* sorted, int64_t count, int64_t window) {
  const int64_t at = window * kLength;
  const Item item = sorted[at];
  if (item.is_last()) return {0, 0};
  const uint64_t key = item.key();
  // A run longer than a chunk that covers `at` covers half a chunk before or behind it.
  const bool is_long = (at >= kLength / 2 && sorted[at - kLength / 2].key() == key) ||
                       (at + kLength / 2 < count && sorted[at + kLength / 2].key() == key);
  if (!is_long) return {0, 0};
  const int64_t start = first_not_below(sorted, 0, at, key);
  const int64_t first = start + (at - start + kLength - 1) / kLength * kLength;
  if (first == start) return {0, 0};
  return {first, first_not_below(sorted, at, min(count, first + kLength), key + 1)};
}

// By accesses of 16 bytes at most.
template <int V, class T>
__device__ __forceinline__ Pack<T, V> loaded(const T* from) {
  constexpr int kWidest = 16 / int(sizeof(T)), kUnit = V < kWidest ? V : kWidest;
  Pack<T, V> elements;
#pragma unroll
  for (int i = 0; i < V; i += kUnit) {
    const Pack<T, kUnit> unit = *reinterpret_cast<const Pack<T, kUnit>*>(from + i);
#pragma unroll
    for (int v = 0; v < kUnit; ++v) elements.at[i + v] = unit.at[v];
  }
  return elements;
}

template <int kReduction, int V, class T>
struct Fold {
  using E = Element<T>;
  using Value = typename E::Value;
  using Elements = Pack<T, V>;
  Value value[V];

  __device__ __forceinline__ void start(const Elements& elements) {
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = E::load(elements.at[v]);
  }
  // Updates [first, end); `at` finds the elements of an item.
  template <class Item, class At>
  __device__ __forceinline__ void add(const Item* sorted, int64_t first, int64_t end, const At& at) {
    if constexpr (kReduction == kReplace) first = max(first, end - 1);
    constexpr int kAhead = 4;
    while (first < end) {
      Elements update[kAhead];
#pragma unroll
      for (int n = 0; n < kAhead; ++n)
        if (first + n < end) update[n] = loaded<V>(at(sorted + first + n));
#pragma unroll
      for (int n = 0; n < kAhead; ++n)
        if (first + n < end)
#pragma unroll
          for (int v = 0; v < V; ++v) value[v] = combined<kReduction>(value[v], E::load(update[n].at[v]));
      first += kAhead;
    }
  }
  // `count` partial sums, so many values apart.
  __device__ __forceinline__ void add_partials(const Value* partials, int64_t step, int64_t count) {
    constexpr int kAhead = 4;
    for (int64_t first = 0; first < count; first += kAhead) {
      Pack<Value, V> partial[kAhead];
#pragma unroll
      for (int n = 0; n < kAhead; ++n)
        if (first + n < count) partial[n] = loaded<V>(partials + (first + n) * step);
#pragma unroll
      for (int n = 0; n < kAhead; ++n)
        if (first + n < count)
#pragma unroll
          for (int v = 0; v < V; ++v) value[v] = combined<kReduction>(value[v], partial[n].at[v]);
    }
  }
  // A run [begin, end) of which the chunks behind the first are sums already, and, if kHasLong, the long ones. The partial
  // sums begin at the elements' place in a block of `length`.
  template <bool kHasLong, class Item, class At>
  __device__ __forceinline__ void add_run(const Item* sorted, int64_t begin, int64_t end, const At& at,
                                          const Value* partials, const Value* long_partials, int64_t length) {
    if constexpr (kReduction == kReplace) {
      add(sorted, begin, end, at);
    } else {
      constexpr int kChunks = kLongChunk / kChunk;
      add(sorted, begin, min(end, begin + kChunk), at);
      if (end - begin <= kChunk) return;
      const Value* chunks = partials + begin / kChunk * length;
      add_partials(chunks + length, length, (min(end - begin, int64_t(kLongChunk)) - 1) / kChunk);
      const int64_t long_chunks = (end - begin - 1) / kLongChunk;
      if constexpr (kHasLong) {
        if (long_chunks > 0)
          add_partials(long_partials + (begin / kLongChunk + 1) * length, length, long_chunks);
      } else {
        for (int64_t k = 1; k <= long_chunks; ++k) {
          Fold long_chunk;
          long_chunk.fold_chunks(chunks + k * kChunks * length, length,
                                 min(int64_t(kChunks), (end - begin - 1) / kChunk + 1 - k * kChunks));
#pragma unroll
          for (int v = 0; v < V; ++v) value[v] = combined<kReduction>(value[v], long_chunk.value[v]);
        }
      }
    }
  }
  // `count` partial sums, at least one, from the first on.
  __device__ __forceinline__ void fold_chunks(const Value* chunks, int64_t step, int64_t count) {
    const Pack<Value, V> sum = loaded<V>(chunks);
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = sum.at[v];
    add_partials(chunks + step, step, count - 1);
  }
  __device__ __forceinline__ void put(Value* to) const {
#pragma unroll
    for (int v = 0; v < V; ++v) to[v] = value[v];
  }
};

// The chunk that begins in a window, where it is not a run's first. `inner`: the elements' place in a block of `length`.
template <int kReduction, int V, class T, class Item, class At>
__device__ __forceinline__ void fold_chunk(const Item* sorted, int64_t count, int64_t window, const At& at,
                                           typename Element<T>::Value* partials, int64_t length, int64_t inner) {
  const Chunk chunk = chunk_in<kChunk>(sorted, count, window);
  if (chunk.first >= chunk.end) return;
  Fold<kReduction, V, T> fold;
  fold.start(loaded<V>(at(sorted + chunk.first)));
  fold.add(sorted, chunk.first + 1, chunk.end, at);
  fold.put(partials + window * length + inner);
}
template <int kReduction, int V, class T, class Item>
__device__ __forceinline__ void fold_long_chunk(const Item* sorted, int64_t count, int64_t window,
                                                const typename Element<T>::Value* partials,
                                                typename Element<T>::Value* long_partials, int64_t length,
                                                int64_t inner) {
  const Chunk chunk = chunk_in<kLongChunk>(sorted, count, window);
  if (chunk.first >= chunk.end) return;
  Fold<kReduction, V, T> fold;
  fold.fold_chunks(partials + chunk.first / kChunk * length + inner, length,
                   (chunk.end - chunk.first - 1) / kChunk + 1);
  fold.put(long_partials + window * length + inner);
}

// What x is: elements everywhere, one element, or the output itself, of which places without updates stay as they are.
enum Start { kFromX, kFromOne, kInPlace };

// One thread per V elements of the block and place, or, in place, sorted update, of which the first of a run works.
template <int kReduction, int kStart, bool kHasLong, bool kCarried, int V, class T, class Item, class Count, class I,
          int LR, int PR, int BR, int K>
__device__ __forceinline__ void apply_updates(const Scatter<I, LR, PR, BR, K>& s, const Item* sorted, int64_t count,
                                              int64_t targets, const Count* starts,
                                              const typename Element<T>::Value* partials,
                                              const typename Element<T>::Value* long_partials, const T* x,
                                              const T* updates, T* out) {
  using Elements = Pack<T, V>;
  const I length = s.block.count(), per_line = length / V, flat = flat_thread<I>();
  if (past(flat, I(kStart == kInPlace ? count : targets) * per_line)) return;
  const I line = divide(flat, per_line), offset = (flat - line * per_line) * V;
  int64_t target = line, begin, end;
  if constexpr (kStart == kInPlace) {
    const Item item = sorted[line];
    begin = line;
    if (item.is_last() || (begin > 0 && sorted[begin - 1].key() == item.key())) return;
    target = int64_t(item.key());
    int64_t step = 1;
    while (begin + step < count && sorted[begin + step].key() == item.key()) step *= 2;
    end = first_not_below(sorted, begin + step / 2, min(count, begin + step), item.key() + 1);
  } else {
    begin = starts[line];
    end = starts[line + 1];
  }
  I place[2] = {0, 0}, inner[3] = {0, 0, 0};
  s.places.locate(I(target), place);
  s.block.locate(offset, inner);
  Elements* to = reinterpret_cast<Elements*>(out + place[0] + inner[1]);
  Elements elements;
  if constexpr (kStart == kFromOne) {
#pragma unroll
    for (int v = 0; v < V; ++v) elements.at[v] = *x;
  } else {
    elements = kStart == kInPlace ? *to : *reinterpret_cast<const Elements*>(x + place[1] + inner[2]);
  }
  if (begin < end) {
    Fold<kReduction, V, T> fold;
    fold.start(elements);
    const auto at = [&](const Item* item) {
      if constexpr (kCarried)
        return reinterpret_cast<const T*>(item);
      else
        return updates + s.update(item->index()) + inner[0];
    };
    fold.template add_run<kHasLong>(sorted, begin, end, at, partials + offset, long_partials + offset, length);
#pragma unroll
    for (int v = 0; v < V; ++v) elements.at[v] = Element<T>::store(fold.value[v]);
  }
  *to = elements;
}

}  // namespace aicf
