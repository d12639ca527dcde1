// Losses over class scores [N, C, d...] and labels [N, d...]; optimizer steps of ai.onnx.preview.training.
#include <numeric>

#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

ValueId sum_all(NodeContext& n, ValueId x) {
  Ints axes(n.shape_of(x).size());
  std::iota(axes.begin(), axes.end(), 0);
  return axes.empty() ? x : n.add(Op::reduce_sum, {x}, {{"axes", axes}});
}

// -log_probabilities at the labels, weighted, ignored labels counting nothing; the mean divides by the sum of
// weights.
void nll(NodeContext& n, ValueId log_probabilities) {
  const std::string reduction = n.attr_str("reduction", "mean");
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    n.unsupported("reduction=" + reduction);
  const DType dtype = n.dtype_of(log_probabilities);
  const ValueId labels = n.in(1);
  const DType index = n.dtype(1);
  const Shape shape = n.shape(1);
  if (shape.empty()) n.bad("labels", "rank 1 or more", "a scalar");
  ValueId ignored = kNoValue, safe = labels;
  if (n.has_attr("ignore_index")) {
    ignored = n.add(Op::eq, {labels, n.iscalar(index, n.attr_int("ignore_index", 0))});
    safe = n.add(Op::select, {ignored, n.iscalar(index, 0), labels});
  }
  Shape column = shape;
  column.insert(column.begin() + 1, Dim(1));
  const ValueId picked =
      n.add(Op::gather_elements, {log_probabilities, n.reshape(safe, column)}, {{"axis", int64_t{1}}});
  ValueId weight = n.has(2) ? n.add(Op::gather, {n.in(2), safe}, {{"axis", int64_t{0}}})
                            : n.broadcast(n.scalar(dtype, 1), shape);
  if (ignored != kNoValue) weight = n.add(Op::select, {ignored, n.scalar(dtype, 0), weight});
  // Ignored places are zero even where the score picked in their stead is infinite.
  ValueId losses = n.add(Op::mul, {n.add(Op::neg, {n.reshape(picked, shape)}), weight});
  if (ignored != kNoValue) losses = n.add(Op::select, {ignored, n.scalar(dtype, 0), losses});
  if (reduction == "none") return n.out(0, losses);
  const ValueId total = sum_all(n, losses);
  n.out(0, reduction == "sum" ? total : n.add(Op::div, {total, sum_all(n, weight)}));
}

void negative_log_likelihood(NodeContext& n) { nll(n, n.in(0)); }

void softmax_cross_entropy(NodeContext& n) {
  const ValueId log_probabilities = n.add(Op::log_softmax, {n.in(0)}, {{"axis", int64_t{1}}});
  nll(n, log_probabilities);
  if (n.wants(1)) n.out(1, log_probabilities);
}

// --- optimizer steps: inputs R, T, then the tensors X1.., their gradients, and each further kind of state.

struct OptimizerStep {
  NodeContext& n;
  DType dtype;
  ValueId num(double v) const { return n.scalar(dtype, v); }
  ValueId add(ValueId a, ValueId b) const { return n.add(Op::add, {a, b}); }
  ValueId sub(ValueId a, ValueId b) const { return n.add(Op::sub, {a, b}); }
  ValueId mul(ValueId a, ValueId b) const { return n.add(Op::mul, {a, b}); }
  ValueId div(ValueId a, ValueId b) const { return n.add(Op::div, {a, b}); }
};

size_t tensor_count(NodeContext& n, size_t kinds) {
  if (n.input_count() < 2 || (n.input_count() - 2) % kinds != 0)
    n.bad("inputs", "R, T and " + std::to_string(kinds) + " per tensor", std::to_string(n.input_count()));
  return (n.input_count() - 2) / kinds;
}

void adagrad(NodeContext& n) {
  const double decay = n.attr_float("decay_factor", 0), epsilon = n.attr_float("epsilon", 0),
               norm = n.attr_float("norm_coefficient", 0);
  const size_t count = tensor_count(n, 3);
  for (size_t i = 0; i < count; ++i) {
    const OptimizerStep s{n, n.dtype(2 + i)};
    const ValueId x = n.in(2 + i), h = n.in(2 + 2 * count + i);
    const ValueId slowed = s.add(s.num(1), s.mul(n.cast(n.reshape(n.in(1), {}), s.dtype), s.num(decay)));
    const ValueId rate = s.div(n.reshape(n.in(0), {}), slowed);
    const ValueId g = s.add(s.mul(x, s.num(norm)), n.in(2 + count + i));
    const ValueId next_h = s.add(h, s.mul(g, g));
    n.out(i, s.sub(x, s.div(s.mul(rate, g), s.add(n.add(Op::sqrt, {next_h}), s.num(epsilon)))));
    n.out(count + i, next_h);
  }
}

void adam(NodeContext& n) {
  const double alpha = n.attr_float("alpha", 0.9), beta = n.attr_float("beta", 0.999),
               epsilon = n.attr_float("epsilon", 0), norm = n.attr_float("norm_coefficient", 0),
               post = n.attr_float("norm_coefficient_post", 0);
  const size_t count = tensor_count(n, 4);
  for (size_t i = 0; i < count; ++i) {
    const OptimizerStep s{n, n.dtype(2 + i)};
    const ValueId x = n.in(2 + i), step = n.cast(n.reshape(n.in(1), {}), s.dtype),
                  rate = n.reshape(n.in(0), {});
    const ValueId g = s.add(s.mul(x, s.num(norm)), n.in(2 + count + i));
    const ValueId v = s.add(s.mul(n.in(2 + 2 * count + i), s.num(alpha)), s.mul(g, s.num(1 - alpha)));
    const ValueId h = s.add(s.mul(n.in(2 + 3 * count + i), s.num(beta)), s.mul(s.mul(g, g), s.num(1 - beta)));
    auto left = [&](double base) { return s.sub(s.num(1), n.add(Op::pow, {s.num(base), step})); };
    // At step 0 the rate is not corrected.
    const ValueId corrected = s.div(s.mul(rate, n.add(Op::sqrt, {left(beta)})), left(alpha));
    const ValueId used = n.add(Op::select, {n.add(Op::gt, {step, s.num(0)}), corrected, rate});
    const ValueId moved = s.sub(x, s.div(s.mul(used, v), s.add(n.add(Op::sqrt, {h}), s.num(epsilon))));
    n.out(i, s.mul(moved, s.num(1 - post)));
    n.out(count + i, v);
    n.out(2 * count + i, h);
  }
}

void momentum(NodeContext& n) {
  const double alpha = n.attr_float("alpha", 0), beta = n.attr_float("beta", 0),
               norm = n.attr_float("norm_coefficient", 0);
  const std::string mode = n.attr_str("mode", "standard");
  if (mode != "standard" && mode != "nesterov") n.unsupported("mode=" + mode);
  const size_t count = tensor_count(n, 3);
  for (size_t i = 0; i < count; ++i) {
    const OptimizerStep s{n, n.dtype(2 + i)};
    const ValueId x = n.in(2 + i), rate = n.reshape(n.in(0), {});
    const ValueId g = s.add(s.mul(x, s.num(norm)), n.in(2 + count + i));
    // The gradient enters undamped at step 0.
    const ValueId first = n.add(Op::eq, {n.reshape(n.in(1), {}), n.iscalar(n.dtype(1), 0)});
    const ValueId damping = n.add(Op::select, {first, s.num(1), s.num(beta)});
    const ValueId v = s.add(s.mul(n.in(2 + 2 * count + i), s.num(alpha)), s.mul(g, damping));
    const ValueId direction = mode == "nesterov" ? s.add(g, s.mul(v, s.num(alpha))) : v;
    n.out(i, s.sub(x, s.mul(rate, direction)));
    n.out(count + i, v);
  }
}

}  // namespace

std::vector<OpRule> loss_rules() {
  constexpr std::string_view kTraining = "ai.onnx.preview.training";
  return {
      {"NegativeLogLikelihoodLoss", negative_log_likelihood},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy},
      {"Adagrad", adagrad, 1, kTraining},
      {"Adam", adam, 1, kTraining},
      {"Momentum", momentum, 1, kTraining},
  };
}

}  // namespace aicf::onnx
