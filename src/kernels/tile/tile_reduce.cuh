// Reductions of one value per thread over the threads of a group: 1 to 32 neighbouring lanes, or a whole block. The
// order is fixed: pairs of lanes at distance 1, 2, 4, …, then warps the same way. Every thread gets the result.
#pragma once

#include "tile/tile_math.cuh"

namespace aicf {
namespace tile {

template <class T>
struct Limits;
template <>
struct Limits<float> {
  static AICF_FN float low() { return __uint_as_float(0xff800000); }
  static AICF_FN float high() { return __uint_as_float(0x7f800000); }
};
template <>
struct Limits<double> {
  static AICF_FN double low() { return constant_f64(0xfff0000000000000ull); }
  static AICF_FN double high() { return constant_f64(0x7ff0000000000000ull); }
};
template <>
struct Limits<int32_t> {
  static AICF_FN int32_t low() { return int32_t(0x80000000u); }
  static AICF_FN int32_t high() { return 0x7fffffff; }
};
template <>
struct Limits<int64_t> {
  static AICF_FN int64_t low() { return int64_t(0x8000000000000000ull); }
  static AICF_FN int64_t high() { return 0x7fffffffffffffffll; }
};

// Operations: the neutral element and the combination of two.
template <class T>
struct reduce_sum {
  static AICF_FN T neutral() { return T(0); }
  static AICF_FN T apply(T x, T y) { return add(x, y); }
};
template <class T>
struct reduce_prod {
  static AICF_FN T neutral() { return T(1); }
  static AICF_FN T apply(T x, T y) { return mul(x, y); }
};
template <class T>
struct reduce_max {
  static AICF_FN T neutral() { return Limits<T>::low(); }
  static AICF_FN T apply(T x, T y) { return max(x, y); }
};
template <class T>
struct reduce_min {
  static AICF_FN T neutral() { return Limits<T>::high(); }
  static AICF_FN T apply(T x, T y) { return min(x, y); }
};
template <>
struct reduce_max<bool> {
  static AICF_FN bool neutral() { return false; }
  static AICF_FN bool apply(bool x, bool y) { return x || y; }
};
template <>
struct reduce_min<bool> {
  static AICF_FN bool neutral() { return true; }
  static AICF_FN bool apply(bool x, bool y) { return x && y; }
};

template <class T>
AICF_FN T exchange(T x, int distance) {
  return __shfl_xor_sync(0xffffffffu, x, distance);
}
AICF_FN bool exchange(bool x, int distance) { return __shfl_xor_sync(0xffffffffu, int(x), distance) != 0; }

// The N values of one thread, pairwise.
template <class Op, class T, int N>
AICF_FN T combine(const T (&x)[N]) {
  T sums[N];
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] = x[i];
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) sums[i] = Op::apply(sums[i], sums[i + half]);
  return sums[0];
}

// Over kGroup (a power of two up to 32) neighbouring lanes. All lanes of the warp must call it.
template <class Op, int kGroup, class T>
AICF_FN T reduce_lanes(T x) {
#pragma unroll
  for (int distance = 1; distance < kGroup; distance *= 2) x = Op::apply(x, exchange(x, distance));
  return x;
}

// Over a block of kThreads (a multiple of 32) threads. `shared` has room for kThreads / 32 values, used by this call
// alone.
template <class Op, int kThreads, class T>
AICF_FN T reduce_block(T x, T* shared) {
  constexpr int kWarps = kThreads / 32;
  x = reduce_lanes<Op, 32>(x);
  if (kWarps == 1) return x;
  const int lane = threadIdx.x % 32;
  if (lane == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  constexpr int kGroup = kWarps <= 2 ? 2 : kWarps <= 4 ? 4 : kWarps <= 8 ? 8 : kWarps <= 16 ? 16 : 32;
  const int warp = lane % kGroup;
  return reduce_lanes<Op, kGroup>(warp < kWarps ? shared[warp] : Op::neutral());
}

}  // namespace tile
}  // namespace aicf
