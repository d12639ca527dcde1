#include "train/schedules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "train/testing/evaluate_graph.h"

namespace aicf {
namespace {

double rate_at(const Graph& schedule, int64_t step) {
  return testing::evaluate_graph(schedule, {{"step", Array::scalar_i64(DType::i64, step)}}).get_f64(0);
}

TEST(Schedules, FollowTheirFormulas) {
  for (int64_t step : {0, 1, 7, 49, 50, 99, 100, 101, 5000}) {
    const double t = static_cast<double>(step), part = std::min(t / 100, 1.0);
    EXPECT_DOUBLE_EQ(rate_at(constant_rate(0.1), step), 0.1);
    EXPECT_DOUBLE_EQ(rate_at(linear_rate(0.5, 0.1, 100), step), 0.5 + (0.1 - 0.5) * part);
    EXPECT_NEAR(rate_at(cosine_rate(0.3, 100, 0.01), step),
                0.01 + (0.3 - 0.01) / 2 * (1 + std::cos(std::numbers::pi * part)), 1e-15);
    EXPECT_NEAR(rate_at(step_rate(0.2, 0.5, 50), step), 0.2 * std::pow(0.5, std::floor(t / 50)), 1e-15);
  }
}

TEST(Schedules, WarmupRisesAndThenBegins) {
  const Graph schedule = with_warmup(cosine_rate(0.3, 90), 10);
  EXPECT_NEAR(rate_at(schedule, 0), 0.03, 1e-15);
  EXPECT_NEAR(rate_at(schedule, 4), 0.15, 1e-15);
  EXPECT_NEAR(rate_at(schedule, 9), 0.3, 1e-15);
  EXPECT_NEAR(rate_at(schedule, 10), 0.3, 1e-15);
  EXPECT_NEAR(rate_at(schedule, 55), 0.15, 1e-15);
  EXPECT_NEAR(rate_at(schedule, 100), 0.0, 1e-15);
  EXPECT_EQ(with_warmup(constant_rate(1), 0).name(), "constant");
}

TEST(Schedules, RefuseWhatIsNoSchedule) {
  EXPECT_THROW(linear_rate(1, 0, 0), UserError);
  EXPECT_THROW(with_warmup(constant_rate(1), -1), UserError);
  Graph vector("vector");
  vector.add_output(
      vector.add(Op::cast, {vector.add_input("step", {DType::i64, {Dim(2)}})}, {{"dtype", DType::f64}}),
      "rate");
  EXPECT_THROW(check_schedule(vector), UserError);
}

}  // namespace
}  // namespace aicf
