// Element types of memory as types that compute: f16 and bf16 are widened to float when loaded and rounded once when
// stored, every other type is itself. Combining rules as on the CPU: sums and products wrap in the
// element's type, NaN wins maxima and minima.
#pragma once

#include "bits.cuh"

namespace aicf {

template <class T>
struct Element {
  using Value = T;
  __device__ static T load(T stored) { return stored; }
  __device__ static T store(T value) { return value; }
};
template <>
struct Element<f16> {
  using Value = float;
  __device__ static float load(f16 stored) { return to_float(stored); }
  __device__ static f16 store(float value) { return from_float<f16>(value); }
};
template <>
struct Element<bf16> {
  using Value = float;
  __device__ static float load(bf16 stored) { return to_float(stored); }
  __device__ static bf16 store(float value) { return from_float<bf16>(value); }
};

template <class T>
struct IsFloat {
  static constexpr bool value = false;
};
template <>
struct IsFloat<float> {
  static constexpr bool value = true;
};
template <>
struct IsFloat<double> {
  static constexpr bool value = true;
};

template <class T>
struct IsBool {
  static constexpr bool value = false;
};
template <>
struct IsBool<bool> {
  static constexpr bool value = true;
};

template <class V>
__device__ __forceinline__ V wrapping_add(V a, V b) {
  if constexpr (IsBool<V>::value)
    return a || b;
  else if constexpr (IsFloat<V>::value)
    return a + b;
  else
    return V(uint64_t(a) + uint64_t(b));
}
template <class V>
__device__ __forceinline__ V wrapping_mul(V a, V b) {
  if constexpr (IsBool<V>::value)
    return a && b;
  else if constexpr (IsFloat<V>::value)
    return a * b;
  else
    return V(uint64_t(a) * uint64_t(b));
}
template <class V>
__device__ __forceinline__ V larger(V a, V b) {
  return a > b || a != a ? a : b;
}
template <class V>
__device__ __forceinline__ V smaller(V a, V b) {
  return a < b || a != a ? a : b;
}

// V neighbouring elements moved by one access of V · sizeof(T) bytes, up to 16.
template <class T, int V>
struct alignas(V * sizeof(T)) Pack {
  T at[V];
};

}  // namespace aicf
