// The instructions of tile programs (kernels/tile_ops.def) on one element, by their names there. Register
// types are float, double, int32_t, int64_t and, for masks, bool. Integer arithmetic wraps. Elementary
// functions are those of CUDA's library at full accuracy; gelu, sigmoid and tanh-gelu keep the relative
// accuracy of their negative tails.
#pragma once

namespace aicf {
namespace tile {

#define AICF_FN __device__ __forceinline__

// ---- bits, constants
AICF_FN float constant_f32(uint32_t bits) { return __uint_as_float(bits); }
AICF_FN double constant_f64(uint64_t bits) { return __longlong_as_double((long long)bits); }

// ---- float and double
AICF_FN float neg(float x) { return -x; }
AICF_FN double neg(double x) { return -x; }
AICF_FN float abs(float x) { return fabsf(x); }
AICF_FN double abs(double x) { return fabs(x); }
AICF_FN float sign(float x) { return x > 0 || x < 0 ? copysignf(1.0f, x) : x; }  // zeros and NaN stay
AICF_FN double sign(double x) { return x > 0 || x < 0 ? copysign(1.0, x) : x; }

#define AICF_LIBRARY_1(name)                           \
  AICF_FN float name(float x) { return ::name##f(x); } \
  AICF_FN double name(double x) { return ::name(x); }
AICF_LIBRARY_1(exp)
AICF_LIBRARY_1(expm1)
AICF_LIBRARY_1(log)
AICF_LIBRARY_1(log1p)
AICF_LIBRARY_1(sqrt)
AICF_LIBRARY_1(sin)
AICF_LIBRARY_1(cos)
AICF_LIBRARY_1(tan)
AICF_LIBRARY_1(asin)
AICF_LIBRARY_1(acos)
AICF_LIBRARY_1(atan)
AICF_LIBRARY_1(sinh)
AICF_LIBRARY_1(cosh)
AICF_LIBRARY_1(tanh)
AICF_LIBRARY_1(asinh)
AICF_LIBRARY_1(acosh)
AICF_LIBRARY_1(atanh)
AICF_LIBRARY_1(erf)
AICF_LIBRARY_1(floor)
AICF_LIBRARY_1(ceil)
AICF_LIBRARY_1(trunc)
#undef AICF_LIBRARY_1
AICF_FN float round(float x) { return rintf(x); }  // halves to even
AICF_FN double round(double x) { return rint(x); }
AICF_FN float rsqrt(float x) { return __fdiv_rn(1.0f, __fsqrt_rn(x)); }
AICF_FN double rsqrt(double x) { return 1.0 / ::sqrt(x); }

// Ten bits after the leading one, halves away from zero (cvt.rna.tf32.f32 gives a NaN of its own).
AICF_FN float round_tf32(float x) {
  return x != x ? x : __uint_as_float((__float_as_uint(x) + 0x1000u) & ~0x1fffu);
}
AICF_FN double round_tf32(double x) {
  const uint64_t half = 1ull << 41;
  return x != x ? x : constant_f64((uint64_t(__double_as_longlong(x)) + half) & ~(2 * half - 1));
}

AICF_FN bool is_nan(float x) { return x != x; }
AICF_FN bool is_nan(double x) { return x != x; }
// kSigns: bit 0 positive infinity counts, bit 1 negative.
template <int kSigns>
AICF_FN bool is_inf(float x) {
  const float inf = __uint_as_float(0x7f800000);
  return ((kSigns & 1) && x == inf) || ((kSigns & 2) && x == -inf);
}
template <int kSigns>
AICF_FN bool is_inf(double x) {
  const double inf = constant_f64(0x7ff0000000000000ull);
  return ((kSigns & 1) && x == inf) || ((kSigns & 2) && x == -inf);
}

AICF_FN float add(float x, float y) { return x + y; }
AICF_FN double add(double x, double y) { return x + y; }
AICF_FN float sub(float x, float y) { return x - y; }
AICF_FN double sub(double x, double y) { return x - y; }
AICF_FN float mul(float x, float y) { return x * y; }
AICF_FN double mul(double x, double y) { return x * y; }
AICF_FN float div(float x, float y) { return __fdiv_rn(x, y); }
AICF_FN double div(double x, double y) { return x / y; }
AICF_FN float fma(float x, float y, float z) { return __fmaf_rn(x, y, z); }
AICF_FN double fma(double x, double y, double z) { return __fma_rn(x, y, z); }
AICF_FN float rem(float x, float y) { return fmodf(x, y); }
AICF_FN double rem(double x, double y) { return fmod(x, y); }
// The result has the divisor's sign, as in Python.
AICF_FN float mod(float x, float y) {
  const float r = fmodf(x, y);
  if (r == 0) return copysignf(0.0f, y);
  return (r < 0) != (y < 0) ? r + y : r;
}
AICF_FN double mod(double x, double y) {
  const double r = fmod(x, y);
  if (r == 0) return copysign(0.0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}
AICF_FN float pow(float x, float y) { return powf(x, y); }
AICF_FN double pow(double x, double y) { return ::pow(x, y); }
AICF_FN float atan2(float x, float y) { return atan2f(x, y); }
AICF_FN double atan2(double x, double y) { return ::atan2(x, y); }
// NaN if either is.
AICF_FN float max(float x, float y) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
AICF_FN float min(float x, float y) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
AICF_FN double max(double x, double y) { return x > y || x != x ? x : y; }
AICF_FN double min(double x, double y) { return x < y || x != x ? x : y; }

// Division of many numbers by one: the reciprocal r is computed once, and q = x r is corrected by its
// remainder (P. Markstein, IA-64 and Elementary Functions, 2000, chapter 8), which gives the correctly
// rounded quotient where nothing under- or overflows. Both are scaled by s, so that r is a normal number: x s
// is lost only where the quotient is.
struct Divisor {
  float y, r, s;
  AICF_FN explicit Divisor(float divisor) {
    const float size = fabsf(divisor);
    s = size < 8.67361738e-19f ? 4294967296.0f : size > 1.15292150e18f ? 2.32830644e-10f : 1.0f;  // 2^-60, 2^60
    r = __frcp_rn(divisor * s);
    y = size == __uint_as_float(0x7f800000) ? 0.0f : divisor * s;  // 0 = 0 · y has a remainder then, too
  }
};
AICF_FN float div(float x, const Divisor& d) {
  x *= d.s;
  const float q = x * d.r;
  const float corrected = __fmaf_rn(__fmaf_rn(-q, d.y, x), d.r, q);
  return fabsf(q) < __uint_as_float(0x7f800000) ? corrected
                                                : q;  // infinite and NaN quotients have no remainder
}

// n / d for d in [1, 4]: as above, the reciprocal from the hardware's estimate and one Newton step.
AICF_FN float divide_small(float n, float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const float q = n * r;
  const float corrected = __fmaf_rn(__fmaf_rn(-q, d, n), r, q);
  return fabsf(q) < __uint_as_float(0x7f800000) ? corrected : q;
}

// As divide_small: n and n / d are finite, or NaN.
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

// x / (1 + e^(-2v)), v = sqrt(2/pi) (x + 0.044715 x^3), with 2v kept in two parts for the negative tail.
AICF_FN float gelu_tanh(float x) {
  const float t = fminf(fabsf(x), 15.0f), t2 = t * t;
  // w = 1.5957... + 0.07135... t^2, both constants as sums of two floats, and what it lost.
  const float bt = 0.0713548139f * t2, w = 1.59576917f + bt, back = w - 1.59576917f;
  float w_lost = (1.59576917f - (w - back)) + (bt - back);
  w_lost += __fmaf_rn(0.0713548139f, t2, -bt) + 0.0713548139f * __fmaf_rn(t, t, -t2);
  w_lost += __fmaf_rn(2.3988324e-9f, t2, -4.534068e-8f);
  const float y = t * w, y_lost = __fmaf_rn(t, w_lost, __fmaf_rn(t, w, -y));
  // e^(-y/2) twice, so that t e^(-y) is right where e^(-y) alone would be denormal.
  float half = expf(fmaxf(-0.5f * y, -62.5f));
  half = __fmaf_rn(half, -0.5f * y_lost, half);
  const float e = half * half, numerator = x > 0 ? x : x * 0.0f - t * half * half;
  return x != x ? x : divide_small(numerator, 1.0f + e);
}
AICF_FN float gelu_tanh_half(float x) {
  const float v = x * __fmaf_rn(0.0713548139f, x * x, 1.59576917f);
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fabsf(v) * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  return (x < 0 ? x * e : x) * r;
}
// For half results too, where the program also computes gelu's slope: written operation by operation as
// autodiff writes the slope, so that the compiler computes what both share once.
AICF_FN float gelu_tanh_beside_slope(float x) {
  return x * sigmoid_half(x * __fmaf_rn(x * x, 0.0713548139f, 1.59576917f));
}
AICF_FN double gelu_tanh(double x) {
  return x / (1.0 + ::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
}

// ---- int32_t and int64_t, computed in unsigned types
template <class T>
struct Unsigned;
template <>
struct Unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
  using type = uint64_t;
};
template <class T>
using unsigned_of = typename Unsigned<T>::type;

template <class T>
AICF_FN T integer_div(T x, T y) {
  if (y == 0) return 0;
  return y == -1 ? T(unsigned_of<T>(0) - unsigned_of<T>(x)) : x / y;  // the lowest number / -1 wraps
}
template <class T>
AICF_FN T integer_rem(T x, T y) {
  return y == 0 || y == -1 ? T(0) : T(x % y);
}
template <class T>
AICF_FN T integer_mod(T x, T y) {
  const T r = integer_rem(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
template <class T>
AICF_FN T integer_pow(T x, T y) {
  if (y < 0) return x == 1 ? T(1) : x == -1 ? ((y & 1) ? T(-1) : T(1)) : T(0);
  unsigned_of<T> result = 1, base = unsigned_of<T>(x);
  for (unsigned_of<T> e = unsigned_of<T>(y); e; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return T(result);
}

#define AICF_INTEGER(T)                                                        \
  AICF_FN T neg(T x) { return T(unsigned_of<T>(0) - unsigned_of<T>(x)); }      \
  AICF_FN T abs(T x) { return x < 0 ? neg(x) : x; }                            \
  AICF_FN T sign(T x) { return T((x > 0) - (x < 0)); }                         \
  AICF_FN T bit_not(T x) { return ~x; }                                        \
  AICF_FN T add(T x, T y) { return T(unsigned_of<T>(x) + unsigned_of<T>(y)); } \
  AICF_FN T sub(T x, T y) { return T(unsigned_of<T>(x) - unsigned_of<T>(y)); } \
  AICF_FN T mul(T x, T y) { return T(unsigned_of<T>(x) * unsigned_of<T>(y)); } \
  AICF_FN T div(T x, T y) { return integer_div(x, y); }                        \
  AICF_FN T rem(T x, T y) { return integer_rem(x, y); }                        \
  AICF_FN T mod(T x, T y) { return integer_mod(x, y); }                        \
  AICF_FN T pow(T x, T y) { return integer_pow(x, y); }                        \
  AICF_FN T max(T x, T y) { return x > y ? x : y; }                            \
  AICF_FN T min(T x, T y) { return x < y ? x : y; }                            \
  AICF_FN T bit_and(T x, T y) { return x & y; }                                \
  AICF_FN T bit_or(T x, T y) { return x | y; }                                 \
  AICF_FN T bit_xor(T x, T y) { return x ^ y; }                                \
  /* kWidth: bits of the element type, by which a shift is out of range */     \
  template <int kWidth>                                                        \
  AICF_FN T shift_left(T x, T y) {                                             \
    return y < 0 || y >= kWidth ? T(0) : T(unsigned_of<T>(x) << y);            \
  }                                                                            \
  template <int kWidth>                                                        \
  AICF_FN T shift_right(T x, T y) {                                            \
    return y < 0 || y >= kWidth ? (x < 0 ? T(-1) : T(0)) : T(x >> y);          \
  }
AICF_INTEGER(int32_t)
AICF_INTEGER(int64_t)
#undef AICF_INTEGER

AICF_FN int32_t wrap_i16(int32_t x) { return int32_t(int16_t(x)); }
AICF_FN int32_t wrap_i8(int32_t x) { return int32_t(int8_t(x)); }
AICF_FN int32_t wrap_u8(int32_t x) { return x & 255; }

// ---- masks
AICF_FN bool logical_not(bool x) { return !x; }
AICF_FN bool bit_and(bool x, bool y) { return x && y; }
AICF_FN bool bit_or(bool x, bool y) { return x || y; }
AICF_FN bool bit_xor(bool x, bool y) { return x != y; }

// ---- comparisons and selection, every type
template <class T>
AICF_FN bool eq(T x, T y) {
  return x == y;
}
template <class T>
AICF_FN bool ne(T x, T y) {
  return x != y;
}
template <class T>
AICF_FN bool lt(T x, T y) {
  return x < y;
}
template <class T>
AICF_FN bool le(T x, T y) {
  return x <= y;
}
template <class T>
AICF_FN bool gt(T x, T y) {
  return x > y;
}
template <class T>
AICF_FN bool ge(T x, T y) {
  return x >= y;
}
template <class T>
AICF_FN T select(bool mask, T yes, T no) {
  return mask ? yes : no;
}

// ---- casts: float to integer truncates, saturates and gives 0 for NaN
template <class T>
AICF_FN float to_f32(T x) {
  return float(x);
}
template <class T>
AICF_FN double to_f64(T x) {
  return double(x);
}
template <class T>
AICF_FN bool to_mask(T x) {
  return x != T(0);
}
template <class T>
AICF_FN int32_t to_i32(T x) {
  return int32_t(x);
}
template <class T>
AICF_FN int64_t to_i64(T x) {
  return int64_t(x);
}
template <>
AICF_FN int32_t to_i32(float x) {
  return x != x ? 0 : __float2int_rz(x);
}
template <>
AICF_FN int32_t to_i32(double x) {
  return x != x ? 0 : __double2int_rz(x);
}
template <>
AICF_FN int64_t to_i64(float x) {
  return x != x ? 0 : __float2ll_rz(x);
}
template <>
AICF_FN int64_t to_i64(double x) {
  return x != x ? 0 : __double2ll_rz(x);
}
template <class T>
AICF_FN int32_t clamp_to(T x, int32_t low, int32_t high) {
  if (x != x) return 0;
  return x <= T(low) ? low : x >= T(high) ? high : int32_t(x);
}
template <class T>
AICF_FN int32_t clamp_i16(T x) {
  return clamp_to(x, -32768, 32767);
}
template <class T>
AICF_FN int32_t clamp_i8(T x) {
  return clamp_to(x, -128, 127);
}
template <class T>
AICF_FN int32_t clamp_u8(T x) {
  return clamp_to(x, 0, 255);
}
AICF_FN float round_f16(float x) { return to_float(from_float<f16>(x)); }
AICF_FN float round_bf16(float x) { return to_float(from_float<bf16>(x)); }

}  // namespace tile
}  // namespace aicf
