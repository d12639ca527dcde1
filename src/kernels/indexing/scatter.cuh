// scatter_elements and scatter_nd on a copy of x. Updates of one place are applied in row-major order of the updates, each
// rounded to the element's type, as if one thread did everything.
//
// Two ways to that order: one thread per line along the axis (scatter_elements; lines never meet), or the updates sorted
// by the place that they go to, where the first of each run of equal places applies the run.
#pragma once

#include "indexing/elements.cuh"
#include "order/sort.cuh"
#include "indexing/walk.cuh"

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

template <int kReduction, class T>
__device__ __forceinline__ T combined_element(T old, T update) {
  using E = Element<T>;
  if constexpr (kReduction == kReplace) return update;
  return E::store(combined<kReduction>(E::load(old), E::load(update)));
}

// Lines are walked with indices, updates, output.
template <class I, int R>
struct ScatterLines {
  Walk<I, R, 3> lines;
  I updates, index_stride, update_stride, out_stride;
  int64_t size;
};

template <int kReduction, class T, class Index, class I, int R>
__device__ __forceinline__ void scatter_lines(const ScatterLines<I, R>& s, const Index* indices, const T* updates, T* out,
                                              CallError* error) {
  const I line = flat_thread<I>();
  if (past(line, s.lines.count())) return;
  I at[3] = {0, 0, 0};
  s.lines.locate(line, at);
  for (I i = 0; i < s.updates; ++i) {
    const int64_t index = resolve_index(indices[at[0] + i * s.index_stride], s.size, error);
    if (index < 0) continue;
    T& to = out[at[2] + I(index) * s.out_stride];
    to = combined_element<kReduction>(to, updates[at[1] + i * s.update_stride]);
  }
}

// Updates are walked with indices, updates, and the part of the target that does not come from indices. A target is the
// row-major number of a place in the indexed axes of the output, which `places` finds. `block`: updates, output.
template <class I, int LR, int PR, int BR, int K>
struct Scatter {
  static constexpr int kComponents = K > 0 ? K : 1;
  Walk<I, LR, 3> lines;
  Walk<I, PR, 1> places;
  Walk<I, BR, 2> block;
  int64_t bounds[kComponents], target_steps[kComponents];
  I component_stride;
};

// Sorts tiles of T updates by target; updates outside of the output are left out and sort last.
template <class Item, int T, class Index, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ void sort_targets(const Scatter<I, LR, PR, BR, K>& s, const Index* indices, Item* sorted,
                                             CallError* error) {
  __shared__ Item items[T];
  const I count = s.lines.count();
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const I line = I(blockIdx.x) * T + i;
    Item item = Item::last();
    if (line < count) {
      I at[3] = {0, 0, 0};
      s.lines.locate(line, at);
      int64_t target = at[2];
      bool inside = true;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (!inside) break;
        const int64_t index = resolve_index(indices[at[0] + k * s.component_stride], s.bounds[k], error);
        inside = index >= 0;
        target += index * s.target_steps[k];
      }
      if (inside) item = Item::make(uint64_t(target), uint64_t(line));
    }
    items[i] = item;
  }
  sort_segments<T, T>(items);
  for (int i = threadIdx.x; i < T; i += blockDim.x) {
    const I line = I(blockIdx.x) * T + i;
    if (line < count) sorted[line] = items[i];
  }
}

// The items that sort_targets and the merges leave.
template <class Item, int T>
__device__ __forceinline__ const Item* sorted_items(const void* buffers, int64_t count) {
  return static_cast<const Item*>(buffers) + (merge_passes(count, T) & 1 ? count : 0);
}

// One thread per sorted update and V elements of the block; only the first update of a target works. `buffers` holds two
// arrays of items, and which of them the merges ended in follows from their number.
template <int kReduction, class Item, int T, int V, class E, class I, int LR, int PR, int BR, int K>
__device__ __forceinline__ void apply_updates(const Scatter<I, LR, PR, BR, K>& s, const Item* buffers, const E* updates,
                                              E* out) {
  using Elements = Pack<E, V>;
  const I count = s.lines.count(), per_line = s.block.count() / V, flat = flat_thread<I>();
  if (past(flat, count * per_line)) return;
  const Item* sorted = sorted_items<Item, T>(buffers, count);
  const I first = divide(flat, per_line);
  Item item = sorted[first];
  if (item.is_last() || (first > 0 && sorted[first - 1].key() == item.key())) return;
  I place[1] = {0}, inner[2] = {0, 0};
  s.places.locate(I(item.key()), place);
  s.block.locate((flat - first * per_line) * V, inner);
  Elements* to = reinterpret_cast<Elements*>(out + place[0] + inner[1]);
  Elements value = *to;
  const uint64_t target = item.key();
  for (I i = first;;) {
    I at[3] = {0, 0, 0};
    s.lines.locate(I(item.index()), at);
    const Elements update = *reinterpret_cast<const Elements*>(updates + at[1] + inner[0]);
#pragma unroll
    for (int v = 0; v < V; ++v) value.at[v] = combined_element<kReduction>(value.at[v], update.at[v]);
    if (++i >= count) break;
    item = sorted[i];
    if (item.is_last() || item.key() != target) break;
  }
  *to = value;
}

// starts[t]: how many sorted updates go to targets before t, for t up to `targets`.
template <class Item>
__device__ __forceinline__ void count_before(const Item* sorted, int64_t count, int64_t targets, int32_t* starts) {
  const int64_t target = flat_thread<int64_t>();
  if (target > targets) return;
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (!sorted[middle].is_last() && int64_t(sorted[middle].key()) < target)
      low = middle + 1;
    else
      high = middle;
  }
  starts[target] = int32_t(low);
}

}  // namespace aicf
