#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

Attrs to_dtype(DType dtype) { return {{"dtype", dtype}}; }

Array one_cast(const Array& x, DType dtype) { return run_op(Op::cast, {x}, to_dtype(dtype)).at(0); }

// A unary float op and the correctly rounded library function it means, at plain and nasty arguments.
void add_function(std::vector<OpCase>& rows, Op op, double (*function)(double),
                  std::vector<double> arguments) {
  std::vector<double> expected;
  arguments.push_back(kNan);
  for (double x : arguments) expected.push_back(function(x));
  const auto count = static_cast<int64_t>(arguments.size());
  rows.push_back({op, {t({count}, arguments)}, {}, {t({count}, expected)}, kWideFloats});
  rows.push_back({op, {t({0}, {})}, {}, {t({0}, {})}});
}

void add_functions(std::vector<OpCase>& rows) {
  add_function(rows, Op::exp, [](double x) { return std::exp(x); }, {0, 1, -2.5, 80, -kInf, kInf});
  add_function(rows, Op::expm1, [](double x) { return std::expm1(x); }, {0, 0x1p-40, 1, -3, -kInf, kInf});
  add_function(rows, Op::log, [](double x) { return std::log(x); }, {0, 1, 2.5, -1, kInf});
  add_function(rows, Op::log1p, [](double x) { return std::log1p(x); }, {0, 0x1p-40, -1, -2, kInf});
  add_function(rows, Op::sqrt, [](double x) { return std::sqrt(x); }, {0, 4, 2, -1, kInf});
  add_function(rows, Op::rsqrt, [](double x) { return 1 / std::sqrt(x); }, {0, 4, 2, -1, kInf});
  add_function(rows, Op::sin, [](double x) { return std::sin(x); }, {0, 1, -2, 100, kInf});
  add_function(rows, Op::cos, [](double x) { return std::cos(x); }, {0, 1, -2, 100, kInf});
  add_function(rows, Op::tan, [](double x) { return std::tan(x); }, {0, 1, -2, kInf});
  add_function(rows, Op::asin, [](double x) { return std::asin(x); }, {0, 1, -0.5, 2});
  add_function(rows, Op::acos, [](double x) { return std::acos(x); }, {0, 1, -0.5, 2});
  add_function(rows, Op::atan, [](double x) { return std::atan(x); }, {0, 1, -0.5, kInf, -kInf});
  add_function(rows, Op::sinh, [](double x) { return std::sinh(x); }, {0, 1, -2, -kInf});
  add_function(rows, Op::cosh, [](double x) { return std::cosh(x); }, {0, 1, -2, -kInf});
  add_function(rows, Op::tanh, [](double x) { return std::tanh(x); }, {0, 1, -2, 50, -kInf});
  add_function(rows, Op::asinh, [](double x) { return std::asinh(x); }, {0, 1, -2, kInf});
  add_function(rows, Op::acosh, [](double x) { return std::acosh(x); }, {1, 2, 0, kInf});
  add_function(rows, Op::atanh, [](double x) { return std::atanh(x); }, {0, 0.5, 1, -1, 2});
  add_function(rows, Op::erf, [](double x) { return std::erf(x); }, {0, 0.5, -1, kInf, -kInf});
}

void add_unary(std::vector<OpCase>& rows) {
  rows.push_back({Op::neg, {t({3}, {1, -2, 0})}, {}, {t({3}, {-1, 2, 0})}, kSigned});
  rows.push_back({Op::neg, {t({2}, {1, 0})}, {}, {t({2}, {255, 0})}, {DType::u8}});
  rows.push_back({Op::neg, {t({1}, {-128})}, {}, {t({1}, {-128})}, {DType::i8}});
  rows.push_back({Op::neg, {t({2}, {-kInf, kNan})}, {}, {t({2}, {kInf, kNan})}, kFloats});
  rows.push_back({Op::abs, {t({3}, {1, -2, 0})}, {}, {t({3}, {1, 2, 0})}, kSigned});
  rows.push_back({Op::abs, {t({2}, {-128, -127})}, {}, {t({2}, {-128, 127})}, {DType::i8}});
  rows.push_back({Op::abs, {t({1}, {200})}, {}, {t({1}, {200})}, {DType::u8}});
  rows.push_back({Op::abs, {t({2}, {-kInf, kNan})}, {}, {t({2}, {kInf, kNan})}, kFloats});
  rows.push_back({Op::sign, {t({3}, {7, -2, 0})}, {}, {t({3}, {1, -1, 0})}, kSigned});
  rows.push_back({Op::sign, {t({2}, {200, 0})}, {}, {t({2}, {1, 0})}, {DType::u8}});
  rows.push_back({Op::sign, {t({2}, {-kInf, kNan})}, {}, {t({2}, {-1, kNan})}, kFloats});
  const CaseTensor halves = t({8}, {0.5, 1.5, 2.5, -0.5, -1.5, 2.25, kInf, kNan});
  rows.push_back({Op::floor, {halves}, {}, {t({8}, {0, 1, 2, -1, -2, 2, kInf, kNan})}});
  rows.push_back({Op::ceil, {halves}, {}, {t({8}, {1, 2, 3, 0, -1, 3, kInf, kNan})}});
  rows.push_back({Op::trunc, {halves}, {}, {t({8}, {0, 1, 2, 0, -1, 2, kInf, kNan})}});
  rows.push_back({Op::round, {halves}, {}, {t({8}, {0, 2, 2, 0, -2, 2, kInf, kNan})}});
  constexpr double kStep = 0x1p-10;  // of tf32 from 1 on
  rows.push_back({Op::round_tf32,
                  {t({9}, {1 + kStep / 4, 1 + kStep / 2, -1 - kStep / 2, 1 + kStep * 0.75, 2 - kStep / 2, 1.5,
                           0, -kInf, kNan})},
                  {},
                  {t({9}, {1, 1 + kStep, -1 - kStep, 1 + kStep, 2, 1.5, 0, -kInf, kNan})},
                  {DType::f64, DType::f32}});
  const CaseTensor odd = t({4}, {kNan, kInf, -kInf, 1});
  rows.push_back({Op::is_nan, {odd}, {}, {boolean({4}, {1, 0, 0, 0})}});
  rows.push_back({Op::is_inf, {odd}, {}, {boolean({4}, {0, 1, 1, 0})}});
  rows.push_back({Op::is_inf, {odd}, {{"positive", false}}, {boolean({4}, {0, 0, 1, 0})}});
  rows.push_back({Op::is_inf, {odd}, {{"negative", false}}, {boolean({4}, {0, 1, 0, 0})}});
  rows.push_back({Op::logical_not, {boolean({2}, {0, 1})}, {}, {boolean({2}, {1, 0})}});
  rows.push_back({Op::bit_not, {t({2}, {0, 5})}, {}, {t({2}, {-1, -6})}, kSignedInts});
  rows.push_back({Op::bit_not, {t({2}, {0, 5})}, {}, {t({2}, {255, 250})}, {DType::u8}});
}

void add_arithmetic(std::vector<OpCase>& rows) {
  const CaseTensor column = t({2, 1}, {3, 10}), row = t({3}, {1, 2, 3});
  rows.push_back({Op::add, {column, row}, {}, {t({2, 3}, {4, 5, 6, 11, 12, 13})}});
  rows.push_back({Op::sub, {column, row}, {}, {t({2, 3}, {2, 1, 0, 9, 8, 7})}});
  rows.push_back({Op::mul, {column, row}, {}, {t({2, 3}, {3, 6, 9, 10, 20, 30})}});
  rows.push_back({Op::add, {t({0, 3}, {}), row}, {}, {t({0, 3}, {})}});
  rows.push_back({Op::add, {t({2}, {127, -128}), t({2}, {1, -1})}, {}, {t({2}, {-128, 127})}, {DType::i8}});
  rows.push_back({Op::sub, {t({2}, {3, 0}), t({2}, {5, 1})}, {}, {t({2}, {254, 255})}, {DType::u8}});
  rows.push_back({Op::mul, {t({2}, {100, 16}), t({2}, {3, 16})}, {}, {t({2}, {44, 0})}, {DType::i8}});
  rows.push_back({Op::add, {t({2}, {kInf, kInf}), t({2}, {-kInf, 1})}, {}, {t({2}, {kNan, kInf})}, kFloats});
  rows.push_back(
      {Op::div, {t({4}, {7, -7, 7, -7}), t({4}, {2, 2, -2, -2})}, {}, {t({4}, {3, -3, -3, 3})}, kSignedInts});
  rows.push_back(
      {Op::div, {t({3}, {7, -128, 0}), t({3}, {0, -1, 0})}, {}, {t({3}, {0, -128, 0})}, {DType::i8}});
  rows.push_back({Op::div, {t({2}, {250, 7}), t({2}, {7, 0})}, {}, {t({2}, {35, 0})}, {DType::u8}});
  rows.push_back({Op::div,
                  {t({4}, {7, 1, -1, 0}), t({4}, {2, 0, 0, 0})},
                  {},
                  {t({4}, {3.5, kInf, -kInf, kNan})},
                  kFloats});
  const CaseTensor dividends = t({5}, {7, -7, 7, -7, 6}), divisors = t({5}, {3, 3, -3, -3, 3});
  rows.push_back({Op::rem, {dividends, divisors}, {}, {t({5}, {1, -1, 1, -1, 0})}, kSigned});
  rows.push_back({Op::mod, {dividends, divisors}, {}, {t({5}, {1, 2, -2, -1, 0})}, kSigned});
  rows.push_back({Op::rem, {t({2}, {5, -128}), t({2}, {0, -1})}, {}, {t({2}, {0, 0})}, {DType::i8}});
  rows.push_back({Op::mod, {t({2}, {5, -128}), t({2}, {0, -1})}, {}, {t({2}, {0, 0})}, {DType::i8}});
  rows.push_back({Op::rem, {t({2}, {200, 5}), t({2}, {7, 0})}, {}, {t({2}, {4, 0})}, {DType::u8}});
  rows.push_back({Op::mod, {t({2}, {200, 5}), t({2}, {7, 0})}, {}, {t({2}, {4, 0})}, {DType::u8}});
  rows.push_back(
      {Op::rem, {t({3}, {5, kInf, 5}), t({3}, {0, 2, kInf})}, {}, {t({3}, {kNan, kNan, 5})}, kFloats});
  rows.push_back({Op::mod,
                  {t({4}, {5, -5, 5.5, 1}), t({4}, {kInf, kInf, 2, 0})},
                  {},
                  {t({4}, {5, kInf, 1.5, kNan})},
                  kFloats});
  rows.push_back(
      {Op::pow, {t({4}, {2, -3, 5, 0}), t({4}, {3, 3, 0, 0})}, {}, {t({4}, {8, -27, 1, 1})}, kSigned});
  rows.push_back({Op::pow,
                  {t({5}, {2, 1, -1, -1, 0}), t({5}, {-1, -4, -3, -2, -1})},
                  {},
                  {t({5}, {0, 1, -1, 1, 0})},
                  kSignedInts});
  rows.push_back({Op::pow, {t({2}, {3, 2}), t({2}, {5, 8})}, {}, {t({2}, {243, 0})}, {DType::u8}});
  rows.push_back(
      {Op::pow, {t({3}, {2, 4, -8}), t({3}, {-1, 0.5, 0.5})}, {}, {t({3}, {0.5, 2, kNan})}, kFloats});
  rows.push_back({Op::atan2,
                  {t({2}, {1, -1}), t({2}, {0, -1})},
                  {},
                  {t({2}, {std::atan2(1, 0), std::atan2(-1, -1)})},
                  kWideFloats});
  rows.push_back({Op::max, {t({3}, {1, 5, 3}), t({3}, {2, 4, 3})}, {}, {t({3}, {2, 5, 3})}});
  rows.push_back({Op::min, {t({3}, {1, 5, 3}), t({3}, {2, 4, 3})}, {}, {t({3}, {1, 4, 3})}});
  rows.push_back({Op::max,
                  {t({3}, {kNan, 1, -kInf}), t({3}, {1, kNan, kInf})},
                  {},
                  {t({3}, {kNan, kNan, kInf})},
                  kFloats});
  rows.push_back({Op::min,
                  {t({3}, {kNan, 1, -kInf}), t({3}, {1, kNan, kInf})},
                  {},
                  {t({3}, {kNan, kNan, -kInf})},
                  kFloats});
}

void add_bits(std::vector<OpCase>& rows) {
  const std::vector<DType> ints = {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8};
  const CaseTensor x = t({2}, {12, 7}), y = t({2}, {10, 1});
  rows.push_back({Op::bit_and, {x, y}, {}, {t({2}, {8, 1})}, ints});
  rows.push_back({Op::bit_or, {x, y}, {}, {t({2}, {14, 7})}, ints});
  rows.push_back({Op::bit_xor, {x, y}, {}, {t({2}, {6, 6})}, ints});
  const CaseTensor p = boolean({4}, {0, 0, 1, 1}), q = boolean({4}, {0, 1, 0, 1});
  rows.push_back({Op::bit_and, {p, q}, {}, {boolean({4}, {0, 0, 0, 1})}, {DType::boolean}});
  rows.push_back({Op::bit_or, {p, q}, {}, {boolean({4}, {0, 1, 1, 1})}, {DType::boolean}});
  rows.push_back({Op::bit_xor, {p, q}, {}, {boolean({4}, {0, 1, 1, 0})}, {DType::boolean}});
  rows.push_back({Op::shift_left, {t({3}, {3, 1, 1}), t({3}, {2, 64, 0})}, {}, {t({3}, {12, 0, 1})}, ints});
  rows.push_back(
      {Op::shift_left, {t({3}, {3, 1, 1}), t({3}, {7, 8, -1})}, {}, {t({3}, {-128, 0, 0})}, {DType::i8}});
  rows.push_back({Op::shift_right,
                  {t({4}, {-8, -1, 5, -5}), t({4}, {2, 8, 64, -1})},
                  {},
                  {t({4}, {-2, -1, 0, -1})},
                  kSignedInts});
  rows.push_back({Op::shift_right, {t({2}, {200, 200}), t({2}, {3, 8})}, {}, {t({2}, {25, 0})}, {DType::u8}});
}

void add_comparisons(std::vector<OpCase>& rows) {
  const CaseTensor x = t({3}, {1, 2, 3}), y = t({}, {2}), nan = t({2}, {kNan, 1}),
                   other = t({2}, {kNan, kNan});
  const auto row = [&](Op op, std::vector<double> plain, double on_nan) {
    rows.push_back({op, {x, y}, {}, {boolean({3}, plain)}, kNumbers});
    rows.push_back({op, {nan, other}, {}, {boolean({2}, {on_nan, on_nan})}, kFloats});
  };
  row(Op::eq, {0, 1, 0}, 0);
  row(Op::ne, {1, 0, 1}, 1);
  row(Op::lt, {1, 0, 0}, 0);
  row(Op::le, {1, 1, 0}, 0);
  row(Op::gt, {0, 0, 1}, 0);
  row(Op::ge, {0, 1, 1}, 0);
  const CaseTensor p = boolean({2}, {0, 1}), q = boolean({2}, {1, 1});
  rows.push_back({Op::eq, {p, q}, {}, {boolean({2}, {0, 1})}, {DType::boolean}});
  rows.push_back({Op::ne, {p, q}, {}, {boolean({2}, {1, 0})}, {DType::boolean}});
  rows.push_back(
      {Op::select, {boolean({2, 1}, {1, 0}), t({2}, {1, 0}), t(1)}, {}, {t({2, 2}, {1, 0, 1, 1})}});
  rows.push_back({Op::select,
                  {boolean({2}, {1, 0}), t({2}, {kNan, 1}), t({2}, {1, kInf})},
                  {},
                  {t({2}, {kNan, kInf})},
                  kFloats});
}

void add_casts(std::vector<OpCase>& rows) {
  for (int to = 0; to < kDTypeCount; ++to) {
    const auto dtype = static_cast<DType>(to);
    const CaseTensor expected =
        dtype == DType::boolean ? of(dtype, {3}, {0, 1, 1}) : of(dtype, {3}, {0, 1, 7});
    rows.push_back({Op::cast, {t({3}, {0, 1, 7})}, to_dtype(dtype), {expected}, kNumbers});
    rows.push_back({Op::cast, {t({2}, {0, 1})}, to_dtype(dtype), {of(dtype, {2}, {0, 1})}, {DType::boolean}});
  }
  const CaseTensor wild = t({6}, {kNan, kInf, -kInf, 300, -300, -1.75});
  rows.push_back(
      {Op::cast, {wild}, to_dtype(DType::i8), {of(DType::i8, {6}, {0, 127, -128, 127, -128, -1})}, kFloats});
  rows.push_back(
      {Op::cast, {wild}, to_dtype(DType::u8), {of(DType::u8, {6}, {0, 255, 0, 255, 0, 0})}, kFloats});
  rows.push_back({Op::cast, {wild}, to_dtype(DType::boolean), {boolean({6}, {1, 1, 1, 1, 1, 1})}, kFloats});
  rows.push_back({Op::cast,
                  {t({3}, {300, -1, 128})},
                  to_dtype(DType::u8),
                  {of(DType::u8, {3}, {44, 255, 128})},
                  {DType::i64, DType::i32, DType::i16}});
  rows.push_back(
      {Op::cast, {t({2}, {200, 5})}, to_dtype(DType::i8), {of(DType::i8, {2}, {-56, 5})}, {DType::u8}});
}

void add_activations(std::vector<OpCase>& rows) {
  rows.push_back({Op::relu, {t({3}, {-2, 0, 3})}, {}, {t({3}, {0, 0, 3})}, kSigned});
  rows.push_back({Op::relu, {t({2}, {200, 0})}, {}, {t({2}, {200, 0})}, {DType::u8}});
  rows.push_back({Op::relu, {t({3}, {kNan, kInf, -kInf})}, {}, {t({3}, {kNan, kInf, 0})}, kFloats});
  rows.push_back(
      {Op::leaky_relu, {t({4}, {-2, 0, 3, kNan})}, {{"alpha", 0.25}}, {t({4}, {-0.5, 0, 3, kNan})}});
  rows.push_back(
      {Op::elu, {t({4}, {-1, 0, 3, -kInf})}, {{"alpha", 2.0}}, {t({4}, {2 * std::expm1(-1), 0, 3, -2})}});
  rows.push_back({Op::sigmoid,
                  {t({5}, {0, 2, -1000, 1000, kNan})},
                  {},
                  {t({5}, {0.5, 1 / (1 + std::exp(-2)), 0, 1, kNan})}});
  rows.push_back({Op::silu, {t({3}, {0, 2, -1000})}, {}, {t({3}, {0, 2 / (1 + std::exp(-2)), 0})}});
  // Phi(1) = 0.841344746068543 and Phi(-8) = 6.22096057427178e-16, from tables.
  rows.push_back({Op::gelu,
                  {t({4}, {0, 1, -1, kInf})},
                  {},
                  {t({4}, {0, 0.8413447460685429, -0.15865525393145705, kInf})}});
  rows.push_back({Op::gelu, {t({1}, {-8})}, {}, {t({1}, {-8 * 6.220960574271785e-16})}, kWideFloats});
  const double inner = std::sqrt(2 / M_PI) * (1 + 0.044715);
  rows.push_back({Op::gelu,
                  {t({2}, {0, 1})},
                  {{"approximate", std::string("tanh")}},
                  {t({2}, {0, 0.5 * (1 + std::tanh(inner))})}});
  rows.push_back({Op::softplus,
                  {t({6}, {0, 1000, -1000, kInf, -kInf, kNan})},
                  {},
                  {t({6}, {std::log(2), 1000, 0, kInf, 0, kNan})}});
  rows.push_back({Op::stop_gradient, {t({3}, {1, 0, 3})}, {}, {t({3}, {1, 0, 3})}, kFloats});
  rows.push_back({Op::clamp, {t({4}, {1, 5, 3, 0}), t(2), t(4)}, {}, {t({4}, {2, 4, 3, 2})}});
  rows.push_back({Op::clamp,
                  {t({3}, {kNan, kInf, 1}), t(2), t({3}, {4, 4, kNan})},
                  {},
                  {t({3}, {kNan, 4, kNan})},
                  kFloats});
  // low above high: high wins, by the formula.
  rows.push_back({Op::clamp, {t({1}, {3}), t(5), t(1)}, {}, {t({1}, {1})}});
}

TEST(ReferencePointwise, Int64StaysExact) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
  const Array big = Array::from<int64_t>(DType::i64, {3}, {kMax, kMin, kMax - 1});
  const Array ones = Array::from<int64_t>(DType::i64, {3}, {1, -1, 1});
  EXPECT_EQ(run_op(Op::add, {big, ones}).at(0), Array::from<int64_t>(DType::i64, {3}, {kMin, kMax, kMax}));
  EXPECT_EQ(run_op(Op::div, {big, ones}).at(0),
            Array::from<int64_t>(DType::i64, {3}, {kMax, kMin, kMax - 1}));
  EXPECT_EQ(run_op(Op::abs, {big}).at(0), Array::from<int64_t>(DType::i64, {3}, {kMax, kMin, kMax - 1}));
  EXPECT_EQ(run_op(Op::gt, {big, Array::scalar_i64(DType::i64, kMax - 1)}).at(0),
            Array::from<int64_t>(DType::boolean, {3}, {1, 0, 0}));
}

TEST(ReferencePointwise, CastSaturatesToInt64) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
  const Array x = Array::from<double>(DType::f64, {5}, {0x1p63, -0x1p63, 0x1p62, 1e300, -kInf});
  EXPECT_EQ(one_cast(x, DType::i64),
            Array::from<int64_t>(DType::i64, {5}, {kMax, kMin, int64_t{1} << 62, kMax, kMin}));
}

// 2^54 + 2^30 + 1 lies just above the middle of two f32 neighbours, and becomes exactly that middle as an
// f64.
TEST(ReferencePointwise, CastFromIntegerRoundsOnce) {
  const int64_t x = (int64_t{1} << 54) + (int64_t{1} << 30) + 1;
  for (int64_t value :
       {x, -x, x - 1, x - 2, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(one_cast(Array::scalar_i64(DType::i64, value), DType::f32).get_f64(0),
              static_cast<float>(value));
    EXPECT_EQ(one_cast(Array::scalar_i64(DType::i64, value), DType::f64).get_f64(0),
              static_cast<double>(value));
  }
  // f16 has 11 significant bits: 2049 is a tie to even, 2051 rounds up.
  EXPECT_EQ(one_cast(Array::scalar_i64(DType::i64, 2049), DType::f16).get_f64(0), 2048);
  EXPECT_EQ(one_cast(Array::scalar_i64(DType::i64, 2051), DType::f16).get_f64(0), 2052);
  EXPECT_EQ(one_cast(Array::scalar_i64(DType::i64, 70000), DType::f16).get_f64(0), kInf);
}

TEST(ReferencePointwise, ZerosHaveAnOrder) {
  const Array plus = Array::scalar_f64(DType::f32, 0.0), minus = Array::scalar_f64(DType::f32, -0.0);
  EXPECT_EQ(run_op(Op::max, {plus, minus}).at(0), plus);
  EXPECT_EQ(run_op(Op::max, {minus, plus}).at(0), plus);
  EXPECT_EQ(run_op(Op::min, {plus, minus}).at(0), minus);
  EXPECT_EQ(run_op(Op::min, {minus, plus}).at(0), minus);
  EXPECT_EQ(run_op(Op::neg, {plus}).at(0), minus);
}

// 1/3 in f16 read back is not 1/3; an f64 run keeps every digit through the cast.
TEST(ReferencePointwise, OnlyRoundedRunsRound) {
  const Array x = Array::scalar_f64(DType::f64, 1.0 / 3);
  const Attrs to_f16 = to_dtype(DType::f16);
  EXPECT_EQ(run_op(Op::cast, {x}, to_f16, {}, true).at(0), Array::scalar_f64(DType::f16, 1.0 / 3));
  EXPECT_EQ(run_op(Op::cast, {x}, to_f16, {}, false).at(0), x);
}

}  // namespace

std::vector<OpCase> pointwise_cases() {
  std::vector<OpCase> rows;
  add_functions(rows);
  add_unary(rows);
  add_arithmetic(rows);
  add_bits(rows);
  add_comparisons(rows);
  add_casts(rows);
  add_activations(rows);
  return rows;
}

}  // namespace aicf
