// ai.onnx.ml: linear models and support vector machines, products with what they learnt.
#include <algorithm>

#include "import/onnx_ops/ml_scores.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// The number of features, which the coefficients must fit: a size that is known.
int64_t features(NodeContext& n) {
  n.require_rank(0, 2);
  return n.shape(0)[1].require_constant("the features of node '" + n.origin() + "'");
}

// x · coefficientsᵀ + intercepts, [rows, targets]; the intercepts may be absent.
ValueId linear(NodeContext& n, int64_t targets) {
  const ValueId x = feature_rows(n);
  const DType dtype = n.dtype_of(x);
  const ValueId weights = constant_of(n, dtype, n.attr_floats("coefficients"), {targets, features(n)});
  const ValueId y = n.add(Op::matmul, {x, weights}, {{"transpose_y", true}});
  const std::vector<float> intercepts = n.attr_floats("intercepts");
  return intercepts.empty() ? y : n.add(Op::add, {y, constant_of(n, dtype, intercepts, {targets})});
}

void linear_regressor(NodeContext& n) {
  const std::string transform = n.attr_str("post_transform", "NONE");
  n.out(0, transformed_scores(n, linear(n, n.attr_int("targets", 1)), transform));
}

void linear_classifier(NodeContext& n) {
  const std::string transform = n.attr_str("post_transform", "NONE");
  const Ints labels = class_labels(n, "classlabels_ints", "classlabels_strings");
  n.ignore("multi_class");
  features(n);
  const auto given = static_cast<int64_t>(n.attr_floats("coefficients").size());
  const bool single = given == features(n) && labels.size() == 2;
  const ValueId scores = linear(n, single ? 1 : static_cast<int64_t>(labels.size()));
  if (single) {
    out_labels(n, is_second(n, scores, 0), labels);
    return n.out(1, scores_of_two(n, scores, transform, true));
  }
  out_labels(n, n.add(Op::argmax, {scores}, {{"axis", int64_t{1}}}), labels);
  n.out(1, transformed_scores(n, scores, transform));
}

// What a support vector machine takes for likeness: [rows, vectors].
ValueId kernel(NodeContext& n, ValueId x, ValueId vectors) {
  const std::string type = n.attr_str("kernel_type", "LINEAR");
  const std::vector<float> params = n.attr_floats("kernel_params", {0, 0, 0});
  if (params.size() != 3) n.bad("kernel_params", "gamma, coef0, degree", std::to_string(params.size()));
  const DType dtype = n.dtype_of(x);
  const auto number = [&](size_t i) { return n.scalar(dtype, static_cast<double>(params[i])); };
  if (type == "RBF") {
    const Shape rows = n.shape_of(x), own = n.shape_of(vectors);
    const ValueId apart = n.add(
        Op::sub, {n.reshape(x, {rows[0], Dim(1), rows[1]}), n.reshape(vectors, {Dim(1), own[0], own[1]})});
    const ValueId squares = n.add(Op::reduce_sum, {n.add(Op::mul, {apart, apart})}, {{"axes", Ints{2}}});
    return n.add(Op::exp, {n.add(Op::neg, {n.add(Op::mul, {squares, number(0)})})});
  }
  const ValueId product = n.add(Op::matmul, {x, vectors}, {{"transpose_y", true}});
  if (type == "LINEAR") return product;
  const ValueId scaled = n.add(Op::add, {n.add(Op::mul, {product, number(0)}), number(1)});
  if (type == "POLY") return n.add(Op::pow, {scaled, number(2)});
  if (type == "SIGMOID") return n.add(Op::tanh, {scaled});
  n.bad("kernel_type", "LINEAR, POLY, RBF or SIGMOID", type);
}

// Likeness to the support vectors, or the features themselves if there are none.
ValueId likeness(NodeContext& n, int64_t vectors) {
  const ValueId x = feature_rows(n);
  const std::vector<float> support = n.attr_floats("support_vectors");
  if (vectors != 0) return kernel(n, x, constant_of(n, n.dtype_of(x), support, {vectors, features(n)}));
  n.ignore("kernel_type");
  n.ignore("kernel_params");
  return x;
}

void svm_regressor(NodeContext& n) {
  const std::string transform = n.attr_str("post_transform", "NONE");
  const ValueId near = likeness(n, n.attr_int("n_supports", 0));
  const std::vector<float> coefficients = n.attr_floats("coefficients"), rho = n.attr_floats("rho");
  const DType dtype = n.dtype_of(near);
  const ValueId weights = constant_of(n, dtype, coefficients, {static_cast<int64_t>(coefficients.size()), 1});
  ValueId y = n.add(Op::add, {n.add(Op::matmul, {near, weights}), constant_of(n, dtype, rho, {1})});
  if (n.attr_int("one_class", 0) != 0) {
    const ValueId inside = n.add(Op::gt, {y, n.scalar(dtype, 0)});
    y = n.add(Op::select, {inside, n.scalar(dtype, 1), n.scalar(dtype, -1)});
  }
  n.out(0, transformed_scores(n, y, transform));
}

// A machine for each pair of classes i < j, in that order. `coefficients` has, for each class but one, a row
// over all vectors: the pair takes row j - 1 at the vectors of i, and row i at those of j.
class PairwiseMachines {
 public:
  PairwiseMachines(NodeContext& n, const Ints& labels)
      : n_(n), classes_(static_cast<int64_t>(labels.size())) {
    const Ints counts = n.attr_ints("vectors_per_class");
    if (counts.size() != labels.size())
      n.bad("vectors_per_class", "one for each label", std::to_string(counts.size()));
    for (const int64_t count : counts) {
      starts_.push_back(vectors_);
      if (count < 0 || (vectors_ += count) > kMaxGeneratedElements)
        n.bad("vectors_per_class", "numbers of vectors", std::to_string(count));
    }
    starts_.push_back(vectors_);
  }

  int64_t pairs() const { return classes_ * (classes_ - 1) / 2; }

  // [rows, pairs]
  ValueId scores() {
    const ValueId near = likeness(n_, vectors_);
    const std::vector<float> coefficients = n_.attr_floats("coefficients");
    if (vectors_ == 0 || static_cast<int64_t>(coefficients.size()) != vectors_ * (classes_ - 1))
      n_.unsupported("a machine without support vectors");
    Array weights = n_.generated(n_.dtype_of(near), {vectors_, pairs()});
    for_pairs([&](int64_t pair, int64_t i, int64_t j) {
      for (const auto& [owner, row] : {std::pair{i, j - 1}, std::pair{j, i}})
        for (int64_t v = starts_[static_cast<size_t>(owner)]; v < starts_[static_cast<size_t>(owner) + 1];
             ++v)
          weights.set_f64(v * pairs() + pair,
                          static_cast<double>(coefficients[static_cast<size_t>(row * vectors_ + v)]));
    });
    return n_.add(Op::add, {n_.add(Op::matmul, {near, n_.constant_of(weights)}),
                            constant_of(n_, n_.dtype_of(near), n_.attr_floats("rho"), {pairs()})});
  }

  // The class that most pairs are for, the first of equals: [rows].
  ValueId elected(ValueId scores) {
    Array first = Array(DType::f32, {pairs(), classes_}), second = Array(DType::f32, {pairs(), classes_});
    for_pairs([&](int64_t pair, int64_t i, int64_t j) {
      first.set_f64(pair * classes_ + i, 1);
      second.set_f64(pair * classes_ + j, 1);
    });
    const ValueId won = n_.add(Op::gt, {scores, n_.scalar(n_.dtype_of(scores), 0)});
    const auto count = [&](ValueId yes, const Array& votes) {
      return n_.add(Op::matmul, {n_.cast(yes, DType::f32), n_.constant_of(votes)});
    };
    const ValueId votes = n_.add(Op::add, {count(won, first), count(n_.add(Op::logical_not, {won}), second)});
    return n_.add(Op::argmax, {votes}, {{"axis", int64_t{1}}});
  }

 private:
  template <typename F>
  void for_pairs(const F& f) const {
    int64_t pair = 0;
    for (int64_t i = 0; i < classes_; ++i)
      for (int64_t j = i + 1; j < classes_; ++j) f(pair++, i, j);
  }

  NodeContext& n_;
  int64_t classes_, vectors_ = 0;
  Ints starts_;
};

void svm_classifier(NodeContext& n) {
  const std::string transform = n.attr_str("post_transform", "NONE");
  const Ints labels = class_labels(n, "classlabels_ints", "classlabels_strings");
  if (labels.size() < 2 || labels.size() > 1024) n.unsupported(std::to_string(labels.size()) + " classes");
  if (n.has_attr("prob_a") || n.has_attr("prob_b"))
    n.unsupported("probabilities (prob_a), which are found by iteration: train and export without them");
  PairwiseMachines machines(n, labels);
  const ValueId scores = machines.scores();
  out_labels(n, machines.elected(scores), labels);
  if (labels.size() > 2) return n.out(1, transformed_scores(n, scores, transform));
  const std::vector<float> all = n.attr_floats("coefficients");
  const bool probability = std::all_of(all.begin(), all.end(), [](float c) { return c >= 0; });
  n.out(1, scores_of_two(n, scores, transform, probability));
}

}  // namespace

std::vector<OpRule> ml_linear_rules() {
  return {{"LinearRegressor", linear_regressor, 1, kMl},
          {"LinearClassifier", linear_classifier, 1, kMl},
          {"SVMRegressor", svm_regressor, 1, kMl},
          {"SVMClassifier", svm_classifier, 1, kMl}};
}

}  // namespace aicf::onnx
