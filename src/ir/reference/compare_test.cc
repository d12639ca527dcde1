#include "ir/reference/compare.h"

#include <gtest/gtest.h>

#include <cmath>

namespace aicf {
namespace {

const double kInfinite = INFINITY, kNotANumber = NAN;

Array values(DType dtype, std::vector<double> numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  return Array::from<double>(dtype, {count}, numbers);
}

TEST(Compare, ReportsErrorsAndTheWorstElement) {
  const CompareReport report =
      compare(values(DType::f32, {1, 2.5, -4}), values(DType::f64, {1, 2, -4.25}), 0.125, 0);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.count, 3);
  EXPECT_EQ(report.beyond, 1);
  EXPECT_EQ(report.worst, 1);
  EXPECT_EQ(report.worst_actual, 2.5);
  EXPECT_EQ(report.worst_expected, 2);
  EXPECT_EQ(report.max_abs_error, 0.5);
  EXPECT_EQ(report.max_rel_error, 0.25);
  EXPECT_TRUE(compare(values(DType::f32, {1, 2.5}), values(DType::f64, {1, 2}), 0.25, 0).ok());
  EXPECT_TRUE(compare(values(DType::f32, {0.5, 0}), values(DType::f64, {0, -0.0}), 0, 0.5).ok());
}

TEST(Compare, NanAndInfinityAgreeOnlyWithThemselves) {
  const Array expected = values(DType::f64, {kNotANumber, kInfinite, -kInfinite, 1});
  EXPECT_TRUE(compare(values(DType::f32, {kNotANumber, kInfinite, -kInfinite, 1}), expected, 0, 0).ok());
  const CompareReport report =
      compare(values(DType::f32, {1, -kInfinite, 3e38, kNotANumber}), expected, 1e30, kInfinite);
  EXPECT_EQ(report.nan_mismatches, 2);
  EXPECT_EQ(report.inf_mismatches, 2);
  EXPECT_EQ(report.beyond, 4);
  EXPECT_EQ(report.worst, 0);
}

TEST(Compare, IntegersAreExact) {
  const int64_t big = int64_t{1} << 62;
  const Array a = Array::from<int64_t>(DType::i64, {2}, {big, 5}),
              b = Array::from<int64_t>(DType::i64, {2}, {big + 1, 5});
  EXPECT_TRUE(compare(a, a, 0, 0).ok());
  EXPECT_EQ(compare(a, b, 1, 1e9).beyond, 1);
}

TEST(Compare, AnInfiniteBoundLeavesAnElementUndecided) {
  const Array want = values(DType::f64, {1, 2, kNotANumber, 4});
  const CompareReport report =
      compare(values(DType::f32, {1.5, 2.5, 3, 4.5}), want, {kInfinite, 0.25, kInfinite, 0.5});
  EXPECT_EQ(report.undecided, 2);
  EXPECT_EQ(report.beyond, 1);
  EXPECT_EQ(report.worst, 1);
  EXPECT_EQ(report.worst_allowed, 0.25);
  const CompareReport index = compare(Array::from<int64_t>(DType::i64, {2}, {3, 4}),
                                      Array::from<int64_t>(DType::i64, {2}, {5, 5}), {kInfinite, 0});
  EXPECT_EQ(index.undecided, 1);
  EXPECT_EQ(index.beyond, 1);
}

TEST(Compare, SizesAndEmptyArrays) {
  EXPECT_FALSE(compare(values(DType::f32, {1}), values(DType::f64, {1, 2}), 1, 1).ok());
  const CompareReport empty = compare(values(DType::f32, {}), values(DType::f64, {}), 0, 0);
  EXPECT_TRUE(empty.ok());
  EXPECT_EQ(empty.worst, -1);
}

TEST(Compare, Cosine) {
  EXPECT_EQ(compare(values(DType::f32, {1, 0}), values(DType::f64, {0, 1}), 0, 0).cosine, 0);
  EXPECT_EQ(compare(values(DType::f32, {3, 4}), values(DType::f64, {6, 8}), 0, 0).cosine, 1);
  EXPECT_EQ(compare(values(DType::f32, {0}), values(DType::f64, {0}), 0, 0).cosine, 1);
}

}  // namespace
}  // namespace aicf
