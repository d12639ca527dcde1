// Conversions between element types in memory and register types of tile programs, of vectors.
#pragma once

#include "bits.cuh"
#include "tile/cuda/tile_activations.cuh"
#include "tile/cuda/tile_functions.cuh"

#define AICF_UNROLL _Pragma("unroll")
#include "tile/cuda/tile_vectors.cuh"

namespace aicf {
namespace tile {

// Memory to register.
AICF_FN float value(f16 x) { return to_float(x); }
AICF_FN float value(bf16 x) { return to_float(x); }
AICF_FN float value(float x) { return x; }
AICF_FN double value(double x) { return x; }
AICF_FN int64_t value(int64_t x) { return x; }
AICF_FN int32_t value(int32_t x) { return x; }
AICF_FN int32_t value(int16_t x) { return x; }
AICF_FN int32_t value(int8_t x) { return x; }
AICF_FN int32_t value(uint8_t x) { return x; }

// Element v of a vector. Two of bf16 are taken from their word: as 16 bits the upper one would cost two
// instructions.
template <class T, int N>
AICF_FN auto lane(const Vec<T, N>& x, int v) {
  return value(x.at[v]);
}
template <int N>
AICF_FN float lane(const Vec<bf16, N>& x, int v) {
  if constexpr (N % 2 != 0) {
    return value(x.at[v]);
  } else {
    const uint32_t word = reinterpret_cast<const uint32_t*>(&x)[v / 2];
    return __uint_as_float(v % 2 != 0 ? word & 0xffff0000u : word << 16);
  }
}

// f64 to f32 with the last bit set if anything was lost: rounding that once more to a narrower type gives
// what rounding the f64 directly would.
AICF_FN float round_to_odd(double x) {
  const float f = float(x);
  if (double(f) == x || x != x) return f;
  uint32_t bits = __float_as_uint(f);
  if (fabs(double(f)) > fabs(x)) --bits;
  return __uint_as_float(bits | 1);
}

// Register to memory, N elements.
template <class T, class R, int N>
AICF_FN void narrow(Vec<T, N>& y, const R (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = T(x[i]);
}
template <int N>
AICF_FN void narrow(Vec<bf16, N>& y, const float (&x)[N]) {
#pragma unroll
  for (int i = 0; i + 1 < N; i += 2)
    asm("{.reg .b32 w; cvt.rn.bf16x2.f32 w, %3, %2; mov.b32 {%0, %1}, w;}"
        : "=h"(y.at[i].bits), "=h"(y.at[i + 1].bits)
        : "f"(x[i]), "f"(x[i + 1]));
  if (N % 2) y.at[N - 1] = from_float<bf16>(x[N - 1]);
}
template <int N>
AICF_FN void narrow(Vec<f16, N>& y, const float (&x)[N]) {
#pragma unroll
  for (int i = 0; i + 1 < N; i += 2)
    asm("{.reg .b32 w; cvt.rn.f16x2.f32 w, %3, %2; mov.b32 {%0, %1}, w;}"
        : "=h"(y.at[i].bits), "=h"(y.at[i + 1].bits)
        : "f"(x[i]), "f"(x[i + 1]));
  if (N % 2) y.at[N - 1] = from_float<f16>(x[N - 1]);
}
template <int N>
AICF_FN void narrow(Vec<bf16, N>& y, const double (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = from_float<bf16>(round_to_odd(x[i]));
}
template <int N>
AICF_FN void narrow(Vec<f16, N>& y, const double (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = from_float<f16>(round_to_odd(x[i]));
}

// Sums of halves, rounded to their type as an f32 sum would be: that holds any sum of two halves to more than
// twice their digits. Operands may be f32, which are rounded first.
AICF_FN uint32_t add_halves(f16, uint32_t x, uint32_t y) {
  uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(x), "r"(y));
  return sum;
}
AICF_FN uint32_t add_halves(bf16, uint32_t x, uint32_t y) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(0x3f803f80u), "r"(y));  // x * 1 + y
  return sum;
}
template <class T, int N>
AICF_FN void halves(Vec<T, N>& y, const float (&x)[N]) {
  narrow(y, x);
}
// Of one element: it repeats.
template <class T, int N, int M>
AICF_FN void halves(Vec<T, N>& y, const T (&x)[M]) {
  static_assert(M == N || M == 1, "as many elements, or one");
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = x[M == 1 ? 0 : i];
}
template <class T, int N, class X, int NX, class Y, int NY>
AICF_FN void add_halves(Vec<T, N>& sum, const X (&x)[NX], const Y (&y)[NY]) {
  Vec<T, N> a, b;
  halves(a, x);
  halves(b, y);
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const int other = i + 1 < N ? i + 1 : i;  // the last of an odd number stands alone
    const uint32_t both = add_halves(T(), uint32_t(a.at[i].bits) | uint32_t(a.at[other].bits) << 16,
                                     uint32_t(b.at[i].bits) | uint32_t(b.at[other].bits) << 16);
    sum.at[i].bits = uint16_t(both);
    if (other > i) sum.at[other].bits = uint16_t(both >> 16);
  }
}

// Two elements of a half type in a word, the first in its low half.
template <class T>
AICF_FN uint32_t pack(float x, float y) {
  const float both[2] = {x, y};
  Vec<T, 2> v;
  narrow(v, both);
  return reinterpret_cast<const uint32_t&>(v);
}
// A sum as an element of a half type that has been in memory, whether or not it was there.
template <class T>
AICF_FN float seen_as(float x) {
  return to_float(from_float<T>(x));
}
template <class T>
AICF_FN float seen_as(T x) {
  return to_float(x);
}

template <class T, class R>
AICF_FN T narrowed(R x) {
  const R one[1] = {x};
  Vec<T, 1> y;
  narrow(y, one);
  return y.at[0];
}

}  // namespace tile
}  // namespace aicf
