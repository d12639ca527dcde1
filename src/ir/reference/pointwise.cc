// Pointwise ops: a scalar function per op over broadcast operands.
#include <bit>
#include <cmath>
#include <limits>

#include "ir/reference/contractions.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename Out, typename In, typename Function>
void apply1(std::vector<Out>& out, const std::vector<In>& x, Function function) {
  for (size_t k = 0; k < out.size(); ++k) out[k] = static_cast<Out>(function(x[k]));
}

template <typename Out, typename In, typename Function>
void apply2(std::vector<Out>& out, const std::vector<In>& x, const std::vector<In>& y, Function function) {
  for (size_t k = 0; k < out.size(); ++k) out[k] = static_cast<Out>(function(x[k], y[k]));
}

// Float operand and result.
template <typename Function>
RefResults map_float(const RefContext& c, Function function) {
  RefTensor out = c.result();
  apply1(out.f, expand(c.x(0), out.sizes).f, function);
  return one(std::move(out));
}

// Result of the operand's dtype; one function for floats, one for integers.
template <typename FloatFunction, typename IntFunction>
RefResults map1(const RefContext& c, FloatFunction float_function, IntFunction int_function) {
  if (c.x(0).is_float()) return map_float(c, float_function);
  RefTensor out = c.result();
  apply1(out.i, expand(c.x(0), out.sizes).i, int_function);
  return one(std::move(out));
}

template <typename FloatFunction, typename IntFunction>
RefResults map2(const RefContext& c, FloatFunction float_function, IntFunction int_function) {
  RefTensor out = c.result();
  const RefTensor x = expand(c.x(0), out.sizes), y = expand(c.x(1), out.sizes);
  if (x.is_float())
    apply2(out.f, x.f, y.f, float_function);
  else
    apply2(out.i, x.i, y.i, int_function);
  return one(std::move(out));
}

// Bool result from operands of any dtype.
template <typename Function>
RefResults compare(const RefContext& c, Function function) {
  RefTensor out = c.result();
  const RefTensor x = expand(c.x(0), out.sizes), y = expand(c.x(1), out.sizes);
  if (x.is_float())
    apply2(out.i, x.f, y.f, function);
  else
    apply2(out.i, x.i, y.i, function);
  return one(std::move(out));
}

template <typename Function>
RefResults test_float(const RefContext& c, Function function) {
  RefTensor out = c.result();
  apply1(out.i, expand(c.x(0), out.sizes).f, function);
  return one(std::move(out));
}

double no_float(double, double) { return kNaN; }  // the float side of ops that take none

int64_t int_neg(int64_t x) { return wrap_mul(x, -1); }

int64_t int_div(int64_t x, int64_t y) {
  if (y == 0) return 0;
  return y == -1 ? int_neg(x) : x / y;
}

int64_t int_rem(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }

int64_t int_mod(int64_t x, int64_t y) {
  const int64_t remainder = int_rem(x, y);
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}

double float_mod(double x, double y) {
  const double remainder = std::fmod(x, y);
  if (remainder == 0) return std::copysign(0.0, y);
  return (remainder < 0) != (y < 0) ? remainder + y : remainder;
}

int64_t int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t power = 1;
  for (; exponent != 0; exponent /= 2, base = wrap_mul(base, base))
    if (exponent % 2 != 0) power = wrap_mul(power, base);
  return power;
}

template <typename T>
int sign_of(T x) {
  return (x > 0) - (x < 0);
}

int64_t saturate(double x, DType dtype) {
  if (std::isnan(x)) return 0;
  const double whole = std::trunc(x);
  // Of i64, the highest bound rounds up to 2^63 as a double, hence >=.
  if (whole >= static_cast<double>(highest(dtype))) return highest(dtype);
  if (whole <= static_cast<double>(lowest(dtype))) return lowest(dtype);
  return static_cast<int64_t>(whole);
}

// The nearest double below in magnitude with its last bit set if inexact (round to odd), so that a second
// rounding to a narrower type gives what one rounding of the integer would.
double to_double_odd(int64_t x) {
  const double nearest = static_cast<double>(x);
  if (nearest == 0x1p63) return std::bit_cast<double>(std::bit_cast<uint64_t>(nearest) - 1);
  const int64_t back = static_cast<int64_t>(nearest);
  if (back == x) return nearest;
  uint64_t bits = std::bit_cast<uint64_t>(nearest);
  const bool away = x > 0 ? back > x : back < x;
  if (away) --bits;
  return std::bit_cast<double>(bits | 1);
}

}  // namespace

#define AICF_REF_FLOAT(name, expression)                                \
  RefResults ref_##name(const RefContext& c) {                          \
    return map_float(c, [](double x) -> double { return expression; }); \
  }

AICF_REF_FLOAT(exp, std::exp(x))
AICF_REF_FLOAT(expm1, std::expm1(x))
AICF_REF_FLOAT(log, std::log(x))
AICF_REF_FLOAT(log1p, std::log1p(x))
AICF_REF_FLOAT(sqrt, std::sqrt(x))
AICF_REF_FLOAT(rsqrt, 1 / std::sqrt(x))
AICF_REF_FLOAT(sin, std::sin(x))
AICF_REF_FLOAT(cos, std::cos(x))
AICF_REF_FLOAT(tan, std::tan(x))
AICF_REF_FLOAT(asin, std::asin(x))
AICF_REF_FLOAT(acos, std::acos(x))
AICF_REF_FLOAT(atan, std::atan(x))
AICF_REF_FLOAT(sinh, std::sinh(x))
AICF_REF_FLOAT(cosh, std::cosh(x))
AICF_REF_FLOAT(tanh, std::tanh(x))
AICF_REF_FLOAT(asinh, std::asinh(x))
AICF_REF_FLOAT(acosh, std::acosh(x))
AICF_REF_FLOAT(atanh, std::atanh(x))
AICF_REF_FLOAT(erf, std::erf(x))
AICF_REF_FLOAT(floor, std::floor(x))
AICF_REF_FLOAT(ceil, std::ceil(x))
AICF_REF_FLOAT(trunc, std::trunc(x))
AICF_REF_FLOAT(round, std::nearbyint(x))  // the default rounding mode is to even
AICF_REF_FLOAT(sigmoid, 1 / (1 + std::exp(-x)))
AICF_REF_FLOAT(silu, x / (1 + std::exp(-x)))
AICF_REF_FLOAT(softplus, std::isnan(x) ? x : std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))))

RefResults ref_round_tf32(const RefContext& c) {
  return map_float(c, [&](double x) { return round_tf32(x, c.x(0).dtype); });
}

RefResults ref_neg(const RefContext& c) {
  return map1(c, [](double x) { return -x; }, int_neg);
}

RefResults ref_abs(const RefContext& c) {
  return map1(c, [](double x) { return std::fabs(x); }, [](int64_t x) { return x < 0 ? int_neg(x) : x; });
}

RefResults ref_sign(const RefContext& c) {
  return map1(
      c, [](double x) { return std::isnan(x) ? x : sign_of(x); }, [](int64_t x) { return sign_of(x); });
}

RefResults ref_is_nan(const RefContext& c) {
  return test_float(c, [](double x) { return std::isnan(x); });
}

RefResults ref_is_inf(const RefContext& c) {
  const bool positive = c.attrs().get_bool("positive"), negative = c.attrs().get_bool("negative");
  return test_float(c, [=](double x) { return std::isinf(x) && (x > 0 ? positive : negative); });
}

RefResults ref_logical_not(const RefContext& c) {
  return map1(c, [](double x) { return x; }, [](int64_t x) { return x == 0; });
}

RefResults ref_bit_not(const RefContext& c) {
  return map1(c, [](double x) { return x; }, [](int64_t x) { return ~x; });
}

RefResults ref_cast(const RefContext& c) {
  RefTensor out = c.result();
  const RefTensor x = expand(c.x(0), out.sizes);
  const bool narrows = c.round_to_dtype() && out.dtype != DType::f64;
  if (out.is_float() && x.is_float())
    out.f = x.f;
  else if (out.is_float())
    apply1(out.f, x.i, [&](int64_t v) { return narrows ? to_double_odd(v) : static_cast<double>(v); });
  else if (x.is_float() && out.dtype == DType::boolean)
    apply1(out.i, x.f, [](double v) { return v != 0; });
  else if (x.is_float())
    apply1(out.i, x.f, [&](double v) { return saturate(v, out.dtype); });
  else
    out.i = x.i;
  return one(std::move(out));
}

RefResults ref_add(const RefContext& c) {
  return map2(c, [](double x, double y) { return x + y; }, wrap_add);
}

RefResults ref_sub(const RefContext& c) {
  return map2(
      c, [](double x, double y) { return x - y; },
      [](int64_t x, int64_t y) { return wrap_add(x, int_neg(y)); });
}

RefResults ref_mul(const RefContext& c) {
  return map2(c, [](double x, double y) { return x * y; }, wrap_mul);
}

RefResults ref_div(const RefContext& c) {
  return map2(c, [](double x, double y) { return x / y; }, int_div);
}

RefResults ref_rem(const RefContext& c) {
  return map2(c, [](double x, double y) { return std::fmod(x, y); }, int_rem);
}

RefResults ref_mod(const RefContext& c) { return map2(c, float_mod, int_mod); }

RefResults ref_pow(const RefContext& c) {
  return map2(c, [](double x, double y) { return std::pow(x, y); }, int_pow);
}

RefResults ref_atan2(const RefContext& c) {
  return map2(
      c, [](double y, double x) { return std::atan2(y, x); }, [](int64_t, int64_t) { return int64_t{0}; });
}

RefResults ref_max(const RefContext& c) {
  return map2(c, max_of, [](int64_t x, int64_t y) { return x > y ? x : y; });
}

RefResults ref_min(const RefContext& c) {
  return map2(c, min_of, [](int64_t x, int64_t y) { return x < y ? x : y; });
}

RefResults ref_bit_and(const RefContext& c) {
  return map2(c, no_float, [](int64_t x, int64_t y) { return x & y; });
}

RefResults ref_bit_or(const RefContext& c) {
  return map2(c, no_float, [](int64_t x, int64_t y) { return x | y; });
}

RefResults ref_bit_xor(const RefContext& c) {
  return map2(c, no_float, [](int64_t x, int64_t y) { return x ^ y; });
}

RefResults ref_shift_left(const RefContext& c) {
  const int64_t bits = 8 * dtype_bytes(c.x(0).dtype);
  return map2(c, no_float, [bits](int64_t x, int64_t y) {
    return y < 0 || y >= bits ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << y);
  });
}

RefResults ref_shift_right(const RefContext& c) {
  const int64_t bits = 8 * dtype_bytes(c.x(0).dtype);
  return map2(c, no_float,
              [bits](int64_t x, int64_t y) { return y < 0 || y >= bits ? (x < 0 ? -1 : 0) : x >> y; });
}

RefResults ref_eq(const RefContext& c) {
  return compare(c, [](auto x, auto y) { return x == y; });
}

RefResults ref_ne(const RefContext& c) {
  return compare(c, [](auto x, auto y) { return x != y; });
}

RefResults ref_lt(const RefContext& c) {
  return compare(c, [](auto x, auto y) { return x < y; });
}

RefResults ref_le(const RefContext& c) {
  return compare(c, [](auto x, auto y) { return x <= y; });
}

RefResults ref_gt(const RefContext& c) {
  return compare(c, [](auto x, auto y) { return x > y; });
}

RefResults ref_ge(const RefContext& c) {
  return compare(c, [](auto x, auto y) { return x >= y; });
}

RefResults ref_select(const RefContext& c) {
  RefTensor out = c.result();
  const RefTensor condition = expand(c.x(0), out.sizes), x = expand(c.x(1), out.sizes),
                  y = expand(c.x(2), out.sizes);
  for (size_t k = 0; k < condition.i.size(); ++k) {
    if (out.is_float())
      out.f[k] = condition.i[k] ? x.f[k] : y.f[k];
    else
      out.i[k] = condition.i[k] ? x.i[k] : y.i[k];
  }
  return one(std::move(out));
}

RefResults ref_relu(const RefContext& c) {
  return map1(c, [](double x) { return max_of(x, 0); }, [](int64_t x) { return x > 0 ? x : 0; });
}

RefResults ref_leaky_relu(const RefContext& c) {
  const double alpha = c.attrs().get_float("alpha");
  return map_float(c, [=](double x) { return x >= 0 ? x : alpha * x; });
}

RefResults ref_elu(const RefContext& c) {
  const double alpha = c.attrs().get_float("alpha");
  return map_float(c, [=](double x) { return x > 0 ? x : alpha * std::expm1(x); });
}

RefResults ref_gelu(const RefContext& c) {
  if (c.attrs().get_str("approximate") == "tanh") {
    const double scale = std::sqrt(2 / 3.14159265358979323846);
    return map_float(c,
                     [=](double x) { return 0.5 * x * (1 + std::tanh(scale * (x + 0.044715 * x * x * x))); });
  }
  // Phi(x) by the complementary error function keeps the digits of the left tail.
  return map_float(c, [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); });
}

RefResults ref_stop_gradient(const RefContext& c) { return one(c.x(0)); }

RefResults ref_clamp(const RefContext& c) {
  RefTensor out = c.result();
  const RefTensor x = expand(c.x(0), out.sizes), low = expand(c.x(1), out.sizes),
                  high = expand(c.x(2), out.sizes);
  for (size_t k = 0; k < x.f.size(); ++k) out.f[k] = min_of(max_of(x.f[k], low.f[k]), high.f[k]);
  for (size_t k = 0; k < x.i.size(); ++k) {
    const int64_t raised = x.i[k] > low.i[k] ? x.i[k] : low.i[k];
    out.i[k] = raised < high.i[k] ? raised : high.i[k];
  }
  return one(std::move(out));
}

}  // namespace aicf::reference
