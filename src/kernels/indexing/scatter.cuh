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
#include "indexing/scatter_order.cuh"

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

// In place of updates that no item carries.
constexpr const char* kNotCarried = nullptr;

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

// Where V neighbouring elements of updates come from, as Fold asks: `find` says by an item where an update lies, `load` asks
// for what it is made of, `elements` gives it. Here from memory, where the function `place` says.
template <int V, class Place>
struct Stored {
  static constexpr int kAhead = 4;  // updates that are asked for at a time: registers decide
  Place place;

  template <class Item>
  __device__ __forceinline__ auto find(const Item* item) const {
    return place(item);
  }
  template <class T>
  static __device__ __forceinline__ Pack<T, V> load(const T* from) {
    return loaded<V>(from);
  }
  template <class T>
  static __device__ __forceinline__ const Pack<T, V>& elements(const Pack<T, V>& update) {
    return update;
  }
};
template <int V, class Place>
__device__ __forceinline__ Stored<V, Place> stored(const Place& place) {
  return {place};
}

// The same of updates that a program makes (struct Updates of tile/cuda/tile_cuda.h), from element `offset` of a block on.
template <int V, class M>
struct Computed {
  using Own = typename M::template Own<V>;
  static constexpr int kAhead = sizeof(Own) <= 32 ? 4 : 2;
  const M& updates;
  typename M::template Shared<V> shared;
  int64_t row, column;  // of a block

  __device__ __forceinline__ Computed(const M& all, int64_t offset) : updates(all) {
    row = offset / all.columns();
    column = offset - row * all.columns();
    all.fetch(shared, column);
  }
  template <class Item>
  __device__ __forceinline__ typename M::Row find(const Item* item) const {
    return updates.row(int64_t(item->index()) * updates.rows() + row);
  }
  __device__ __forceinline__ Own load(const typename M::Row& from) const {
    Own own;
    updates.fetch(own, from, column);
    return own;
  }
  __device__ __forceinline__ Pack<typename M::Element, V> elements(const Own& own) const {
    return updates.elements(shared, own);
  }
};

// Where elements of updates from `offset` of their block on come from.
template <int V, class I, int LR, int PR, int BR, int K, class T>
__device__ __forceinline__ auto updates_at(const Scatter<I, LR, PR, BR, K>& s, const T* updates, int64_t offset) {
  I within[3] = {0, 0, 0};
  s.block.locate(I(offset), within);
  const T* from = updates + within[0];
  return stored<V>([&s, from](const auto* item) { return from + s.update(item->index()); });
}
template <int V, class I, int LR, int PR, int BR, int K, class M>
__device__ __forceinline__ Computed<V, M> updates_at(const Scatter<I, LR, PR, BR, K>&, const M& updates, int64_t offset) {
  return Computed<V, M>(updates, offset);
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
  // Updates [first, end), which come from `at`. Items are read ahead of the updates, a few.
  template <class Item, class At>
  __device__ __forceinline__ void add(const Item* sorted, int64_t first, int64_t end, const At& at) {
    if constexpr (kReduction == kReplace) first = max(first, end - 1);
    constexpr int kAhead = At::kAhead;
    decltype(at.find(sorted)) from[kAhead];
    const auto find = [&] {
#pragma unroll
      for (int n = 0; n < kAhead; ++n)
        if (first + n < end) from[n] = at.find(sorted + first + n);
    };
    find();
    while (first < end) {
      const int64_t here = first;
      decltype(at.load(from[0])) update[kAhead];
#pragma unroll
      for (int n = 0; n < kAhead; ++n)
        if (here + n < end) update[n] = at.load(from[n]);
      first += kAhead;
      find();
#pragma unroll
      for (int n = 0; n < kAhead; ++n)
        if (here + n < end) {
          const Elements elements = at.elements(update[n]);
#pragma unroll
          for (int v = 0; v < V; ++v) value[v] = combined<kReduction>(value[v], E::load(elements.at[v]));
        }
    }
  }
  // From update `first` on.
  template <class Item, class At>
  __device__ __forceinline__ void start(const Item* sorted, int64_t first, int64_t end, const At& at) {
    const auto update = at.load(at.find(sorted + first));
    start(at.elements(update));
    add(sorted, first + 1, end, at);
  }
  // What chunk `number` of a run of `chunks` behind its first adds up to, one after the other. `long_chunk`: those of which
  // one sum is made first.
  __device__ __forceinline__ void join_chunk(const Value* chunk, Value (&long_chunk)[V], int64_t number, int64_t chunks) {
    constexpr int kChunks = kLongChunk / kChunk;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (number < kChunks) {
        value[v] = combined<kReduction>(value[v], chunk[v]);
        continue;
      }
      long_chunk[v] = number % kChunks == 0 ? chunk[v] : combined<kReduction>(long_chunk[v], chunk[v]);
      if (number % kChunks == kChunks - 1 || number == chunks) value[v] = combined<kReduction>(value[v], long_chunk[v]);
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
  // Elements that no update reaches stay as they are.
  __device__ __forceinline__ void store(Elements* to, Elements elements, bool is_reached) const {
    if (is_reached)
#pragma unroll
      for (int v = 0; v < V; ++v) elements.at[v] = E::store(value[v]);
    *to = elements;
  }
};

// The chunk that begins in a window, where it is not a run's first. `inner`: the elements' place in a block of `length`.
template <int kReduction, int V, class T, class Item, class At>
__device__ __forceinline__ void fold_chunk(const Item* sorted, int64_t count, int64_t window, const At& at,
                                           typename Element<T>::Value* partials, int64_t length, int64_t inner) {
  const Chunk chunk = chunk_in<kChunk>(sorted, count, window);
  if (chunk.first >= chunk.end) return;
  Fold<kReduction, V, T> fold;
  fold.start(sorted, chunk.first, chunk.end, at);
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

// What updates of V neighbouring elements that come one by one add up to: the same as Fold, chunk by chunk.
template <int kReduction, int V, class Value>
struct alignas(V == 1 && sizeof(Value) == 4 ? 16 : 8) Run {
  Value total[V], chunk[V], long_chunk[V];
  uint32_t count;

  __device__ __forceinline__ void start(int v, Value x) {
    total[v] = x, chunk[v] = long_chunk[v] = Value(0);
    count = 0;
  }
  // `update(v)` is that of element v.
  template <class Update>
  __device__ __forceinline__ void add(const Update& update) {
    if (kReduction == kReplace || count < kChunk) {
#pragma unroll
      for (int v = 0; v < V; ++v) total[v] = combined<kReduction>(total[v], update(v));
    } else if (count % kChunk != 0) {
#pragma unroll
      for (int v = 0; v < V; ++v) chunk[v] = combined<kReduction>(chunk[v], update(v));
    } else {
      if (count > kChunk) close_chunk();
#pragma unroll
      for (int v = 0; v < V; ++v) chunk[v] = update(v);
    }
    ++count;
  }
  // `total` then is the result.
  __device__ __forceinline__ void finish() {
    if (kReduction == kReplace || count <= kChunk) return;
    const bool is_cut = count > kLongChunk && count % kLongChunk != 0;
    close_chunk();
    if (is_cut) join(total, long_chunk);
  }

 private:
  static __device__ __forceinline__ void join(Value (&to)[V], const Value (&from)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) to[v] = combined<kReduction>(to[v], from[v]);
  }
  // Of the chunk that the last update ended or left unfinished.
  __device__ __forceinline__ void close_chunk() {
    const uint32_t number = (count - 1) / kChunk;
    if (number < kLongChunk / kChunk) {
      join(total, chunk);
      return;
    }
    if (number % (kLongChunk / kChunk) == 0) {
#pragma unroll
      for (int v = 0; v < V; ++v) long_chunk[v] = chunk[v];
    } else {
      join(long_chunk, chunk);
    }
    if (count % kLongChunk == 0) join(total, long_chunk);
  }
};

// What x is: elements everywhere, one element, or the output itself, of which places without updates stay as they are.
enum Start { kFromX, kFromOne, kInPlace };

// V elements of the output, from `offset` of the block of a target on, and as `elements` what they are before.
template <int kStart, int V, class T, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ Pack<T, V>* elements_of(const Scatter<I, LR, PR, BR, K>& s, int64_t target, int64_t offset,
                                                   const T* x, T* out, Pack<T, V>& elements) {
  I place[2] = {0, 0}, inner[3] = {0, 0, 0};
  s.places.locate(I(target), place);
  s.block.locate(I(offset), inner);
  Pack<T, V>* to = reinterpret_cast<Pack<T, V>*>(out + place[0] + inner[1]);
  if constexpr (kStart == kFromOne) {
#pragma unroll
    for (int v = 0; v < V; ++v) elements.at[v] = *x;
  } else {
    elements = kStart == kInPlace ? *to : *reinterpret_cast<const Pack<T, V>*>(x + place[1] + inner[2]);
  }
  return to;
}

// A run longer than a chunk, of which a block has `parts` threads from `thread` on; theirs are the elements of the place's
// block from `offset` on.
struct LongRun {
  int thread, parts;
  int64_t begin, end, offset;
};
constexpr int kApplyThreads = 256;

// The chunks behind the first of such runs, one of them for each group of `parts` threads at a time. Every thread of the block
// calls it with its own run and its fold, which holds x and the first chunk. `at_offset(o)` gives `at` of elements o.
template <class Folds, int V, class Item, class AtOffset>
__device__ __forceinline__ void fold_in_block(Folds& fold, const Item* sorted, bool is_long, int64_t begin, int64_t end,
                                              int64_t offset, int64_t per_line, const AtOffset& at_offset) {
  using Value = typename Folds::Value;
  if (!__syncthreads_or(is_long)) return;
  __shared__ LongRun runs[kApplyThreads];
  __shared__ int count;
  __shared__ Value sums[kApplyThreads * V];
  const int thread = threadIdx.x;
  if (thread == 0) count = 0;
  __syncthreads();
  if (is_long && (thread == 0 || offset == 0))
    runs[atomicAdd(&count, 1)] = {thread, int(min(per_line - offset / V, int64_t(kApplyThreads - thread))), begin, end,
                                  offset};
  __syncthreads();
  for (int r = 0; r < count; ++r) {
    const LongRun run = runs[r];
    const int groups = kApplyThreads / run.parts, group = thread / run.parts, part = thread - group * run.parts;
    const bool is_own = thread >= run.thread && thread < run.thread + run.parts;
    const int64_t chunks = (run.end - run.begin - 1) / kChunk;
    const auto at = at_offset(run.offset + part * V);
    Value long_chunk[V];
    for (int64_t first = 1; first <= chunks; first += groups) {
      const int64_t number = first + group, from = run.begin + number * kChunk;
      if (group < groups && number <= chunks) {
        Folds chunk;
        chunk.start(sorted, from, min(run.end, from + kChunk), at);
        chunk.put(sums + thread * V);
      }
      __syncthreads();
      if (is_own)
        for (int g = 0; g < groups && first + g <= chunks; ++g)
          fold.join_chunk(sums + (g * run.parts + thread - run.thread) * V, long_chunk, first + g, chunks);
      __syncthreads();
    }
  }
}

// One thread per V elements of the block and place, or, in place, sorted update, of which the first of a run works.
// kByBlock: no chunk is folded yet.
template <int kReduction, int kStart, bool kByBlock, bool kHasLong, bool kCarried, int V, class T, class Item, class Count,
          class Updates, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ void apply_updates(const Scatter<I, LR, PR, BR, K>& s, const Item* sorted, int64_t count,
                                              int64_t targets, const Count* starts,
                                              const typename Element<T>::Value* partials,
                                              const typename Element<T>::Value* long_partials, const T* x,
                                              const Updates& updates, T* out) {
  const I length = s.block.count(), per_line = length / V, flat = flat_thread<I>();
  bool writes = !past(flat, I(kStart == kInPlace ? count : targets) * per_line);
  if (!kByBlock && !writes) return;
  const I line = divide(flat, per_line), offset = (flat - line * per_line) * V;
  int64_t target = line, begin = 0, end = 0;
  if (writes) {
    if constexpr (kStart == kInPlace) {
      const Item item = sorted[line];
      begin = end = line;
      writes = !item.is_last() && (begin == 0 || sorted[begin - 1].key() != item.key());
      if (writes) {
        target = int64_t(item.key());
        int64_t step = 1;
        while (begin + step < count && sorted[begin + step].key() == item.key()) step *= 2;
        end = first_not_below(sorted, begin + step / 2, min(count, begin + step), item.key() + 1);
      }
    } else {
      begin = starts[line];
      end = starts[line + 1];
    }
  }
  if (!kByBlock && !writes) return;
  const auto at_offset = [&](int64_t o) {
    if constexpr (kCarried)
      return stored<V>([](const Item* item) { return reinterpret_cast<const T*>(item); });
    else
      return updates_at<V>(s, updates, o);
  };
  Pack<T, V> elements, *to = nullptr;
  Fold<kReduction, V, T> fold;
  if (writes) {
    to = elements_of<kStart>(s, target, offset, x, out, elements);
    fold.start(elements);
    if constexpr (kByBlock)
      fold.add(sorted, begin, min(end, begin + kChunk), at_offset(offset));
    else
      fold.template add_run<kHasLong>(sorted, begin, end, at_offset(offset), partials + offset, long_partials + offset,
                                      length);
  }
  if constexpr (kByBlock)
    fold_in_block<Fold<kReduction, V, T>, V>(fold, sorted, end - begin > kChunk, begin, end, offset, per_line, at_offset);
  if (writes) fold.store(to, elements, begin < end);
}

}  // namespace aicf
