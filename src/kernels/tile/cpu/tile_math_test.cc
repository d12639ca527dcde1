// Every arithmetic instruction × type × ISA level against the C library in long double or f64.
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "kernels/testing/step.h"
#include "kernels/tile/testing/one_op.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

using step_testing::isa_levels;
using step_testing::Layout;
using step_testing::TestTensor;
using tile_testing::memory_of;
using tile_testing::nasty_values;
using tile_testing::one_op;

using Wide = long double;
Wide gelu_tanh(Wide x) {
  const Wide v = 0.797884560802865355879892119868763737L * (x + 0.044715L * x * x * x);
  return x / (1 + std::exp(-2 * v));
}

struct Unary {
  TileOp op;
  Wide (*reference)(Wide);
  double ulp, portable_ulp;  // bound in units of the last place of f32
  double low, high;          // where random values are drawn
};

const Unary kUnary[] = {
    {TileOp::neg, [](Wide x) { return -x; }, 0, 0, -1e3, 1e3},
    {TileOp::abs, [](Wide x) { return std::fabs(x); }, 0, 0, -1e3, 1e3},
    {TileOp::sign, [](Wide x) { return x > 0   ? 1
                                       : x < 0 ? -1
                                               : x; }, 0, 0, -2, 2},
    {TileOp::exp, [](Wide x) { return std::exp(x); }, 1.1, 1.5, -110, 95},
    {TileOp::expm1, [](Wide x) { return std::expm1(x); }, 2, 3, -30, 95},
    {TileOp::log, [](Wide x) { return std::log(x); }, 1.5, 2, 0, 1e4},
    {TileOp::log1p, [](Wide x) { return std::log1p(x); }, 2, 2.5, -1, 10},
    {TileOp::sqrt, [](Wide x) { return std::sqrt(x); }, 0.5, 0.5, -1, 1e4},
    {TileOp::rsqrt, [](Wide x) { return 1 / std::sqrt(x); }, 1.5, 1.5, -1, 1e4},
    {TileOp::sin, [](Wide x) { return std::sin(x); }, 1.5, 0.6, -1e4, 1e4},
    {TileOp::cos, [](Wide x) { return std::cos(x); }, 1.5, 0.6, -1e4, 1e4},
    {TileOp::tan, [](Wide x) { return std::tan(x); }, 0.6, 0.6, -100, 100},
    {TileOp::asin, [](Wide x) { return std::asin(x); }, 0.6, 0.6, -1.1, 1.1},
    {TileOp::acos, [](Wide x) { return std::acos(x); }, 0.6, 0.6, -1.1, 1.1},
    {TileOp::atan, [](Wide x) { return std::atan(x); }, 0.6, 0.6, -50, 50},
    {TileOp::sinh, [](Wide x) { return std::sinh(x); }, 0.6, 0.6, -95, 95},
    {TileOp::cosh, [](Wide x) { return std::cosh(x); }, 0.6, 0.6, -95, 95},
    {TileOp::tanh, [](Wide x) { return std::tanh(x); }, 2.5, 3.5, -12, 12},
    {TileOp::asinh, [](Wide x) { return std::asinh(x); }, 0.6, 0.6, -1e3, 1e3},
    {TileOp::acosh, [](Wide x) { return std::acosh(x); }, 0.6, 0.6, 0, 1e3},
    {TileOp::atanh, [](Wide x) { return std::atanh(x); }, 0.6, 0.6, -1.1, 1.1},
    {TileOp::erf, [](Wide x) { return std::erf(x); }, 1.5, 2, -5, 5},
    {TileOp::floor, [](Wide x) { return std::floor(x); }, 0, 0, -100, 100},
    {TileOp::ceil, [](Wide x) { return std::ceil(x); }, 0, 0, -100, 100},
    {TileOp::trunc, [](Wide x) { return std::trunc(x); }, 0, 0, -100, 100},
    {TileOp::round, [](Wide x) { return std::nearbyint(x); }, 0, 0, -100, 100},
    {TileOp::sigmoid, [](Wide x) { return 1 / (1 + std::exp(-x)); }, 2.5, 3, -110, 110},
    {TileOp::gelu, [](Wide x) { return 0.5L * x * std::erfc(-x * 0.707106781186547524400844362104849039L); },
     4, 5, -15, 15},
    {TileOp::gelu_tanh, gelu_tanh, 5, 6, -12, 12},
};

std::vector<double> samples(double low, double high, int random, bool f32) {
  std::vector<double> values = nasty_values();
  std::mt19937_64 engine(17);
  std::uniform_real_distribution<double> inside(low, high), exponent(-45, 38);
  for (int i = 0; i < random; ++i) {
    values.push_back(inside(engine));
    values.push_back(std::pow(10.0, exponent(engine)) * (i % 2 ? 1 : -1));
  }
  if (f32)
    for (double& x : values) x = static_cast<float>(x);
  return values;
}

// Distance in units of the last place of T at the exact value; denormals count in steps of the smallest one.
template <class T>
double ulps(double actual, Wide exact) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(exact) || std::isnan(actual)) return std::isnan(exact) == std::isnan(actual) ? 0 : 1e9;
  if (std::isinf(rounded) || std::isinf(actual)) return static_cast<T>(actual) == rounded ? 0 : 1e9;
  int e = 0;
  std::frexp(std::fabs(exact), &e);
  e = std::max(e, std::numeric_limits<T>::min_exponent);
  return static_cast<double>(std::fabs(actual - exact) /
                             std::ldexp(Wide{1}, e - std::numeric_limits<T>::digits));
}

void check_unary(const Unary& row, TileType type, IsaLevel isa) {
  const bool f32 = type == TileType::f32;
  const std::vector<double> xs = samples(row.low, row.high, 3000, f32);
  TestTensor x(memory_of(type), {static_cast<int64_t>(xs.size())}), y(memory_of(type), x.sizes());
  x.fill([&](int64_t i) { return xs[static_cast<size_t>(i)]; });
  const TileProgram program = one_op(row.op, type);
  step_testing::run_step({"tile", {x.arg()}, {y.arg()}, {1}, {}, &program}, isa);
  // In f64 the far tail of gelu is as good as the rounding of its exponent: x^2 times an epsilon.
  const bool tail = !f32 && (row.op == TileOp::gelu_tanh || row.op == TileOp::gelu);
  const double bound = tail ? 1000 : !f32 ? 4 : isa == IsaLevel::kPortable ? row.portable_ulp : row.ulp;
  double worst = 0, at = 0;
  for (int64_t i = 0; i < x.count(); ++i) {
    const Wide exact = row.reference(x.get(i));
    const double distance = f32 ? ulps<float>(y.get(i), exact) : ulps<double>(y.get(i), exact);
    if (distance > worst) worst = distance, at = x.get(i);
    if (x.get(i) == 0 && exact == 0) {
      EXPECT_EQ(std::signbit(y.get(i)), std::signbit(exact))
          << tile_op_info(row.op).name << " of " << x.get(i) << (f32 ? " f32 " : " f64 ") << isa_name(isa);
    }
  }
  EXPECT_LE(worst, bound) << tile_op_info(row.op).name << (f32 ? " f32 " : " f64 ") << isa_name(isa) << " at "
                          << at;
}

TEST(TileMath, UnaryWithinUlps) {
  for (IsaLevel isa : isa_levels())
    for (const Unary& row : kUnary)
      for (TileType type : {TileType::f32, TileType::f64}) check_unary(row, type, isa);
}

// The same element gives the same bits at every position and for every length.
TEST(TileMath, PositionDoesNotMatter) {
  for (IsaLevel isa : isa_levels())
    for (const Unary& row : kUnary) {
      const std::vector<double> xs = samples(row.low, row.high, 10, true);
      const int64_t n = static_cast<int64_t>(xs.size());
      TestTensor x(DType::f32, {n}), whole(DType::f32, {n}), single(DType::f32, {1});
      x.fill([&](int64_t i) { return xs[static_cast<size_t>(i)]; });
      const TileProgram program = one_op(row.op, TileType::f32);
      step_testing::run_step({"tile", {x.arg()}, {whole.arg()}, {1}, {}, &program}, isa);
      for (int64_t i = 0; i < n; ++i) {
        TensorArg one = x.arg();
        one.sizes[0] = 1;
        one.data = static_cast<float*>(one.data) + i;
        step_testing::run_step({"tile", {one}, {single.arg()}, {1}, {}, &program}, isa);
        ASSERT_EQ(single.bits(0), whole.bits(i))
            << tile_op_info(row.op).name << " at " << xs[static_cast<size_t>(i)];
      }
    }
}

Wide python_mod(Wide x, Wide y) {
  const Wide r = std::fmod(x, y);
  return r == 0 ? std::copysign(Wide{0}, y) : (r < 0) != (y < 0) ? r + y : r;
}

struct Binary {
  TileOp op;
  Wide (*reference)(Wide, Wide);
  double ulp;
};
const Binary kBinary[] = {
    {TileOp::add, [](Wide x, Wide y) { return x + y; }, 0.5},
    {TileOp::sub, [](Wide x, Wide y) { return x - y; }, 0.5},
    {TileOp::mul, [](Wide x, Wide y) { return x * y; }, 0.5},
    {TileOp::div, [](Wide x, Wide y) { return x / y; }, 0.5},
    {TileOp::rem, [](Wide x, Wide y) { return std::fmod(x, y); }, 0},
    {TileOp::mod, python_mod, 0.5},
    {TileOp::pow, [](Wide x, Wide y) { return std::pow(x, y); }, 1},
    {TileOp::atan2, [](Wide x, Wide y) { return std::atan2(x, y); }, 1},
    {TileOp::max, [](Wide x, Wide y) { return std::isnan(x)   ? x
                                              : std::isnan(y) ? y
                                                              : std::max(x, y); }, 0},
    {TileOp::min, [](Wide x, Wide y) { return std::isnan(x)   ? x
                                              : std::isnan(y) ? y
                                                              : std::min(x, y); }, 0},
    {TileOp::eq, [](Wide x, Wide y) { return static_cast<Wide>(x == y); }, 0},
    {TileOp::ne, [](Wide x, Wide y) { return static_cast<Wide>(x != y); }, 0},
    {TileOp::lt, [](Wide x, Wide y) { return static_cast<Wide>(x < y); }, 0},
    {TileOp::le, [](Wide x, Wide y) { return static_cast<Wide>(x <= y); }, 0},
    {TileOp::gt, [](Wide x, Wide y) { return static_cast<Wide>(x > y); }, 0},
    {TileOp::ge, [](Wide x, Wide y) { return static_cast<Wide>(x >= y); }, 0},
};

TEST(TileMath, BinaryWithinUlps) {
  for (IsaLevel isa : isa_levels())
    for (const Binary& row : kBinary)
      for (TileType type : {TileType::f32, TileType::f64}) {
        const bool f32 = type == TileType::f32;
        const std::vector<double> values = nasty_values();
        const int64_t n = static_cast<int64_t>(values.size());
        const TileProgram program = one_op(row.op, type);
        TestTensor x(memory_of(type), {n, 1}), y(memory_of(type), {1, n}), z(program.outputs[0], {n, n});
        x.fill([&](int64_t i) { return values[static_cast<size_t>(i)]; });
        y.fill([&](int64_t i) { return values[static_cast<size_t>(i)]; });
        step_testing::run_step({"tile", {x.arg(), y.arg()}, {z.arg()}, {0}, {}, &program}, isa);
        double worst = 0, at = 0;
        for (int64_t i = 0; i < n * n; ++i) {
          const Wide exact = row.reference(x.get(i / n), y.get(i % n));
          // Long double has a wider exponent range: fmod and / of denormals round differently there, within
          // the bound.
          const double distance = f32 ? ulps<float>(z.get(i), exact) : ulps<double>(z.get(i), exact);
          if (distance > worst) worst = distance, at = static_cast<double>(i);
        }
        EXPECT_LE(worst, f32 ? row.ulp + 1e-6 : std::max(row.ulp * 1.01, row.op == TileOp::mod ? 1.0 : 0.0))
            << tile_op_info(row.op).name << (f32 ? " f32 " : " f64 ") << isa_name(isa) << " at "
            << x.get(static_cast<int64_t>(at) / n) << ", " << y.get(static_cast<int64_t>(at) % n);
      }
}

template <class T>
T wrap(__int128 v) {
  return static_cast<T>(static_cast<std::make_unsigned_t<T>>(v));
}

template <class T>
T integer_reference(TileOp op, T x, T y) {
  using W = __int128;
  const int bits = 8 * static_cast<int>(sizeof(T));
  switch (op) {
    case TileOp::add:
      return wrap<T>(W{x} + y);
    case TileOp::sub:
      return wrap<T>(W{x} - y);
    case TileOp::mul:
      return wrap<T>(W{x} * y);
    case TileOp::div:
      return y == 0 ? 0 : wrap<T>(W{x} / y);
    case TileOp::rem:
      return y == 0 ? 0 : wrap<T>(W{x} % y);
    case TileOp::mod:
      return y == 0 ? 0 : wrap<T>((W{x} % y + y) % y);
    case TileOp::max:
      return std::max(x, y);
    case TileOp::min:
      return std::min(x, y);
    case TileOp::bit_and:
      return x & y;
    case TileOp::bit_or:
      return x | y;
    case TileOp::bit_xor:
      return x ^ y;
    case TileOp::shift_left:
      return y < 0 || y >= bits ? 0 : wrap<T>(W{x} << y);
    case TileOp::shift_right:
      return y < 0 || y >= bits ? (x < 0 ? -1 : 0) : x >> y;
    case TileOp::pow: {
      if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
      T r = 1;
      for (T i = 0; i < std::min<T>(y, 200); ++i) r = wrap<T>(W{r} * x);
      return r;
    }
    default:
      return 0;
  }
}

template <class T>
void check_integers(TileType type, IsaLevel isa) {
  std::vector<T> values = {0,
                           1,
                           -1,
                           2,
                           -2,
                           3,
                           5,
                           -7,
                           31,
                           32,
                           33,
                           63,
                           64,
                           100,
                           std::numeric_limits<T>::max(),
                           std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::min() + 1};
  const int64_t n = static_cast<int64_t>(values.size());
  TestTensor x(memory_of(type), {n, 1}), y(memory_of(type), {1, n}), z(memory_of(type), {n, n});
  std::copy(values.begin(), values.end(), static_cast<T*>(x.arg().data));
  std::copy(values.begin(), values.end(), static_cast<T*>(y.arg().data));
  for (TileOp op : {TileOp::add, TileOp::sub, TileOp::mul, TileOp::div, TileOp::rem, TileOp::mod, TileOp::max,
                    TileOp::min, TileOp::bit_and, TileOp::bit_or, TileOp::bit_xor, TileOp::shift_left,
                    TileOp::shift_right, TileOp::pow}) {
    const TileProgram program = one_op(op, type);
    step_testing::run_step({"tile", {x.arg(), y.arg()}, {z.arg()}, {2}, {}, &program}, isa);
    for (int64_t i = 0; i < n * n; ++i) {
      const T a = values[static_cast<size_t>(i / n)], b = values[static_cast<size_t>(i % n)];
      if (op == TileOp::pow && b > 200) continue;
      ASSERT_EQ(static_cast<const T*>(z.arg().data)[i], integer_reference(op, a, b))
          << tile_op_info(op).name << a << "," << b;
    }
  }
}

TEST(TileMath, IntegersWrap) {
  for (IsaLevel isa : isa_levels()) {
    check_integers<int32_t>(TileType::i32, isa);
    check_integers<int64_t>(TileType::i64, isa);
  }
}

// Every row of tile_ops.def before the reductions resolves to a function for every type it names.
TEST(TileMath, EveryOperationExists) {
  int count = 0;
  for (IsaLevel isa : isa_levels())
    for (int op = 0; op < static_cast<int>(TileOp::reduce_sum); ++op)
      for (int type = 0; type < 5; ++type) {
        const TileOp tile_op = static_cast<TileOp>(op);
        if (tile_op == TileOp::load || tile_op == TileOp::store || tile_op == TileOp::store_scalar ||
            tile_op == TileOp::store_sum)
          continue;
        if (tile_op_info(tile_op).types.find("fdilm"[type]) == std::string_view::npos) continue;
        const TileProgram program = one_op(tile_op, static_cast<TileType>(type));
        std::vector<TensorArg> inputs;
        for (DType dtype : program.inputs) inputs.push_back(TestTensor(dtype, {3}).arg());
        TestTensor out(program.outputs[0], {3});
        EXPECT_NO_THROW(step_testing::bind_step({"tile", inputs, {out.arg()}, {1}, {}, &program}, isa))
            << tile_op_info(tile_op).name << type;
        ++count;
      }
  EXPECT_GT(count, 150);
}

}  // namespace
}  // namespace aicf
