// What attention on the general-purpose units is made of, in both directions: the types of sums, rows of tiles in
// shared memory, copies to them.
#pragma once

#include "attention/cuda/call.cuh"

namespace aicf::attention {

template <class T>
struct Accumulator {
  using Type = float;
};
template <>
struct Accumulator<double> {
  using Type = double;
};

// What is read of shared memory at once.
template <class A>
struct Vec;
template <>
struct Vec<float> {
  static constexpr int kSize = 4;
  using Type = float4;
};
template <>
struct Vec<double> {
  static constexpr int kSize = 2;
  using Type = double2;
};

template <class T>
__device__ __forceinline__ T narrow(typename Accumulator<T>::Type x) {
  if constexpr (sizeof(T) == 8)
    return x;
  else
    return from_float<T>(x);
}

// Columns of whole vectors.
template <class A>
constexpr int padded(int columns) {
  return (columns + Vec<A>::kSize - 1) / Vec<A>::kSize * Vec<A>::kSize;
}

// Elements between rows of a tile in shared memory: an odd number of 16-byte units, so that reads down a
// column of units meet no bank twice.
template <class A>
constexpr int tile_stride(int columns) {
  return (padded<A>(columns) / Vec<A>::kSize | 1) * Vec<A>::kSize;
}

// The lanes of a warp as kRowLanes × kKeyLanes. Lanes of one row and lanes of one key lie so that reads of either are of few
// addresses in every quarter of a warp, and writes of weights meet all banks.
template <class A, int kRowLanes>
struct WarpLanes {
  static constexpr int kVec = Vec<A>::kSize, kKeyLanes = 32 / kRowLanes;
  int kx, ry;

  __device__ __forceinline__ WarpLanes() {
    const int lane = int(threadIdx.x) % 32, high = lane / 4;
    kx = lane % 2 + high % (kKeyLanes / 2) * 2;
    ry = lane / 2 % 2 * (kRowLanes / 2) + high / (kKeyLanes / 2);
  }

  // Over the lanes of a row.
  template <class Combine>
  static __device__ __forceinline__ A combined(A x, Combine combine) {
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, 1));
#pragma unroll
    for (int lane = 4; lane < 2 * kKeyLanes; lane *= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
  }

  // Where copy_tile puts a key: the lanes' vectors of keys become rows side by side.
  static __device__ __forceinline__ int place_of_key(int at) {
    constexpr int kAcross = kKeyLanes * kVec;
    return at / kAcross * kAcross + at % kVec * kKeyLanes + at % kAcross / kVec;
  }
};

__device__ __forceinline__ float two_to(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A vector of elements of the mask side by side.
template <class Mask, int kSize>
struct alignas(sizeof(Mask) * kSize) MaskVector {
  Mask element[kSize];
};

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

// Copies 16 bytes, or one element, from global to shared memory; zeros if not `inside`.
__device__ __forceinline__ void copy_vector(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
template <int kBytes>
__device__ __forceinline__ void copy_element(void* to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from),
               "n"(kBytes), "r"(inside ? kBytes : 0)
               : "memory");
}
// Waits for all copies of the thread.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// The largest power of two that divides a number.
constexpr int power_in(int n) { return n & -n; }

// Starts to copy rows [0, rows) of the source and columns [0, kColumns) to a tile; everything else of it becomes 0.
// Row r of the source becomes row `place(r)`, which permutes the bits of r. Halves are there at once, widened.
template <int kColumns, int kTileRows, int kThreads, bool kVector, class T, class A, class Place>
__device__ __forceinline__ void copy_tile(A* tile, int stride, const T* from, int64_t row_stride, int64_t column_stride,
                                          int rows, Place place) {
  constexpr bool kSame = sizeof(T) == sizeof(A);
  constexpr int kUnit = kVector ? 16 / sizeof(T) : 1;
  constexpr int kUnits = (padded<A>(kColumns) + kUnit - 1) / kUnit;
  // Threads that lie side by side in a row. Those of a column have rows kStep apart: powers of two.
  constexpr int kPower = power_in(kThreads), kAcross = power_in(kUnits) < kPower ? power_in(kUnits) : kPower;
  constexpr int kStep = kPower / kAcross;
  const int thread = int(threadIdx.x), first = thread % kPower / kAcross;
  constexpr int kTurns = kThreads / kPower, kLoads = (kTileRows + kStep - 1) / kStep;
  const int turn = thread / kPower;
  if constexpr (!kVector) from += thread % kAcross * column_stride;
  if constexpr (kVector) from += thread % kAcross * kUnit;
  from += first * row_stride;
  tile += place(first) * stride + thread % kAcross * kUnit;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (kTurns > 1 && i % kTurns != turn) continue;
    const int row = first + i * kStep;
    if (kTileRows % kStep != 0 && row >= kTileRows) continue;
    const T* line = from + i * kStep * row_stride;
    A* to = tile + place(i * kStep) * stride;
#pragma unroll
    for (int u = 0; u < kUnits; u += kAcross) {
      constexpr bool kFull = kUnits * kUnit == kColumns;
      const bool inside = row < rows && (kFull || (thread % kAcross + u) * kUnit < kColumns);
      const T* source = line + u * kUnit * (kVector ? 1 : column_stride);
      if constexpr (kSame && kVector) {
        copy_vector(to + u * kUnit, source, inside);
      } else if constexpr (kSame) {
        copy_element<sizeof(T)>(to + u, source, inside);
      } else {
        alignas(16) T values[kUnit];
        if (inside) {
          if constexpr (kVector)
            *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(source);
          else
            values[0] = *source;
        }
#pragma unroll
        for (int e = 0; e < kUnit; ++e) to[u * kUnit + e] = inside ? A(widen(values[e])) : A(0);
      }
    }
  }
}

}  // namespace aicf::attention
