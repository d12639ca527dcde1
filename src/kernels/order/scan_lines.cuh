// cumsum, cumprod along one axis. "Lines" are all other axes.
#pragma once

#include "indexing/elements.cuh"
#include "indexing/walk.cuh"

namespace aicf {

// Lines are walked with x, output.
template <class I, int R>
struct ScanLines {
  Walk<I, R, 2> lines;
  I size, x_stride, out_stride;
};

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
