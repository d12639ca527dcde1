// The functions of tile_functions.cuh compiled for the host, with approximations as far off as the hardware's
// may be, against the C library in long double; and which texts take them.
#include "kernels/tile/cuda/tile_cuda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/tile/testing/one_op.h"
#include "kernels/tile/tile_info.h"

// ---- what device text has
#define AICF_FN inline

namespace {

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

namespace aicf::tile {
namespace {

constexpr double kOff = 2.384185791015625e-07;  // 2^-22
double off = 0;                                 // of the approximations, in units of that

float flushed(double x) {
  const auto y = static_cast<float>(x);
  return std::fabs(y) < std::numeric_limits<float>::min() ? std::copysign(0.0F, y) : y;
}
float exp2_approx(float x) { return flushed(std::exp2(double{flushed(x)}) * (1 + off * kOff)); }
float log2_of_any(float x) {
  const double y = std::log2(double{x});
  return static_cast<float>(std::fabs(y) < 1 ? y + off * kOff : y * (1 + off * kOff));
}
float log2_approx(float x) { return log2_of_any(flushed(x)); }
float reciprocal_approx(float x) { return flushed(1 / double{flushed(x)} * (1 + off * kOff)); }
float sqrt_approx(float x) { return flushed(std::sqrt(double{flushed(x)}) * (1 + off * kOff)); }
float min(float x, float y) { return x < y || x != x ? x : y; }

}  // namespace
}  // namespace aicf::tile

#include "kernels/tile/cuda/tile_functions.cuh"

namespace aicf {
namespace {

using Wide = long double;

// Numbers of all sizes, random ones around 1, and what has no neighbours.
template <class F>
void for_each_number(double low, double high, const F& check) {
  std::mt19937_64 engine(5);
  std::uniform_real_distribution<double> inside(low, high), exponent(-45, 38), near(-0.2, 0.2);
  for (double x : tile_testing::nasty_values()) check(static_cast<float>(x));
  for (int i = 0; i < 20000; ++i) {
    check(static_cast<float>(inside(engine)));
    check(static_cast<float>(near(engine)));
    check(static_cast<float>(1 + near(engine)));
    check(static_cast<float>(std::pow(10.0, exponent(engine)) * (i % 2 ? 1 : -1)));
  }
}

struct Function {
  const char* name;
  float (*function)(float);
  Wide (*reference)(Wide);
  double low, high;
};

TEST(TileFunctions, OfHalvesAreAccurate) {
  constexpr double kLeast = 1e-37;  // smaller results may be 0
  const Function functions[] = {
      {"log", tile::log_half, [](Wide x) { return std::log(x); }, 0, 1e4},
      {"log1p", tile::log1p_half, [](Wide x) { return std::log1p(x); }, -1, 10},
      {"expm1", tile::expm1_half, [](Wide x) { return std::expm1(x); }, -30, 89},
      {"sinh", tile::sinh_half, [](Wide x) { return std::sinh(x); }, -89, 89},
      {"cosh", tile::cosh_half, [](Wide x) { return std::cosh(x); }, -89, 89},
      {"tanh", tile::tanh_half, [](Wide x) { return std::tanh(x); }, -12, 12},
      {"asinh", tile::asinh_half, [](Wide x) { return std::asinh(x); }, -1e3, 1e3},
      {"acosh", tile::acosh_half, [](Wide x) { return std::acosh(x); }, 0, 1e3},
      {"atanh", tile::atanh_half, [](Wide x) { return std::atanh(x); }, -1.1, 1.1},
  };
  for (const Function& f : functions)
    for (const double shift : {-1.0, 0.0, 1.0}) {
      tile::off = shift;
      for_each_number(f.low, f.high, [&](float x) {
        const Wide expected = f.reference(x);
        const float found = f.function(x);
        if (std::isnan(expected) || std::isnan(found)) {
          EXPECT_EQ(std::isnan(expected), std::isnan(found)) << f.name << " " << x;
        } else if (std::isinf(found)) {
          EXPECT_GT(std::fabs(expected), 3.39e38L) << f.name << " " << x;
        } else {
          EXPECT_LE(std::fabs(found - expected), std::fabs(expected) / 32768 + kLeast) << f.name << " " << x;
          EXPECT_EQ(std::signbit(expected), std::signbit(found)) << f.name << " " << x;
        }
      });
    }
  tile::off = 0;
}

// In units of the last place; twice as many where the approximations are off as far as they may be.
TEST(TileFunctions, GeluKeepsTheAccuracyOfItsTail) {
  const auto reference = [](Wide x) {
    const Wide v = 0.797884560802865355879892119868763737L * (x + 0.044715L * x * x * x);
    return x / (1 + std::exp(-2 * v));
  };
  for (const double shift : {-1.0, 0.0, 1.0}) {
    tile::off = shift;
    for_each_number(-9.9, 12, [&](float x) {
      const float found = tile::gelu_tanh(x);
      if (std::isnan(x) || x == -std::numeric_limits<float>::infinity()) {
        EXPECT_TRUE(std::isnan(found));
      } else if (x < -9.9F) {
        EXPECT_LE(std::fabs(found), 1.2e-36F) << x;
      } else if (!std::isinf(x)) {
        const Wide expected = reference(x);
        const Wide last = std::ldexp(1.0L, std::max(std::ilogb(expected), -126) - 23);
        EXPECT_LE(std::fabs(found - expected), (shift == 0 ? 3.5L : 7.0L) * last) << x;
      } else {
        EXPECT_EQ(found, x);
      }
    });
  }
  tile::off = 0;
}

TEST(TileFunctions, RemaindersAreExact) {
  std::mt19937_64 engine(7);
  const auto check = [](float x, float y) {
    const float found = tile::rem(x, y), expected = std::fmod(x, y);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << x << " " << y;
    } else {
      EXPECT_EQ(__float_as_uint(found), __float_as_uint(expected)) << x << " " << y;
    }
  };
  for (const double shift : {-1.0, 0.0, 1.0}) {
    tile::off = shift;
    for (double x : tile_testing::nasty_values())
      for (double y : tile_testing::nasty_values()) check(static_cast<float>(x), static_cast<float>(y));
    for (int i = 0; i < 100000; ++i) {
      const uint64_t bits = engine();
      const float x = __uint_as_float(static_cast<uint32_t>(bits)),
                  y = __uint_as_float(static_cast<uint32_t>(bits >> 32));
      check(x, y);
      check(y * static_cast<float>(i), y);  // whole quotients
      check(std::nextafter(y * static_cast<float>(i), 0.0F), y);
      check(static_cast<float>(bits % 200001) / 8 - 12500, static_cast<float>(bits >> 32 & 2047) / 64 - 16);
    }
  }
  tile::off = 0;
  EXPECT_EQ(tile::mod(-5.0F, 3.0F), 1.0F);
  EXPECT_EQ(tile::mod(5.0F, -3.0F), -1.0F);
  EXPECT_TRUE(std::signbit(tile::mod(6.0F, -3.0F)));
}

TEST(TileFunctions, PowersAreAccurate) {
  std::mt19937_64 engine(9);
  std::uniform_real_distribution<double> exponent(-37, 38), unit(-1, 1);
  const auto check = [](float x, float y) {
    const Wide expected = std::pow(Wide{x}, Wide{y});
    if (!(std::fabs(expected) >= 1.2e-38L && std::fabs(expected) <= 3e38L)) return;
    const Wide last = std::ldexp(1.0L, std::ilogb(expected) - 23);
    EXPECT_LE(std::fabs(tile::pow(x, y) - expected), 2 * last) << x << " " << y;
  };
  for (const double shift : {-1.0, 0.0, 1.0}) {
    tile::off = shift;
    for (int i = 0; i < 50000; ++i) {
      const auto y = static_cast<float>(unit(engine) * (i % 2 ? 4 : 2000));
      check(static_cast<float>(std::pow(10.0, exponent(engine))), y);
      check(static_cast<float>(1 + unit(engine) / 8), y);
    }
    for (double x : tile_testing::nasty_values())
      for (double y : tile_testing::nasty_values()) {
        const float a = static_cast<float>(x), b = static_cast<float>(y);
        const float found = tile::pow(a, b), expected = std::pow(a, b);
        EXPECT_EQ(std::isnan(found), std::isnan(expected)) << a << " " << b;
        EXPECT_EQ(std::isinf(found), std::isinf(expected)) << a << " " << b;
        EXPECT_EQ(found == 0, expected == 0) << a << " " << b;
        EXPECT_TRUE(std::isnan(found) || std::signbit(found) == std::signbit(expected)) << a << " " << b;
        check(a, b);
      }
  }
  tile::off = 0;
}

std::string text_of_function(TileOp op, DType dtype) {
  TileProgram program{{dtype}, {dtype}, {{TileType::f32}}, {}, {}};
  program.stages = {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                     {.op = op, .type = TileType::f32, .dst = 0, .a = 0},
                     {.op = TileOp::store, .type = TileType::f32, .a = 0, .operand = 1}}};
  check_tile_program(program);
  CudaProblem problem;
  problem.inputs = problem.outputs = {{dtype, Dim(0), {Dim(1 << 23)}, {Dim(1)}}};
  problem.params = {Dim(0)};
  problem.program = &program;
  return find_cuda_kernel("tile")->generate(problem).source;
}

TEST(TileFunctions, ResultsThatEndInHalvesTakeFewerInstructions) {
  EXPECT_NE(text_of_function(TileOp::sinh, DType::f16).find("sinh_half("), std::string::npos);
  EXPECT_NE(text_of_function(TileOp::log, DType::bf16).find("log_half("), std::string::npos);
  EXPECT_EQ(text_of_function(TileOp::sinh, DType::f32).find("_half("), std::string::npos);
  EXPECT_EQ(text_of_function(TileOp::sqrt, DType::f16).find("_half("), std::string::npos);
}

// Measured: blocks of 128 threads take up to twice as long, those of functions, too.
TEST(TileFunctions, BlocksOfFunctionsAreAsLargeAsOthers) {
  for (const TileOp op : {TileOp::cos, TileOp::exp, TileOp::sqrt, TileOp::gelu_tanh, TileOp::neg}) {
    EXPECT_NE(text_of_function(op, DType::f32).find("__launch_bounds__(512"), std::string::npos);
    EXPECT_NE(text_of_function(op, DType::f16).find("__launch_bounds__(512"), std::string::npos);
  }
}

}  // namespace
}  // namespace aicf
