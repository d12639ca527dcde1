// The instructions of tile programs (kernels/common/tile_ops.def) on one element, by their names there, but for those
// of tile_activations.cuh and tile_functions.cuh. Register types are float, double, int32_t, int64_t and, for masks, bool. Integer
// arithmetic wraps. Elementary functions are those of CUDA's library at full accuracy.
#pragma once

namespace aicf {
namespace tile {

#define AICF_FN __device__ __forceinline__

// ---- approximations of the hardware: relative errors up to 2^-22, of a logarithm between -1 and 1 absolute ones. Numbers
// below the least normal one are 0, but in log2_of_any
#define AICF_APPROXIMATION(name, instruction)                   \
  AICF_FN float name(float x) {                                 \
    float y;                                                    \
    asm(instruction ".f32 %0, %1;" : "=f"(y) : "f"(x));         \
    return y;                                                   \
  }
AICF_APPROXIMATION(exp2_approx, "ex2.approx.ftz")
AICF_APPROXIMATION(log2_approx, "lg2.approx.ftz")
AICF_APPROXIMATION(log2_of_any, "lg2.approx")
AICF_APPROXIMATION(reciprocal_approx, "rcp.approx.ftz")
AICF_APPROXIMATION(sqrt_approx, "sqrt.approx.ftz")
#undef AICF_APPROXIMATION

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
AICF_FN double rem(double x, double y) { return fmod(x, y); }
// The result has the divisor's sign, as in Python.
AICF_FN double mod(double x, double y) {
  const double r = fmod(x, y);
  if (r == 0) return copysign(0.0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}
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
