// Index spaces in device code: a Walk turns a flattened row-major index into element offsets of several strided
// windows at once. The host merges axes first (cuda_walk.h); sizes and strides that are constants in the generated
// text fold away, because all loops over axes unroll. I is the type of indices and offsets: int32_t where the host has
// proved that all fit, else int64_t.
#pragma once

#include "prelude.cuh"

namespace aicf {

template <class I>
struct UnsignedOf;
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};
// Dividing unsigned numbers is cheaper, and indices are never negative.
template <class I>
__device__ __forceinline__ I divide(I a, I b) {
  using U = typename UnsignedOf<I>::type;
  return I(U(a) / U(b));
}

template <class I, int R, int T>
struct Walk {
  static constexpr int kAxes = R > 0 ? R : 1, kTensors = T > 0 ? T : 1;
  I sizes[kAxes];
  I strides[kTensors][kAxes];

  __device__ __forceinline__ I count() const {
    I n = 1;
#pragma unroll
    for (int axis = 0; axis < R; ++axis) n *= sizes[axis];
    return n;
  }

  // Adds the offsets of the element with flattened index `flat` to `at`, one per window.
  __device__ __forceinline__ void locate(I flat, I (&at)[kTensors]) const {
#pragma unroll
    for (int axis = R - 1; axis >= 0; --axis) {
      const I next = axis > 0 ? divide(flat, sizes[axis]) : 0;
      const I index = axis > 0 ? flat - next * sizes[axis] : flat;
#pragma unroll
      for (int t = 0; t < T; ++t) at[t] += index * strides[t][axis];
      flat = next;
    }
  }
};

// The flattened index of this thread over a one-dimensional grid; may lie past the end.
template <class I>
__device__ __forceinline__ I flat_thread() {
  return I(typename UnsignedOf<I>::type(blockIdx.x) * blockDim.x + threadIdx.x);
}
// The same where the block has another number, as a member of a bundle, or more threads than those that are counted.
template <class I, int kThreads>
__device__ __forceinline__ I flat_thread(uint32_t block_index) {
  return I(typename UnsignedOf<I>::type(block_index) * kThreads + threadIdx.x);
}
// Whether a flattened index lies past the end; the last block's overhang may wrap around in 32 bits.
template <class I>
__device__ __forceinline__ bool past(I flat, I count) {
  using U = typename UnsignedOf<I>::type;
  return U(flat) >= U(count);
}

// Indices may count from the end; one outside is reported and gives -1.
__device__ __forceinline__ int64_t resolve_index(int64_t value, int64_t bound, CallError* error) {
  if (value >= -bound && value < bound) return value < 0 ? value + bound : value;
  raise(error, value, bound);
  return -1;
}
// Of a table that is only read: in place of a row outside, which is reported, the first one.
__device__ __forceinline__ int64_t gathered_row(int64_t value, int64_t bound, CallError* error) {
  const int64_t row = resolve_index(value, bound, error);
  return row < 0 ? 0 : row;
}

}  // namespace aicf
