// gather, gather_elements, gather_nd, pad, iota and strided copies: one thread per unit of the result, or per few. A unit is as
// many neighbouring elements as one access can move (cuda_walk.h). kThreads is that of a block, which may be a bundle's
// and have more.
#pragma once

#include "indexing/elements.cuh"
#include "indexing/walk.cuh"

namespace aicf {

// Lines are walked with x (without its indexed axes), indices, output; each copies a block with x, output. K axes of x
// are addressed by the K components of an index. Everything but the indices counts in units.
template <class I, int LR, int BR, int K>
struct Gather {
  static constexpr int kComponents = K > 0 ? K : 1;
  Walk<I, LR, 3> lines;
  Walk<I, BR, 2> block;
  int64_t bounds[kComponents];
  I steps[kComponents];
  I component_stride;
};

// A thread moves kItems units, whose reads do not wait for each other.
template <int kItems, int kThreads, class Unit, class Index, class I, int LR, int BR, int K>
__device__ __forceinline__ void gather(const Gather<I, LR, BR, K>& g, uint32_t block_index, const Unit* x,
                                       const Index* indices, Unit* out, CallError* error) {
  const I per_line = g.block.count(), count = g.lines.count() * per_line;
  I from[kItems], to[kItems], index_at[kItems];
  bool has[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const I flat = flat_thread<I, kThreads>(block_index * kItems + i);
    has[i] = !past(flat, count);
    const I line = divide(has[i] ? flat : I(0), per_line);
    I at[3] = {0, 0, 0};
    g.lines.locate(line, at);
    I of_block[2] = {at[0], at[2]};
    g.block.locate((has[i] ? flat : I(0)) - line * per_line, of_block);
    from[i] = of_block[0];
    index_at[i] = at[1];
    to[i] = of_block[1];
  }
  Index index[kItems][Gather<I, LR, BR, K>::kComponents];
#pragma unroll
  for (int i = 0; i < kItems; ++i)
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (has[i]) index[i][k] = indices[index_at[i] + k * g.component_stride];
#pragma unroll
  for (int i = 0; i < kItems; ++i)
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!has[i]) continue;
      const int64_t position = resolve_index(index[i][k], g.bounds[k], error);
      if (position < 0)
        has[i] = false;
      else
        from[i] += I(position) * g.steps[k];
    }
  Unit units[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i)
    if (has[i]) units[i] = x[from[i]];
#pragma unroll
  for (int i = 0; i < kItems; ++i)
    if (has[i]) out[to[i]] = units[i];
}

template <class Unit, class I, int R>
__device__ __forceinline__ void copy(const Walk<I, R, 2>& walk, const Unit* x, Unit* out) {
  const I flat = flat_thread<I>();
  if (past(flat, walk.count())) return;
  I at[2] = {0, 0};
  walk.locate(flat, at);
  out[at[1]] = x[at[0]];
}

// One element everywhere.
template <class Unit, class Element, class I, int R>
__device__ __forceinline__ void fill(const Walk<I, R, 1>& walk, const Element* x, Unit* out) {
  const I flat = flat_thread<I>();
  if (past(flat, walk.count())) return;
  union {
    Element each[sizeof(Unit) / sizeof(Element)];
    Unit all;
  } unit;
#pragma unroll
  for (int i = 0; i < int(sizeof(Unit) / sizeof(Element)); ++i) unit.each[i] = *x;
  I at[1] = {0};
  walk.locate(flat, at);
  out[at[0]] = unit.all;
}

enum PadMode { kPadConstant, kPadEdge, kPadReflect, kPadWrap };

// Index into an axis of x for a position relative to its start, -1 where the padding value goes.
template <int kMode, class I>
__device__ __forceinline__ I source_index(I i, I size) {
  if (i >= 0 && i < size) return i;
  if constexpr (kMode == kPadEdge) return i < 0 ? 0 : size - 1;
  // Most padding is no wider than x, and needs no division.
  if constexpr (kMode == kPadWrap) {
    const I near = i < 0 ? i + size : i - size;
    return near >= 0 && near < size ? near : (i % size + size) % size;
  }
  if constexpr (kMode == kPadReflect) {
    const I near = i < 0 ? -i : 2 * (size - 1) - i;
    if (near >= 0 && near < size) return near;
    if (size == 1) return 0;
    const I period = 2 * (size - 1), at = (i % period + period) % period;
    return at < size ? at : period - at;
  }
  return -1;
}

template <class I, int R>
struct Pad {
  static constexpr int kAxes = R > 0 ? R : 1;
  I sizes[kAxes], out_strides[kAxes], x_sizes[kAxes], x_strides[kAxes], low[kAxes];
};

// Where along an axis an element of the result comes from.
template <int kMode, class I, int R>
__device__ __forceinline__ I pad_source(const Pad<I, R>& p, int axis, I index) {
  return source_index<kMode>(index - p.low[axis], p.x_sizes[axis]);
}

// A thread writes kItems units that lie one behind the other, as the result then does from `out` on (kItems > 1).
template <int kThreads, int kMode, int kItems, class Unit, class I, int R>
__device__ __forceinline__ void pad(const Pad<I, R>& p, uint32_t block_index, const Unit* x, Unit value, Unit* out) {
  const I thread = flat_thread<I, kThreads>(block_index);
  I count = 1;
#pragma unroll
  for (int axis = 0; axis < R; ++axis) count *= p.sizes[axis];
  if (past(thread, I((count + kItems - 1) / kItems))) return;
  constexpr int kLast = R > 0 ? R - 1 : 0;
  I at[Pad<I, R>::kAxes] = {}, flat = thread * kItems, from = 0, to = 0;
  bool outside = false;
#pragma unroll
  for (int axis = R - 1; axis >= 0; --axis) {
    const I next = axis > 0 ? divide(flat, p.sizes[axis]) : 0;
    at[axis] = axis > 0 ? flat - next * p.sizes[axis] : flat;
    to += at[axis] * p.out_strides[axis];
    flat = next;
  }
  // Of the axes but the last.
  const auto find_row = [&] {
    from = 0, outside = false;
#pragma unroll
    for (int axis = 0; axis + 1 < R; ++axis) {
      const I source = pad_source<kMode>(p, axis, at[axis]);
      outside = outside || source < 0;
      from += source * p.x_strides[axis];
    }
  };
  find_row();
  Pack<Unit, kItems> units;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const I source = R > 0 ? pad_source<kMode>(p, kLast, at[kLast]) : 0;
    units.at[i] = value;
    if (!outside && source >= 0) units.at[i] = x[from + source * p.x_strides[kLast]];
    if (i + 1 == kItems || ++at[kLast] < p.sizes[kLast]) continue;
    // Behind the last row of all the first one is read in vain.
    at[kLast] = 0;
    bool carries = true;
#pragma unroll
    for (int axis = kLast - 1; axis >= 0; --axis) {
      at[axis] += carries ? 1 : 0;
      carries = at[axis] == p.sizes[axis];
      if (carries) at[axis] = 0;
    }
    find_row();
  }
  if (kItems > 1 && count - thread * kItems < kItems) {
    for (int i = 0; i < int(count - thread * kItems); ++i) out[to + i] = units.at[i];
  } else {
    *reinterpret_cast<Pack<Unit, kItems>*>(out + to) = units;
  }
}

// A unit filled with copies of one element.
template <class Unit, class T>
__device__ __forceinline__ Unit filled(T value) {
  union {
    Unit unit;
    T elements[sizeof(Unit) / sizeof(T)];
  } all;
#pragma unroll
  for (int i = 0; i < int(sizeof(Unit) / sizeof(T)); ++i) all.elements[i] = value;
  return all.unit;
}

// Tensors: the output's place, and the index along the axis as an offset.
template <int kThreads, class T, class I, int R>
__device__ __forceinline__ void iota(const Walk<I, R, 2>& walk, uint32_t block_index, T* out) {
  const I flat = flat_thread<I, kThreads>(block_index);
  if (past(flat, walk.count())) return;
  I at[2] = {0, 0};
  walk.locate(flat, at);
  out[at[0]] = Element<T>::store(typename Element<T>::Value(at[1]));
}

}  // namespace aicf
