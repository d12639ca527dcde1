// Several products of the same sizes, strides and epilogue in one launch, as batches of one product: their tiles fill the
// multiprocessors together, where each by itself would leave some idle in its last round. Only their buffers differ: which
// one a tile reads and writes follows from its batch. Results are those of the same tiles in launches of their own, bit
// for bit.
#pragma once

#include "matmul/matmul_common.cuh"

namespace aicf {

// The element of a short list that stays in registers or constant memory.
template <class T, int kCount>
__device__ __forceinline__ T picked(const T (&list)[kCount], uint32_t index) {
  T found = list[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i)
    if (index == uint32_t(i)) found = list[i];
  return found;
}

// Inner: an epilogue that reads nothing but the tile and writes out0. Rows count through all products.
template <class Inner, class Element, int kCount>
struct GroupedEpilogue {
  using Acc = typename Inner::Acc;
  using Tile = typename Inner::Tile;
  static constexpr bool kSumsRows = false;
  struct Row {
    typename Inner::Row row;
    Element* out;
  };
  const Inner& inner;
  Element* outs[kCount];
  uint32_t rows;  // of one product

  __device__ __forceinline__ Row row(int64_t at) const {
    return {inner.row(uint32_t(at) % rows), picked(outs, uint32_t(at) / rows)};
  }
  template <int V>
  using Shared = typename Inner::template Shared<V>;
  template <int V>
  using Own = typename Inner::template Own<V>;
  template <int V>
  __device__ __forceinline__ void fetch(Shared<V>&, int64_t) const {}
  template <int V>
  __device__ __forceinline__ void fetch(Own<V>&, const Row&, int64_t) const {}
  template <int V, class A>
  __device__ __forceinline__ void apply(const Row& row, int64_t column, const A (&acc)[V], const Shared<V>& shared,
                                        const Own<V>& own) const {
    Inner one = inner;
    one.out0 = row.out;
    one.apply(row.row, column, acc, shared, own);
  }
  template <int V, class A>
  __device__ __forceinline__ void apply(const Row& row, int64_t column, const A (&acc)[V]) const {
    apply(row, column, acc, Shared<V>(), Own<V>());
  }
};

}  // namespace aicf
