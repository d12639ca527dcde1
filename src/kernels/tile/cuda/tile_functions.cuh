// Functions of tile programs that are written out here because CUDA's library takes more instructions: for f32 as
// accurate; those named _half for values that end in half types, with a relative error below 2^-15. They call the
// approximations of the hardware, so that a test can compile them for the host. tile_memory.cuh includes this behind
// tile_math.cuh.
#pragma once

namespace aicf {
namespace tile {

// ---- remainders

// fmod(x, y) in one step: a quotient below 2^20 that is never too small and too large by one at most, so the remainder
// and its sum with y are exact.
AICF_FN float rem(float x, float y) {
  const float a = fabsf(x), b = fabsf(y);
  const uint32_t above = __float_as_uint(b) - 0x0d800000u;  // 2^-100
  if (!(above < 0x64000000u && a < b * 1048576.0f)) return fmodf(x, y);  // 2^100 / 2^-100; 2^20
  const float q = truncf(a * (reciprocal_approx(b) * 1.00000048f));
  float r = __fmaf_rn(-q, b, a);
  r = r < 0 ? r + b : r;
  return copysignf(r, x);
}
// The result has the divisor's sign, as in Python.
AICF_FN float mod(float x, float y) {
  const float r = rem(x, y);
  if (r == 0) return copysignf(0.0f, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

// ---- powers

// x^y = 2^(y log2 x) of positive normal x and results: what powf computes, with its constants and bits, without its cases.
// x = 2^e m, and log2 m = 2 atanh(u / 2) / log 2 with u = 2 (m - 1) / (m + 1); u, the logarithm and the exponent are kept
// in two parts.
AICF_FN float pow(float x, float y) {
  constexpr float kScale = 1.44269502f, kScaleLost = 1.92513667e-08f, kWhole = 12582912.0f;  // 1 / log 2; 1.5 2^23
  const uint32_t bits = __float_as_uint(x), whole = (bits - 0x3f3504f3u) & 0xff800000u;      // m from sqrt(1/2) on
  const float m = __uint_as_float(bits - whole), e = float(int32_t(whole)) * 1.1920928955078125e-07f;
  const float f = m - 1.0f, r = reciprocal_approx(m + 1.0f), u = r * (f + f), rest = f - u;
  const float u_lost = r * __fmaf_rn(f, -u, rest + rest), u2 = u * u;
  float p = __fmaf_rn(u2, __uint_as_float(0x3a2c32e4u), 0.0032181653659790755f);
  p = __fmaf_rn(u2, p, 0.018033718690276146f);
  p = u2 * __fmaf_rn(u2, p, 0.12022458761930466f);
  const float high = __fmaf_rn(u, kScale, e);
  float low = __fmaf_rn(u_lost, kScale, __fmaf_rn(u, kScale, e - high));
  low = __fmaf_rn(u, p, __fmaf_rn(u_lost, 3.0f * p, __fmaf_rn(u, kScaleLost, low)));
  const float log = high + low, log_lost = low - (log - high);
  const float exponent = y * log;
  if (!(bits - 0x00800000u < 0x7f000000u && fabsf(exponent) < 125.0f)) return powf(x, y);
  const float shifted = exponent + kWhole;
  const float z = __fmaf_rn(y, log_lost, __fmaf_rn(y, log, -exponent)) + (exponent - (shifted - kWhole));
  float q = __fmaf_rn(z, __uint_as_float(0x391fcb8eu), 0.0013391353422775865f);
  q = __fmaf_rn(z, q, 0.0096188392490148544f);
  q = __fmaf_rn(z, q, 0.055503588169813156f);
  q = __fmaf_rn(z, q, 0.24022644758224487f);
  q = __fmaf_rn(z, q, 0.69314718246459961f);
  return __fmaf_rn(z, q, 1.0f) * __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
}

// ---- GELU by tanh

// x / (1 + e^-y), y = sqrt(8 / pi) (|x| + 0.044715 |x|^3), of the numerator e^-y for negative x. In units of log 2 y is t w
// with w = a + b t^2 in two parts, of which the whole number nearest to t w is subtracted exactly: the negative tail keeps
// its relative accuracy down to 2^-126. Beyond it e^-y is 0, and x 0 is NaN for x = -inf, as by the operations.
AICF_FN float gelu_tanh(float x) {
  constexpr float kA = 2.30220795f, kALost = 2.51366970e-07f, kB = 0.102943242f, kBLost = -2.01619832e-09f;
  constexpr float kWhole = 12582912.0f;                   // 1.5 2^23
  const float t = fminf(fabsf(x), 10.0310888f), t2 = t * t;  // y = 127 log 2
  const float w = __fmaf_rn(kB, t2, kA);                  // kA - w is exact
  float lost = __fmaf_rn(kB, __fmaf_rn(t, t, -t2), __fmaf_rn(kBLost, t2, kALost));
  lost += __fmaf_rn(kB, t2, kA - w);
  const float shifted = __fmaf_rn(t, w, kWhole);
  const float rest = __fmaf_rn(t, lost, __fmaf_rn(t, w, kWhole - shifted));
  const float scale = __uint_as_float(0x3f800000u - (__float_as_uint(shifted) << 23));
  const float e = exp2_approx(-rest) * scale, d = 1.0f + e;
  float r = reciprocal_approx(d);
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  return x * (x > 0 ? 1.0f : e) * r;
}

// ---- for halves. Near 0, where differences would lose digits, the first terms of the series.

constexpr float kLog2E = 1.44269504f, kLog2 = 0.693147181f;

AICF_FN float log1p_series(float x) {
  return x * __fmaf_rn(x, __fmaf_rn(x, __fmaf_rn(x, __fmaf_rn(x, 0.2f, -0.25f), 0.333333333f), -0.5f), 1.0f);
}
constexpr float kLog1pNear = 0.125f;

AICF_FN float log_half(float x) {
  const float above = x - 1.0f;
  return fabsf(above) < kLog1pNear ? log1p_series(above) : log2_of_any(x) * kLog2;
}
AICF_FN float log1p_half(float x) {
  return fabsf(x) < kLog1pNear ? log1p_series(x) : log2_approx(1.0f + x) * kLog2;
}
AICF_FN float expm1_half(float x) {
  const float series = x * __fmaf_rn(x, __fmaf_rn(x, __fmaf_rn(x, 0.0416666667f, 0.166666667f), 0.5f), 1.0f);
  return fabsf(x) < 0.125f ? series : exp2_approx(x * kLog2E) - 1.0f;
}
// Half of each power, so that only results beyond the largest number are infinite.
AICF_FN float sinh_half(float x) {
  const float x2 = x * x, series = x * __fmaf_rn(x2, __fmaf_rn(x2, 0.00833333333f, 0.166666667f), 1.0f);
  const float rise = exp2_approx(__fmaf_rn(x, kLog2E, -1.0f)), fall = exp2_approx(__fmaf_rn(x, -kLog2E, -1.0f));
  return fabsf(x) < 0.5f ? series : rise - fall;
}
AICF_FN float cosh_half(float x) {
  return exp2_approx(__fmaf_rn(x, kLog2E, -1.0f)) + exp2_approx(__fmaf_rn(x, -kLog2E, -1.0f));
}
AICF_FN float tanh_half(float x) {
  const float x2 = x * x, series = x * __fmaf_rn(x2, __fmaf_rn(x2, 0.133333333f, -0.333333333f), 1.0f);
  const float r = reciprocal_approx(1.0f + exp2_approx(x * (2 * kLog2E)));
  return fabsf(x) < 0.25f ? series : __fmaf_rn(r, -2.0f, 1.0f);
}

// log(2 (a + b) / 2), whose sum may be infinite.
AICF_FN float log_sum(float a, float b) { return __fmaf_rn(log2_approx(__fmaf_rn(a, 0.5f, 0.5f * b)), kLog2, kLog2); }

// Squares may be infinite: roots are no more than what min() names.
AICF_FN float asinh_half(float x) {
  const float x2 = x * x, series = x * __fmaf_rn(x2, __fmaf_rn(x2, 0.075f, -0.166666667f), 1.0f);
  const float a = fabsf(x), root = min(sqrt_approx(__fmaf_rn(x, x, 1.0f)), a + 1.0f);
  return a < 0.25f ? series : copysignf(log_sum(a, root), x);
}
AICF_FN float acosh_half(float x) {
  const float above = x - 1.0f, root = min(sqrt_approx(above * (x + 1.0f)), x), sum = above + root;
  return fabsf(sum) < kLog1pNear ? log1p_series(sum) : log_sum(x, root);
}
AICF_FN float atanh_half(float x) {
  const float a = fabsf(x), ratio = (a + a) * reciprocal_approx(1.0f - fminf(a, 2.0f));  // no number beyond 1
  return copysignf(0.5f * log1p_half(ratio), x);
}

}  // namespace tile
}  // namespace aicf
