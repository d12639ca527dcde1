#include "train/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "train/testing/evaluate_graph.h"

namespace aicf {
namespace {

Array random_values(std::vector<int64_t> sizes, uint32_t seed, bool probabilities = false) {
  std::mt19937 engine(seed);
  Array array(DType::f64, std::move(sizes));
  for (int64_t i = 0; i < array.count(); ++i)
    array.set_f64(i, probabilities ? std::uniform_real_distribution<>(0, 1)(engine)
                                   : std::normal_distribution<>(0, 2)(engine));
  return array;
}

double loss_of(LossKind kind, const Array& x, const Array& y, const LossOptions& options = {}) {
  Graph graph("main");
  const ValueId a = graph.add_input("x", {x.dtype(), to_shape(x.sizes())});
  const ValueId b = graph.add_input("y", {y.dtype(), to_shape(y.sizes())});
  graph.add_output(add_loss(graph, kind, a, b, options), "loss");
  return testing::evaluate_graph(std::move(graph), {{"x", x}, {"y", y}}).get_f64(0);
}

// The plain formulas, summed over elements.
double plain_sum(LossKind kind, double x, double y, double delta) {
  switch (kind) {
    case LossKind::kMse:
      return (x - y) * (x - y);
    case LossKind::kHuber:
      return std::abs(x - y) <= delta ? (x - y) * (x - y) / 2 : delta * (std::abs(x - y) - delta / 2);
    case LossKind::kBceWithLogits: {
      const double p = 1 / (1 + std::exp(-x));
      return -(y * std::log(p) + (1 - y) * std::log(1 - p));
    }
    default:
      return y > 0 ? y * (std::log(y) - x) : 0;
  }
}

TEST(Losses, ElementwiseOnesFollowTheirFormulas) {
  const Array x = random_values({5, 3}, 1);
  for (LossKind kind :
       {LossKind::kMse, LossKind::kHuber, LossKind::kBceWithLogits, LossKind::kKlDivergence}) {
    const Array y = random_values({5, 3}, 2, kind != LossKind::kMse);
    LossOptions options;
    options.delta = 0.7;
    double sum = 0;
    for (int64_t i = 0; i < 15; ++i) sum += plain_sum(kind, x.get_f64(i), y.get_f64(i), options.delta);
    EXPECT_NEAR(loss_of(kind, x, y, options), sum / (kind == LossKind::kKlDivergence ? 5 : 15), 1e-12);
    options.reduction = LossReduction::kSum;
    EXPECT_NEAR(loss_of(kind, x, y, options), sum, 1e-12);
  }
}

TEST(Losses, KlTakesNothingFromClassesOfProbabilityZero) {
  const Array x = testing::f64({1, 2}, {-0.5, -1000}), y = testing::f64({1, 2}, {1, 0});
  EXPECT_NEAR(loss_of(LossKind::kKlDivergence, x, y), 0.5, 1e-15);
}

// Cross-entropy over rows of classes, labels with one left out.
double plain_cross_entropy(const std::vector<std::vector<double>>& rows, const std::vector<int64_t>& labels,
                           const LossOptions& options) {
  double total = 0;
  int64_t kept = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (labels[r] == options.ignore_index) continue;
    ++kept;
    double sum = 0;
    for (double value : rows[r]) sum += std::exp(value);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const double share = options.label_smoothing / static_cast<double>(rows[r].size()) +
                           (static_cast<int64_t>(c) == labels[r] ? 1 - options.label_smoothing : 0);
      total -= share * (rows[r][c] - std::log(sum));
    }
  }
  return options.reduction == LossReduction::kSum ? total
                                                  : total / static_cast<double>(std::max<int64_t>(kept, 1));
}

TEST(Losses, CrossEntropySmoothsAndIgnores) {
  const Array x = random_values({4, 3}, 3);
  std::vector<std::vector<double>> rows(4);
  for (int64_t i = 0; i < 12; ++i) rows[static_cast<size_t>(i / 3)].push_back(x.get_f64(i));
  for (int64_t ignored : {-100, 1})
    for (double smoothing : {0.0, 0.1})
      for (LossReduction reduction : {LossReduction::kMean, LossReduction::kSum}) {
        const std::vector<int64_t> labels = {2, ignored, 0, 2};
        const LossOptions options{reduction, 1, smoothing, ignored};
        EXPECT_NEAR(loss_of(LossKind::kCrossEntropy, x, Array::from(DType::i64, {4}, labels), options),
                    plain_cross_entropy(rows, labels, options), 1e-12);
      }
}

TEST(Losses, CrossEntropyTakesClassesOnAxisOne) {
  const Array x = random_values({2, 3, 5}, 4);
  std::vector<std::vector<double>> rows;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t d = 0; d < 5; ++d)
      rows.push_back({x.get_f64(n * 15 + d), x.get_f64(n * 15 + 5 + d), x.get_f64(n * 15 + 10 + d)});
  const std::vector<int64_t> labels = {0, 1, 2, 0, 1, 2, 0, 1, 2, 1};
  EXPECT_NEAR(loss_of(LossKind::kCrossEntropy, x, Array::from(DType::i64, {2, 5}, labels)),
              plain_cross_entropy(rows, labels, {}), 1e-12);
}

TEST(Losses, RefuseOperandsThatDoNotFit) {
  const Array x = random_values({4, 3}, 5);
  EXPECT_THROW(loss_of(LossKind::kMse, x, random_values({4, 1}, 6)), UserError);
  EXPECT_THROW(loss_of(LossKind::kCrossEntropy, x, x), UserError);
  EXPECT_THROW(loss_of(LossKind::kCrossEntropy, x, Array(DType::i64, {3})), UserError);
  EXPECT_THROW(loss_kind("hinge"), UserError);
}

}  // namespace
}  // namespace aicf
