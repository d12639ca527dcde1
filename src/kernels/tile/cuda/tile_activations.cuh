// Sigmoid and both forms of GELU as instructions of tile programs, which keep the relative accuracy of their
// negative tails; and forms of them, and of a softmax's powers, for values that end in half types.
#pragma once

#include "tile/cuda/tile_math.cuh"

namespace aicf {
namespace tile {

// n / d for d in [1, 2], n and n / d finite, or NaN: as div by a Divisor, the reciprocal from the hardware's estimate and
// one Newton step.
AICF_FN float sigmoid(float x) {
  const float e = expf(-fabsf(x)), n = x < 0 ? e : 1.0f, d = 1.0f + e;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const float q = n * r;
  return __fmaf_rn(__fmaf_rn(-q, d, n), r, q);
}
// For values that end in half types: few instructions, relative error below 2^-20 for |x| up to 8 and growing with |x|.
AICF_FN float sigmoid_half(float x) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  return r;
}
// The same, for a softmax's powers: relative error below 2^-17, and 1 for 0. Half of x, squared, so that results
// below the least normal number are there.
AICF_FN float exp_half(float x) {
  float root;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x * 0.721347520f));
  return root * root;
}
// The same, for any x: relative error below 2^-22.
AICF_FN float rsqrt_half(float x) {
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
AICF_FN double sigmoid(double x) {
  const double e = ::exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

// x Phi(x) = max(x, 0) - t Q(t), t = |x|, with the upper tail Q(t) = e^(-t^2/2) P(1 / (1 + t/4)): P is
// smooth, and the rounding error of t^2/2 is put back, so the far tail keeps its relative accuracy. The
// coefficients are those of the CPU kernel (kernels/tile/cpu/vector_math.h).
AICF_FN float gelu(float x) {
  const float t = fminf(fabsf(x), 15.0f);
  float u;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(u) : "f"(__fmaf_rn(t, 0.25f, 1.0f)));
  float p = 0.0171772718f;
  p = __fmaf_rn(p, u, -0.0661196581f);
  p = __fmaf_rn(p, u, 0.0596941226f);
  p = __fmaf_rn(p, u, 0.0173834709f);
  p = __fmaf_rn(p, u, 0.0222140668f);
  p = __fmaf_rn(p, u, 0.081366984f);
  p = __fmaf_rn(p, u, 0.07390284f);
  p = __fmaf_rn(p, u, 0.095089568f);
  p = __fmaf_rn(p, u, 0.0995463488f);
  p = __fmaf_rn(p, u, 0.0997449898f);
  p *= u;
  const float half = t * -0.5f, h = t * half;
  const float e = expf(h), lost = __fmaf_rn(t, half, -h);
  const float tail = __fmaf_rn(e, lost, e) * (t * p);
  return __fmaf_rn(x, x > 0 ? 1.0f : 0.0f, -tail);  // NaN for x = -inf, as x * 0 is
}
// For results that are rounded to a half type: Q(t) as a power of two of a polynomial, with few instructions.
AICF_FN float gelu_tail(float x, float t, float exponent) {
  float q;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(q) : "f"(exponent));
  return __fmaf_rn(x, x > 0 ? 1.0f : 0.0f, -(t * q));
}
// log2 Q with the least error (scripts/fit_gelu.py) for t up to 5.8, where t Q(t) is below half the least f16; relative error below 2^-14.
AICF_FN float gelu_f16(float x) {
  const float t = fminf(fabsf(x), 5.8f);
  float p = 2.42292377e-05f;
  p = __fmaf_rn(p, t, -0.000631132881f);
  p = __fmaf_rn(p, t, 0.00731602166f);
  p = __fmaf_rn(p, t, -0.0515160164f);
  p = __fmaf_rn(p, t, -0.460865976f);
  p = __fmaf_rn(p, t, -1.1503545f);
  return gelu_tail(x, t, __fmaf_rn(p, t, -1.00005191f));
}
// The same for t up to 13.3, where Q(t) is below the least normal bf16; relative error below 2^-12.
AICF_FN float gelu_bf16(float x) {
  const float t = fminf(fabsf(x), 13.3f);
  float p = 2.64683958e-08f;
  p = __fmaf_rn(p, t, -1.69719873e-06f);
  p = __fmaf_rn(p, t, 4.68758024e-05f);
  p = __fmaf_rn(p, t, -0.00073659061f);
  p = __fmaf_rn(p, t, 0.00737752373f);
  p = __fmaf_rn(p, t, -0.050677688f);
  p = __fmaf_rn(p, t, -0.462962389f);
  p = __fmaf_rn(p, t, -1.14894035f);
  return gelu_tail(x, t, __fmaf_rn(p, t, -1.00019247f));
}
AICF_FN double gelu(double x) { return 0.5 * x * erfc(-0.70710678118654752 * x); }

// x / (1 + e^(-2v)), v = sqrt(2/pi) (x + 0.044715 x^3); of f32 see tile_functions.cuh.
AICF_FN float gelu_tanh_half(float x) {
  const float v = x * __fmaf_rn(0.0713548139f, x * x, 1.59576917f);
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fabsf(v) * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  return (x < 0 ? x * e : x) * r;
}
// Of neighbours, two of which share the reciprocal of the product of their divisors: that instruction takes as long as eight
// others, and an epilogue's time is that of such ones (512 x 4096 x 4096 took 28.7 us on an H100, 28.3 so). The lesser of e
// and 1 is 1 for NaN, which so stays with its own element.
template <int N>
AICF_FN void gelu_tanh_half(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i + 1 < N; i += 2) {
    float e[2], r;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float v = x[i + j] * __fmaf_rn(0.0713548139f, x[i + j] * x[i + j], 1.59576917f);
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e[j]) : "f"(fabsf(v) * -1.44269504f));
      e[j] = fminf(e[j], 1.0f);
    }
    const float first = 1.0f + e[0], second = 1.0f + e[1];
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(first * second));
    x[i] = (x[i] < 0 ? x[i] * e[0] : x[i]) * (r * second);
    x[i + 1] = (x[i + 1] < 0 ? x[i + 1] * e[1] : x[i + 1]) * (r * first);
  }
  if constexpr (N % 2 == 1) x[N - 1] = gelu_tanh_half(x[N - 1]);
}
// For half results too, where the program also computes gelu's slope: written operation by operation as
// autodiff writes the slope, so that the compiler computes what both share once.
AICF_FN float gelu_tanh_beside_slope(float x) {
  return x * sigmoid_half(x * __fmaf_rn(x * x, 0.0713548139f, 1.59576917f));
}
AICF_FN double gelu_tanh(double x) {
  return x / (1.0 + ::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
}

}  // namespace tile
}  // namespace aicf
