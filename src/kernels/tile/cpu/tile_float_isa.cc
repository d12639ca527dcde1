#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/tile/cpu/tile_functions.h"
#include "kernels/tile/cpu/tile_numbers.h"
#include "kernels/tile/cpu/vector_math.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {

// Runs f on full vectors and, for the tail, on a vector padded with zeros: one code path, so an element's
// bits do not depend on its position.
template <class T, class F>
static HWY_INLINE void map1(const TileArgs& args, F f) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  const T* a = static_cast<const T*>(args.a);
  T* dst = static_cast<T*>(args.dst);
  int64_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) hn::StoreU(f(d, hn::LoadU(d, a + i)), d, dst + i);
  if (i == args.n) return;
  HWY_ALIGN T tail[kLanes] = {};
  const size_t bytes = static_cast<size_t>(args.n - i) * sizeof(T);
  memcpy(tail, a + i, bytes);
  hn::Store(f(d, hn::Load(d, tail)), d, tail);
  memcpy(dst + i, tail, bytes);
}

template <class T, class F>
static HWY_INLINE void map2(const TileArgs& args, F f) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  T* dst = static_cast<T*>(args.dst);
  int64_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes)
    hn::StoreU(f(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, dst + i);
  if (i == args.n) return;
  HWY_ALIGN T ta[kLanes] = {};
  HWY_ALIGN T tb[kLanes] = {};
  const size_t bytes = static_cast<size_t>(args.n - i) * sizeof(T);
  memcpy(ta, a + i, bytes);
  memcpy(tb, b + i, bytes);
  hn::Store(f(d, hn::Load(d, ta), hn::Load(d, tb)), d, ta);
  memcpy(dst + i, ta, bytes);
}

// One element at a time: plain expressions that the compiler vectorises, and calls of the C library.
template <class In, class Out, class F>
static HWY_INLINE void each1(const TileArgs& args, F f) {
  const In* a = static_cast<const In*>(args.a);
  Out* dst = static_cast<Out*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = f(a[i]);
}
template <class In, class Out, class F>
static HWY_INLINE void each2(const TileArgs& args, F f) {
  const In* a = static_cast<const In*>(args.a);
  const In* b = static_cast<const In*>(args.b);
  Out* dst = static_cast<Out*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = f(a[i], b[i]);
}

#define AICF_MAP1(expression)                   \
  return [](const TileArgs& args) {             \
    map1<T>(args, [](auto d, auto x) HWY_ATTR { \
      (void)d;                                  \
      return expression;                        \
    });                                         \
  }
#define AICF_MAP2(expression)                           \
  return [](const TileArgs& args) {                     \
    map2<T>(args, [](auto d, auto x, auto y) HWY_ATTR { \
      (void)d;                                          \
      return expression;                                \
    });                                                 \
  }
#define AICF_EACH1(Out, expression) \
  return [](const TileArgs& args) { each1<T, Out>(args, [](T x) { return static_cast<Out>(expression); }); }
#define AICF_EACH2(Out, expression)                                             \
  return [](const TileArgs& args) {                                             \
    each2<T, Out>(args, [](T x, T y) { return static_cast<Out>(expression); }); \
  }

static void is_inf_f32(const TileArgs& args) {
  const int positive = static_cast<int>(args.imm & 1), negative = static_cast<int>(args.imm >> 1 & 1);
  each1<float, int32_t>(
      args, [=](float x) { return ((x == INFINITY) & positive) | ((x == -INFINITY) & negative); });
}
static void is_inf_f64(const TileArgs& args) {
  const int positive = static_cast<int>(args.imm & 1), negative = static_cast<int>(args.imm >> 1 & 1);
  each1<double, int32_t>(args, [=](double x) {
    return ((x == static_cast<double>(INFINITY)) & positive) |
           ((x == -static_cast<double>(INFINITY)) & negative);
  });
}

template <class T>
static T python_mod(T x, T y) {
  T r = static_cast<T>(fmod(static_cast<double>(x), static_cast<double>(y)));  // exact, so also right for f32
  if (r == 0) return static_cast<T>(copysign(0.0, static_cast<double>(y)));
  return (r < 0) != (y < 0) ? r + y : r;
}

template <class D, class V>
static HWY_INLINE V sign_of(D d, V x) {
  const V zero = hn::Zero(d);
  const V one = hn::CopySign(hn::Set(d, 1), x);
  return hn::IfThenElse(hn::Or(hn::Gt(x, zero), hn::Lt(x, zero)), one, x);  // zeros and NaN stay
}

template <class T>
static void select_function(const TileArgs& args) {
  const int32_t* mask = static_cast<const int32_t*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  const T* c = static_cast<const T*>(args.c);
  T* dst = static_cast<T*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) {
    const T yes = b[i], no = c[i];
    dst[i] = mask[i] ? yes : no;
  }
}

static inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
static inline double fused(double a, double b, double c) { return fma(a, b, c); }

template <class T>
static void fma_function(const TileArgs& args) {
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  const T* c = static_cast<const T*>(args.c);
  T* dst = static_cast<T*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = fused(a[i], b[i], c[i]);
}

template <class T, class Word>
static void constant_function(const TileArgs& args) {
  const Word word = static_cast<Word>(args.imm);
  T value;
  memcpy(&value, &word, sizeof value);
  T* dst = static_cast<T*>(args.dst);
  for (int64_t i = 0; i < args.n; ++i) dst[i] = value;
}

// The magnitude's bits rounded to ten after the leading one: a carry goes on into the exponent, as it should.
template <class D, class V>
static HWY_INLINE V round_tf32(D d, V x) {
  constexpr int kCut = sizeof(hn::TFromD<D>) == 8 ? 42 : 13;
  const hn::RebindToUnsigned<D> bits;
  using Word = hn::TFromD<decltype(bits)>;
  constexpr Word kHalf = Word{1} << (kCut - 1);
  const auto rounded = hn::And(hn::Add(hn::BitCast(bits, x), hn::Set(bits, kHalf)),
                               hn::Set(bits, static_cast<Word>(~(2 * kHalf - 1))));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::BitCast(d, rounded));
}

// Operations that are the same text for f32 and f64. Rare functions go through the C library in f64 for both.
template <class T, class Word>
static TileFunction common_function(int op) {
  switch (op) {
    case kOp_constant:
      return constant_function<T, Word>;
    case kOp_neg:
      AICF_MAP1(hn::Neg(x));
    case kOp_abs:
      AICF_MAP1(hn::Abs(x));
    case kOp_sign:
      AICF_MAP1(sign_of(d, x));
    case kOp_sqrt:
      AICF_MAP1(hn::Sqrt(x));
    case kOp_rsqrt:
      AICF_MAP1(hn::Div(hn::Set(d, 1), hn::Sqrt(x)));
    case kOp_floor:
      AICF_EACH1(T, floor(x));
    case kOp_ceil:
      AICF_EACH1(T, ceil(x));
    case kOp_trunc:
      AICF_EACH1(T, trunc(x));
    case kOp_round:
      AICF_EACH1(T, nearbyint(x));
    case kOp_round_tf32:
      AICF_MAP1(round_tf32(d, x));
    case kOp_is_nan:
      AICF_EACH1(int32_t, x != x);
    case kOp_add:
      AICF_MAP2(hn::Add(x, y));
    case kOp_sub:
      AICF_MAP2(hn::Sub(x, y));
    case kOp_mul:
      AICF_MAP2(hn::Mul(x, y));
    case kOp_div:
      AICF_MAP2(hn::Div(x, y));
    case kOp_rem:
      AICF_EACH2(T, fmod(x, y));
    case kOp_mod:
      AICF_EACH2(T, python_mod(x, y));
    case kOp_max:
      AICF_MAP2(max_nan(d, x, y));
    case kOp_min:
      AICF_MAP2(min_nan(d, x, y));
    case kOp_pow:
      AICF_EACH2(T, pow(static_cast<double>(x), static_cast<double>(y)));
    case kOp_atan2:
      AICF_EACH2(T, atan2(static_cast<double>(x), static_cast<double>(y)));
    case kOp_tan:
      AICF_EACH1(T, tan(static_cast<double>(x)));
    case kOp_asin:
      AICF_EACH1(T, asin(static_cast<double>(x)));
    case kOp_acos:
      AICF_EACH1(T, acos(static_cast<double>(x)));
    case kOp_atan:
      AICF_EACH1(T, atan(static_cast<double>(x)));
    case kOp_sinh:
      AICF_EACH1(T, sinh(static_cast<double>(x)));
    case kOp_cosh:
      AICF_EACH1(T, cosh(static_cast<double>(x)));
    case kOp_asinh:
      AICF_EACH1(T, asinh(static_cast<double>(x)));
    case kOp_acosh:
      AICF_EACH1(T, acosh(static_cast<double>(x)));
    case kOp_atanh:
      AICF_EACH1(T, atanh(static_cast<double>(x)));
    case kOp_eq:
      AICF_EACH2(int32_t, x == y);
    case kOp_ne:
      AICF_EACH2(int32_t, x != y);
    case kOp_lt:
      AICF_EACH2(int32_t, x < y);
    case kOp_le:
      AICF_EACH2(int32_t, x <= y);
    case kOp_gt:
      AICF_EACH2(int32_t, x > y);
    case kOp_ge:
      AICF_EACH2(int32_t, x >= y);
    case kOp_select:
      return select_function<T>;
    case kOp_fma:
      return fma_function<T>;
  }
  return nullptr;
}

#if defined(__FMA__)
// Vectors with an element beyond the range of the reduction take the C library for that element.
template <class D, class V>
static HWY_INLINE V sine_any(D d, V x, int32_t quadrant) {
  V r = sine(d, x, quadrant);
  const auto inside = hn::Le(hn::Abs(x), hn::Set(d, kTrigLimit));
  if (HWY_LIKELY(hn::AllTrue(d, inside))) return r;
  HWY_ALIGN float xs[hn::MaxLanes(D())];
  HWY_ALIGN float rs[hn::MaxLanes(D())];
  hn::Store(x, d, xs);
  hn::Store(r, d, rs);
  for (size_t i = 0; i < hn::MaxLanes(D()); ++i)
    if (!(fabsf(xs[i]) <= kTrigLimit)) {
      const double wide = static_cast<double>(xs[i]);
      rs[i] = static_cast<float>(quadrant ? cos(wide) : sin(wide));
    }
  return hn::Load(d, rs);
}
#endif

static TileFunction f32_function(int op) {
  using T = float;
  switch (op) {
    case kOp_exp:
      AICF_MAP1(vector_exp(d, x));
    case kOp_expm1:
      AICF_MAP1(vector_expm1(d, x));
    case kOp_log:
      AICF_MAP1(vector_log(d, x));
    case kOp_log1p:
      AICF_MAP1(vector_log1p(d, x));
#if defined(__FMA__)
    case kOp_sin:
      AICF_MAP1(sine_any(d, x, 0));
    case kOp_cos:
      AICF_MAP1(sine_any(d, x, 1));
#else
    case kOp_sin:
      AICF_EACH1(T, sin(static_cast<double>(x)));
    case kOp_cos:
      AICF_EACH1(T, cos(static_cast<double>(x)));
#endif
    case kOp_tanh:
      AICF_MAP1(vector_tanh(d, x));
    case kOp_erf:
      AICF_MAP1(vector_erf(d, x));
    case kOp_sigmoid:
      AICF_MAP1(vector_sigmoid(d, x));
    case kOp_gelu:
      AICF_MAP1(vector_gelu(d, x));
    case kOp_gelu_tanh:
      AICF_MAP1(vector_gelu_tanh(d, x));
    case kOp_is_inf:
      return is_inf_f32;
    default:
      return common_function<float, uint32_t>(op);
  }
}

static double sigmoid_f64(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

static TileFunction f64_function(int op) {
  using T = double;
  switch (op) {
    case kOp_exp:
      AICF_EACH1(T, exp(x));
    case kOp_expm1:
      AICF_EACH1(T, expm1(x));
    case kOp_log:
      AICF_EACH1(T, log(x));
    case kOp_log1p:
      AICF_EACH1(T, log1p(x));
    case kOp_sin:
      AICF_EACH1(T, sin(x));
    case kOp_cos:
      AICF_EACH1(T, cos(x));
    case kOp_tanh:
      AICF_EACH1(T, tanh(x));
    case kOp_erf:
      AICF_EACH1(T, erf(x));
    case kOp_sigmoid:
      AICF_EACH1(T, sigmoid_f64(x));
    case kOp_gelu:
      AICF_EACH1(T, 0.5 * x * erfc(-0.70710678118654752 * x));
    case kOp_gelu_tanh:
      AICF_EACH1(T, x / (1.0 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))));
    case kOp_is_inf:
      return is_inf_f64;
    default:
      return common_function<double, uint64_t>(op);
  }
}

TileFunction tile_float_function(int op, int type) {
  if (type == kF32) return f32_function(op);
  return type == kF64 ? f64_function(op) : nullptr;
}

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
