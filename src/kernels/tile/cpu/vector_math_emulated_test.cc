// vector_math.h on Highway's emulated vectors, whose Max and Min drop a NaN: the portable level where Highway
// has no target for the baseline of the compiler.
#include <gtest/gtest.h>

#include <cmath>

#define HWY_COMPILE_ONLY_EMU128
#define HWY_BROKEN_EMU128 0
#define AICF_ISA_NAMESPACE isa_emulated
#include "kernels/tile/cpu/vector_math.h"

namespace aicf {
namespace {

namespace emulated = isa_emulated;
using Tag = isa_emulated::hn::FixedTag<float, 4>;

static_assert(HWY_TARGET == HWY_EMU128);  // NOLINT(misc-redundant-expression)

// f of x, which stands in all lanes.
template <class F>
float lane(const F& f, float x) {
  const Tag d;
  return isa_emulated::hn::GetLane(f(d, isa_emulated::hn::Set(d, x)));
}

TEST(EmulatedVectors, NanStaysNan) {
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(lane([](Tag d, auto x) { return emulated::at_least(d, x, -1); }, nan)));
  EXPECT_TRUE(std::isnan(lane([](Tag d, auto x) { return emulated::at_most(d, x, 1); }, nan)));
  for (const auto& [x, y] : {std::pair{nan, 0.0f}, {0.0f, nan}, {nan, nan}}) {
    const auto second = [d = Tag(), y = y] { return isa_emulated::hn::Set(d, y); };
    EXPECT_TRUE(std::isnan(lane([&](Tag d, auto v) { return emulated::max_nan(d, v, second()); }, x)));
    EXPECT_TRUE(std::isnan(lane([&](Tag d, auto v) { return emulated::min_nan(d, v, second()); }, x)));
  }
}

// The bounds of accuracy are tile_math_test.cc's; here the values only have to be the right ones.
TEST(EmulatedVectors, FunctionsOfNumbersAndNan) {
  const auto check = [](const char* name, auto vector, float (*exact)(float)) {
    for (const float x : {-20.0f, -1.5f, -0.0f, 0.25f, 3.0f, 20.0f}) {
      const float expected = exact(x);
      EXPECT_NEAR(lane(vector, x), expected, 1e-5f * std::fmax(std::fabs(expected), 1.0f))
          << name << " of " << x;
    }
    EXPECT_TRUE(std::isnan(lane(vector, std::nanf("")))) << name;
  };
  check("exp", [](Tag d, auto x) { return emulated::vector_exp(d, x); }, std::exp);
  check("expm1", [](Tag d, auto x) { return emulated::vector_expm1(d, x); }, std::expm1);
  check("tanh", [](Tag d, auto x) { return emulated::vector_tanh(d, x); }, std::tanh);
  check("erf", [](Tag d, auto x) { return emulated::vector_erf(d, x); }, std::erf);
  check(
      "sigmoid", [](Tag d, auto x) { return emulated::vector_sigmoid(d, x); },
      [](float x) { return 1 / (1 + std::exp(-x)); });
  check(
      "gelu", [](Tag d, auto x) { return emulated::vector_gelu(d, x); },
      [](float x) { return 0.5f * x * std::erfc(-x * 0.70710678f); });
}

}  // namespace
}  // namespace aicf
