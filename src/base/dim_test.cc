#include "base/dim.h"

#include <gtest/gtest.h>

#include <random>

namespace aicf {
namespace {

const Dim n = Dim::symbol("n");

TEST(Floordiv, HasOneForm) {
  EXPECT_EQ(floordiv(n + Dim(2 * 1 - 3), Dim(2)) + Dim(1), ceildiv(n, Dim(2)));
  EXPECT_EQ(floordiv(Dim(4) * n - Dim(1), Dim(2)), Dim(2) * n - Dim(1));
  EXPECT_EQ(floordiv(floordiv(floordiv(n - Dim(10), Dim(5)) - Dim(2), Dim(2)) - Dim(2), Dim(2)) + Dim(1),
            floordiv(n, Dim(20)) - Dim(1));
  EXPECT_EQ(floordiv(n + Dim(7), Dim(3)).to_string(), "floordiv(n+1, 3)+2");
  EXPECT_EQ(Dim::parse("floordiv(n+7, 3)"), floordiv(n + Dim(7), Dim(3)));
}

// Chains of divisions and additions have the value that plain arithmetic gives them.
TEST(Floordiv, KeepsItsValue) {
  std::mt19937 random(0);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int chain = 0; chain < 500; ++chain) {
    const int64_t at = draw(0, 300), factor = draw(1, 6);
    Dim dim = Dim(factor) * n;
    int64_t value = factor * at;
    for (int step = 0; step < 4; ++step) {
      const int64_t added = draw(-9, 9), divisor = draw(1, 7), times = draw(1, 3);
      dim = Dim(times) * floordiv(dim + Dim(added), Dim(divisor));
      const int64_t sum = value + added;
      value = times * (sum / divisor - (sum % divisor < 0 ? 1 : 0));
    }
    EXPECT_EQ(evaluate(dim, {{"n", at}}), value) << dim.to_string() << " at " << at;
  }
}

// What pads to a multiple, in the ways people write it.
TEST(Mod, HasOneForm) {
  const Dim pad = mod(Dim(0) - n, Dim(4));
  EXPECT_EQ(mod(Dim(4) - mod(n, Dim(4)), Dim(4)), pad);
  EXPECT_EQ(mod(Dim(3) * n + Dim(8), Dim(4)), pad);
  EXPECT_EQ(mod(Dim(4) * n + Dim(6), Dim(4)), Dim(2));
  EXPECT_EQ(divide_exactly(n + pad, Dim(4)), ceildiv(n, Dim(4)));
  const Dim m = Dim::symbol("m"), padded = m + mod(Dim(0) - m, Dim(4));
  EXPECT_EQ(divide_exactly(Dim(3) * (n + pad) * padded, Dim(16)),
            Dim(3) * ceildiv(n, Dim(4)) * ceildiv(m, Dim(4)));
  EXPECT_EQ(divide_exactly(n + Dim(1) + pad, Dim(4)), std::nullopt);
}

TEST(Mod, KeepsItsValue) {
  for (int64_t divisor = 1; divisor <= 6; ++divisor)
    for (int64_t factor = -7; factor <= 7; ++factor)
      for (int64_t added = -7; added <= 7; ++added)
        for (int64_t at = 0; at <= 6; ++at) {
          const Dim x = Dim(factor) * n + Dim(added);
          const int64_t value = factor * at + added, rest = ((value % divisor) + divisor) % divisor;
          const SymbolValues values = {{"n", at}};
          EXPECT_EQ(evaluate(mod(x, Dim(divisor)), values), rest) << x.to_string();
          EXPECT_EQ(evaluate(floordiv(x, Dim(divisor)), values), (value - rest) / divisor) << x.to_string();
          const Dim twice = mod(x - Dim(3) * mod(n, Dim(2 * divisor)), Dim(divisor));
          EXPECT_EQ(evaluate(twice, values),
                    (((value - 3 * (at % (2 * divisor))) % divisor) + divisor) % divisor);
        }
}

// A size and what it is rounded up to know of each other.
TEST(Bounds, KnowThatRoundingUpLosesNothing) {
  const SymbolRanges ranges = {{"n", {1, 20}}, {"m", {0, 5}}};
  const Dim m = Dim::symbol("m"), rounded = Dim(4) * ceildiv(n, Dim(4));
  EXPECT_EQ(bounds(n - rounded, ranges), (Interval{-3, 0}));
  EXPECT_EQ(bounds(rounded - n + m, ranges), (Interval{0, 8}));
  EXPECT_EQ(bounds(n - Dim(4) * floordiv(n, Dim(4)), ranges), (Interval{0, 3}));
  EXPECT_EQ(bounds(n - Dim(2) * floordiv(n, Dim(4)), ranges), (Interval{-9, 20}));
}

// Signs are no matter to a quotient.
TEST(DivideExactly, TakesDivisorsThatBeginWithMinus) {
  const Dim span = min(n, Dim(9)) - max(n, Dim(3));
  EXPECT_EQ(divide_exactly(Dim(8) * span, span), Dim(8));
  EXPECT_EQ(divide_exactly(Dim(8) * span, Dim(4) * max(n, Dim(3)) - Dim(4) * min(n, Dim(9))), Dim(-2));
}

// A divisor that a stranger may have chosen stays within what multiplies safely.
TEST(Floordiv, JoinsNoDivisorsBeyondBounds) {
  const Dim half = floordiv(n, Dim(int64_t{1} << 62));
  EXPECT_EQ(floordiv(half, Dim(1 << 20)).to_string(), "floordiv(" + half.to_string() + ", 1048576)");
  EXPECT_NO_THROW(floordiv(n + Dim(INT64_MIN), Dim(3)));
}

}  // namespace
}  // namespace aicf
