#include "import/onnx_ops/ml_scores.h"

#include <numeric>

namespace aicf::onnx {
namespace {

ValueId softmax_scores(NodeContext& n, ValueId x, bool zeros_stay) {
  const DType dtype = n.dtype_of(x);
  const Attrs row = {{"axes", Ints{1}}, {"keepdims", true}};
  const ValueId shifted = n.add(Op::sub, {x, n.add(Op::reduce_max, {x}, row)});
  ValueId weights = n.add(Op::exp, {shifted});
  if (zeros_stay) {
    const ValueId small = n.add(Op::le, {n.add(Op::abs, {x}), n.scalar(dtype, 1e-7)});
    weights = n.add(Op::select, {small, n.scalar(dtype, 0), weights});
  }
  return n.add(Op::div, {weights, n.add(Op::reduce_sum, {weights}, row)});
}

void check_transform(const NodeContext& n, const std::string& transform) {
  for (const char* known : {"NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"})
    if (transform == known) return;
  n.unsupported("post_transform=" + transform);
}

}  // namespace

ValueId feature_rows(NodeContext& n) {
  n.require_rank(0, 2);
  const ValueId x = n.in(0);
  return n.cast(x, n.dtype_of(x) == DType::f64 ? DType::f64 : DType::f32);
}

ValueId constant_of(NodeContext& n, DType dtype, const std::vector<float>& values,
                    std::vector<int64_t> sizes) {
  if (element_count(sizes) != static_cast<int64_t>(values.size()))
    n.bad("coefficients", std::to_string(element_count(sizes)) + " numbers", std::to_string(values.size()));
  return n.constant_of(Array::from(dtype, std::move(sizes), values));
}

ValueId transformed_scores(NodeContext& n, ValueId scores, const std::string& transform) {
  const bool known =
      transform == "NONE" || transform == "LOGISTIC" || transform == "SOFTMAX" || transform == "SOFTMAX_ZERO";
  if (!known) n.unsupported("post_transform=" + transform);
  ValueId y = scores;
  if (n.shape_of(scores)[1] != Dim(1) && transform != "NONE")
    y = transform == "LOGISTIC" ? n.add(Op::sigmoid, {scores})
                                : softmax_scores(n, scores, transform == "SOFTMAX_ZERO");
  return n.cast(y, DType::f32);
}

ValueId is_second(NodeContext& n, ValueId score, double border) {
  const ValueId above = n.add(Op::gt, {score, n.scalar(n.dtype_of(score), border)});
  return n.reshape(n.cast(above, DType::i64), {n.shape_of(score)[0]});
}

ValueId scores_of_two(NodeContext& n, ValueId score, const std::string& transform, bool probability) {
  check_transform(n, transform);
  const ValueId negative = n.add(Op::neg, {score});
  std::vector<ValueId> both = {negative, score};
  if (transform == "LOGISTIC")
    both = {n.add(Op::sigmoid, {negative}), n.add(Op::sigmoid, {score})};
  else if (probability)
    both[0] = n.add(Op::sub, {n.scalar(n.dtype_of(score), 1), score});
  return n.cast(n.add(Op::concat, both, {{"axis", int64_t{1}}}), DType::f32);
}

Ints class_labels(NodeContext& n, std::string_view ints, std::string_view strings) {
  const Ints labels = n.attr_ints(ints);
  const AttributeProto* texts = n.attr(strings);
  if (texts == nullptr || texts->strings.empty()) {
    if (labels.empty()) n.bad("attribute '" + std::string(ints) + "'", "the labels of the classes", "none");
    return labels;
  }
  if (n.wants(0))
    n.unsupported("labels that are text: give the classes whole numbers, or take the output of labels away");
  Ints places(texts->strings.size());
  std::iota(places.begin(), places.end(), int64_t{0});
  return places;
}

void out_labels(NodeContext& n, ValueId index, const Ints& labels) {
  if (!n.wants(0)) return;
  const ValueId table = n.constant_of(Array::from(DType::i64, {static_cast<int64_t>(labels.size())}, labels));
  n.out(0, n.add(Op::gather, {table, index}, {{"axis", int64_t{0}}}));
}

}  // namespace aicf::onnx
