// Elementary functions on Highway vectors of f32, for *_isa.cc files only: everything lies in the namespace
// of the ISA level. Each takes every float (denormals, infinities, NaN) and is within about 2 ulp of the
// exact value where fused multiply-add exists, 4 ulp elsewhere. An element's result never depends on its
// neighbours. Polynomials are minimax fits in f64 (weighted least squares with reweighting) of the function
// named beside them.
#pragma once

#include <math.h>
#include <stdint.h>

#include <hwy/highway.h>

#include "kernels/tile/cpu/gelu_table.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class V>
static HWY_INLINE V horner(V, V c) {
  return c;
}
template <class V, class... Rest>
static HWY_INLINE V horner(V x, V c, Rest... rest) {
  return hn::MulAdd(horner(x, rest...), x, c);
}

// a * b - round(a * b), the part that the product lost.
template <class D, class V>
static HWY_INLINE V product_error(D d, V a, V b, V product) {
#if defined(__FMA__)
  (void)d;
  return hn::MulSub(a, b, product);
#else
  // Dekker: halves of 12 bits have exact products.
  const hn::RebindToSigned<D> di;
  const V mask = hn::BitCast(d, hn::Set(di, static_cast<int32_t>(0xfffff000)));
  const V ah = hn::And(a, mask), bh = hn::And(b, mask);
  const V al = hn::Sub(a, ah), bl = hn::Sub(b, bh);
  return hn::Add(hn::Add(hn::Sub(hn::Mul(ah, bh), product), hn::Add(hn::Mul(ah, bl), hn::Mul(al, bh))),
                 hn::Mul(al, bl));
#endif
}

// Whether Max and Min are maxps and minps, which give the second operand if either is NaN, and of two equals.
// Of other targets, emulated vectors give the number, NEON gives NaN.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define AICF_MAX_GIVES_SECOND 1
#else
#define AICF_MAX_GIVES_SECOND 0
#endif

// x limited to >= low or <= high; NaN stays NaN.
#if !AICF_MAX_GIVES_SECOND
template <class D, class V>
static HWY_INLINE V at_least(D d, V x, float low) {
  const V limit = hn::Set(d, low);
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
}
template <class D, class V>
static HWY_INLINE V at_most(D d, V x, float high) {
  const V limit = hn::Set(d, high);
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
}
#else
template <class D, class V>
static HWY_INLINE V at_least(D d, V x, float low) {
  return hn::Max(hn::Set(d, low), x);
}
template <class D, class V>
static HWY_INLINE V at_most(D d, V x, float high) {
  return hn::Min(hn::Set(d, high), x);
}
#endif

// x = n ln 2 + r with |r| <= ln 2 / 2: r, and n both as float and in the low bits of `shifted`.
template <class V>
struct ExpReduction {
  V r, n, shifted;
};

constexpr float kExpMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(x) in the low mantissa bits

template <class D, class V>
static HWY_INLINE ExpReduction<V> reduce_exp(D d, V x) {
  const V magic = hn::Set(d, kExpMagic);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  // The first part of ln 2 has 15 bits, so that n times it is exact without FMA too.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  return {r, n, shifted};
}

// e^r - 1 on the reduced range.
template <class D, class V>
static HWY_INLINE V expm1_reduced(D d, V r) {
  const V q = horner(r, hn::Set(d, 0.500000004f), hn::Set(d, 0.166666664f), hn::Set(d, 0.041666361f),
                     hn::Set(d, 0.00833338935f), hn::Set(d, 0.00139406193f), hn::Set(d, 0.000198458764f));
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

// v * 2^n for -190 <= n <= 63, rounding once more if the result is denormal.
template <class D, class V>
static HWY_INLINE V scale_down(D d, V v, const ExpReduction<V>& red) {
#if HWY_TARGET == HWY_AVX3
  (void)d;
  return V{_mm512_scalef_ps(v.raw, red.n.raw)};
#else
  const hn::RebindToSigned<D> di;
  const auto bits = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, red.shifted)), hn::Set(di, (127 + 64) << 23));
  return hn::Mul(hn::Mul(v, hn::BitCast(d, bits)), hn::Set(d, 5.42101086e-20f));  // 2^-64
#endif
}

// e^r on the reduced range.
template <class D, class V>
static HWY_INLINE V exp_reduced(D d, V r) {
  const V one = hn::Set(d, 1.0f);
  return horner(r, one, one, hn::Set(d, 0.499999934f), hn::Set(d, 0.166665204f), hn::Set(d, 0.0416683913f),
                hn::Set(d, 0.00836875049f), hn::Set(d, 0.0013814529f));
}

// e^x for x <= 0 (or NaN).
template <class D, class V>
static HWY_INLINE V exp_negative(D d, V x) {
  const auto red = reduce_exp(d, at_least(d, x, -104.0f));
  return scale_down(d, exp_reduced(d, red.r), red);
}

template <class D, class V>
static HWY_INLINE V vector_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto red = reduce_exp(d, at_most(d, at_least(d, x, -104.0f), 89.0f));
  const V p = exp_reduced(d, red.r);
  // 2^n in two factors: n reaches from -150 to 128.
  const auto n = hn::Sub(hn::BitCast(di, red.shifted), hn::Set(di, 0x4b400000));
  const auto half = hn::ShiftRight<1>(n);
  const auto bias = hn::Set(di, 127);
  const V s1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V s2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(p, s1), s2);
}

// e^x - 1 for -inf <= x <= 0 (or NaN).
template <class D, class V>
static HWY_INLINE V expm1_negative(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto red = reduce_exp(d, at_least(d, x, -40.0f));
  const V p = expm1_reduced(d, red.r);
  const V s =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, red.shifted)), hn::Set(di, 127 << 23)));
  return hn::MulAdd(s, p, hn::Sub(s, hn::Set(d, 1.0f)));
}

template <class D, class V>
static HWY_INLINE V vector_expm1(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto red = reduce_exp(d, at_most(d, at_least(d, x, -40.0f), 89.0f));
  const V p = expm1_reduced(d, red.r);
  // 2 (2^(n-1) p + (2^(n-1) - 1/2)): 2^128 is out of range.
  const V s =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, red.shifted)), hn::Set(di, 126 << 23)));
  const V y = hn::MulAdd(s, p, hn::Sub(s, hn::Set(d, 0.5f)));
  // For n = 0 the doubling would lose denormal results; the sign of zero is that of x.
  const V r = hn::IfThenElse(hn::Eq(red.n, hn::Zero(d)), p, hn::Add(y, y));
  return hn::CopySign(r, x);
}

// log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)], plus e ln 2.
template <class D, class V>
static HWY_INLINE V log_reduced(D d, V f, V e) {
  const V p = horner(f, hn::Set(d, 0.333333126f), hn::Set(d, -0.250000096f), hn::Set(d, 0.200021188f),
                     hn::Set(d, -0.166679956f), hn::Set(d, 0.142195506f), hn::Set(d, -0.12405592f),
                     hn::Set(d, 0.118881776f), hn::Set(d, -0.116756388f), hn::Set(d, 0.0674659182f));
  const V f2 = hn::Mul(f, f);
  V y = hn::Mul(hn::Mul(f2, f), p);
  y = hn::MulAdd(e, hn::Set(d, 1.42860677e-6f), y);
  y = hn::NegMulAdd(hn::Set(d, 0.5f), f2, y);
  y = hn::Add(f, y);
  return hn::MulAdd(e, hn::Set(d, 0.693145752f), y);
}

// r where 0 < x < inf; the limits and NaN elsewhere.
template <class D, class V>
static HWY_INLINE V log_special(D d, V x, V r) {
  const V inf = hn::Set(d, INFINITY), zero = hn::Zero(d);
  const V edge =
      hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), hn::Sub(x, x));  // inf - inf = NaN, handled below
  const V outside =
      hn::IfThenElse(hn::Eq(x, inf), inf, hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, NAN), edge));
  return hn::IfThenElse(hn::And(hn::Gt(x, zero), hn::Lt(x, inf)), r, outside);
}

template <class D, class V>
static HWY_INLINE V vector_log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto tiny = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
  const V scaled = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 8388608.0f)), x);
  const V bias = hn::IfThenElse(tiny, hn::Set(d, -23.0f), hn::Zero(d));
  const auto bits = hn::BitCast(di, scaled);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));  // m below starts at sqrt(1/2)
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
  const V r = log_reduced(d, hn::Sub(m, hn::Set(d, 1.0f)), hn::Add(hn::ConvertTo(d, e), bias));
  return log_special(d, x, r);
}

template <class D, class V>
static HWY_INLINE V vector_log1p(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  const V u = hn::Add(one, x);
  // What the sum lost, by the larger operand first.
  const V lost = hn::IfThenElse(hn::Gt(x, one), hn::Sub(one, hn::Sub(u, x)), hn::Sub(x, hn::Sub(u, one)));
  const auto bits = hn::BitCast(di, u);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
  // 2^-e in two steps would be exact too; e <= 128 keeps 2^(-e) representable as a denormal only at 127 and
  // above, where the lost part is zero.
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Max(hn::Sub(hn::Set(di, 127), e), hn::Zero(di))));
  const V f = hn::MulAdd(lost, scale, hn::Sub(m, one));
  const V r = log_special(d, u, log_reduced(d, f, hn::ConvertTo(d, e)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, r);
}

template <class D, class V>
static HWY_INLINE V vector_erf(D d, V x) {
  const V t = at_most(d, hn::Abs(x), 4.0f), s = hn::Mul(x, x);
  // erf(x) / x - 1
  const V near = horner(s, hn::Set(d, 0.128379167f), hn::Set(d, -0.37612635f), hn::Set(d, 0.11283715f),
                        hn::Set(d, -0.0268605084f), hn::Set(d, 0.00520385912f), hn::Set(d, -0.000817563883f),
                        hn::Set(d, 8.51310218e-05f));
  // log(erfc(x)) / x
  const V far = horner(t, hn::Set(d, -1.12854144f), hn::Set(d, -0.63567315f), hn::Set(d, -0.105169495f),
                       hn::Set(d, 0.0225756161f), hn::Set(d, -0.00286912121f), hn::Set(d, 2.74352457e-05f),
                       hn::Set(d, 4.99404649e-05f), hn::Set(d, -5.29700116e-06f));
  const V tail = hn::Sub(hn::Set(d, 1.0f), exp_negative(d, hn::Mul(t, far)));
  return hn::IfThenElse(hn::Lt(t, hn::Set(d, 0.9f)), hn::MulAdd(x, near, x), hn::CopySign(tail, x));
}

template <class D, class V>
static HWY_INLINE V vector_tanh(D d, V x) {
  const V t = hn::Abs(x);
  const V e = expm1_negative(d, hn::Mul(t, hn::Set(d, -2.0f)));
  return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, 2.0f))), x);
}

template <class D, class V>
static HWY_INLINE V vector_sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp_negative(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

// x Phi(x) = max(x, 0) - t Q(t), t = |x|, with the upper tail Q(t) = e^(-t^2/2) P(t): P is smooth, t^2 is
// kept with its rounding error, and t P (1 + p) is formed before the power of two, so the far tail keeps its
// relative accuracy.
template <class D, class V>
static HWY_INLINE V gelu_by_exp(D d, V x) {
  const V t = at_most(d, hn::Abs(x), 15.0f);
  const V u = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(t, hn::Set(d, 0.25f), hn::Set(d, 1.0f)));
  const V p =
      hn::Mul(u, horner(u, hn::Set(d, 0.0997449898f), hn::Set(d, 0.0995463488f), hn::Set(d, 0.095089568f),
                        hn::Set(d, 0.07390284f), hn::Set(d, 0.081366984f), hn::Set(d, 0.0222140668f),
                        hn::Set(d, 0.0173834709f), hn::Set(d, 0.0596941226f), hn::Set(d, -0.0661196581f),
                        hn::Set(d, 0.0171772718f)));
  const V half = hn::Mul(t, hn::Set(d, -0.5f));
  const V h = hn::Mul(t, half);
  auto red = reduce_exp(d, h);
  red.r = hn::Add(red.r, product_error(d, t, half, h));
  const V tp = hn::Mul(t, p);
  const V tail = scale_down(d, hn::MulAdd(tp, expm1_reduced(d, red.r), tp), red);
  // x * 0 is NaN for x = -inf, as in x Phi(x).
  const V zero = hn::Zero(d);
  return hn::Sub(hn::IfThenElse(hn::Gt(x, zero), x, hn::Mul(x, zero)), tail);
}

#if HWY_TARGET == HWY_AVX3
// table[i] for the indices 0 <= i < 32.
template <class VI>
static HWY_INLINE hn::Vec512<float> look_up(const float* table, VI i) {
  return hn::Vec512<float>{_mm512_permutex2var_ps(_mm512_load_ps(table), i.raw, _mm512_load_ps(table + 16))};
}

// t Q(t) for 0 <= t < kGeluTableEnd.
template <class D, class V>
static HWY_INLINE V gelu_tail(D d, V t) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, kExpMagic);
  const V shifted = hn::MulAdd(t, hn::Set(d, kGeluPerSpacing), magic);
  const V r = hn::NegMulAdd(hn::Sub(shifted, magic), hn::Set(d, kGeluSpacing), t);  // exact
  const auto node = hn::And(hn::BitCast(di, shifted), hn::Set(di, kGeluNodes - 1));
  V q = look_up(kGeluTail[kGeluCoefficients - 1], node);
  for (int p = kGeluCoefficients - 2; p >= 0; --p) q = hn::MulAdd(q, r, look_up(kGeluTail[p], node));
  return hn::Mul(t, q);
}
#endif

// Elements near 0, which most are, cost a third of the others where a table fits in two registers.
template <class D, class V>
static HWY_INLINE V vector_gelu(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  const V t = hn::Abs(x);
  const auto far = hn::Not(hn::Lt(t, hn::Set(d, kGeluTableEnd)));  // NaN too
  const V near = hn::Sub(hn::Max(hn::Zero(d), x), gelu_tail(d, t));
  return HWY_LIKELY(hn::AllFalse(d, far)) ? near : hn::IfThenElse(far, gelu_by_exp(d, x), near);
#else
  return gelu_by_exp(d, x);
#endif
}

// x / (1 + e^(-2v)), v = sqrt(2/pi) (x + 0.044715 x^3); 2v is kept in two parts for the negative tail.
template <class D, class V>
static HWY_INLINE V vector_gelu_tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f), zero = hn::Zero(d);
  const V t = at_most(d, hn::Abs(x), 15.0f);
  // 2 sqrt(2/pi) and 2 sqrt(2/pi) 0.044715 as sums of two floats.
  const V a = hn::Set(d, 1.59576917f), a_low = hn::Set(d, -4.534068e-8f);
  const V b = hn::Set(d, 0.0713548139f), b_low = hn::Set(d, 2.3988324e-9f);
  const V t2 = hn::Mul(t, t), t2_low = product_error(d, t, t, t2);
  const V bt = hn::Mul(b, t2);
  const V bt_low = hn::MulAdd(b, t2_low, hn::MulAdd(b_low, t2, product_error(d, b, t2, bt)));
  const V w = hn::Add(a, bt);
  const V w_back = hn::Sub(w, a);  // two-sum
  const V w_low =
      hn::Add(hn::Add(hn::Sub(a, hn::Sub(w, w_back)), hn::Sub(bt, w_back)), hn::Add(a_low, bt_low));
  const V y = hn::Mul(t, w);
  const V y_low = hn::MulAdd(t, w_low, product_error(d, t, w, y));
  // Beyond 140 even t e^(-y) is zero in f32.
  auto red = reduce_exp(d, at_least(d, hn::Neg(y), -125.0f));
  red.r = hn::Sub(red.r, y_low);
  const V p = expm1_reduced(d, red.r);
  const V e = scale_down(d, hn::Add(one, p), red);
  const V te = scale_down(d, hn::MulAdd(t, p, t), red);
  const V numerator = hn::IfThenElse(hn::Gt(x, zero), x, hn::Sub(hn::Mul(x, zero), te));
  return hn::Div(numerator, hn::Add(one, e));
}

// Sine of x + quadrant pi / 2 for |x| <= kTrigLimit.
constexpr float kTrigLimit = 8192.0f;

#if defined(__FMA__)
template <class D, class V>
static HWY_INLINE V sine(D d, V x, int32_t quadrant) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, kExpMagic);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.636619772f), magic);
  const V n = hn::Sub(shifted, magic);
  // pi / 2 in three floats.
  V r = hn::NegMulAdd(n, hn::Set(d, 1.57079637f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -4.37113883e-8f), r);
  r = hn::NegMulAdd(n, hn::Set(d, -1.71512489e-15f), r);
  const auto q = hn::Add(hn::BitCast(di, shifted), hn::Set(di, quadrant));
  const V s = hn::Mul(r, r);
  const V sp = horner(s, hn::Set(d, -0.166666666f), hn::Set(d, 0.00833332928f), hn::Set(d, -0.000198393044f),
                      hn::Set(d, 2.71804638e-06f));
  // r of -0 is +0: it has lost its sign in the sums.
  const V sin_r = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::MulAdd(hn::Mul(r, s), sp, r));
  const V cp = horner(s, hn::Set(d, 0.0416666666f), hn::Set(d, -0.00138888835f), hn::Set(d, 2.47994515e-05f),
                      hn::Set(d, -2.7205045e-07f));
  const V cos_r = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(s, s), cp, hn::Mul(s, hn::Set(d, -0.5f))));
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(q, hn::Set(di, 1)), hn::Set(di, 1)));
  const V sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(q, hn::Set(di, 2))));
  return hn::Xor(hn::IfThenElse(odd, cos_r, sin_r), sign);
}
#endif

// NaN if either is; y of two equals.
#if !AICF_MAX_GIVES_SECOND
template <class D, class V>
static HWY_INLINE V max_nan(D, V x, V y) {
  return hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y);
}
template <class D, class V>
static HWY_INLINE V min_nan(D, V x, V y) {
  return hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y);
}
#else
template <class D, class V>
static HWY_INLINE V max_nan(D, V x, V y) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Max(x, y), x);
}
template <class D, class V>
static HWY_INLINE V min_nan(D, V x, V y) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Min(x, y), x);
}
#endif

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
