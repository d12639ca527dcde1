#include "import/onnx_ops/recurrent_cell.h"

#include "import/onnx_ops/quant.h"

namespace aicf::onnx {
namespace {

// Which numbers an activation takes, and their defaults, as in the operator list.
struct ActivationRow {
  std::string_view name;
  bool takes_alpha, takes_beta;
  double alpha, beta;
};
constexpr ActivationRow kActivations[] = {
    {"Relu", false, false, 0, 0},        {"Tanh", false, false, 0, 0},
    {"Sigmoid", false, false, 0, 0},     {"Softsign", false, false, 0, 0},
    {"Softplus", false, false, 0, 0},    {"Affine", true, true, 1, 0},
    {"LeakyRelu", true, false, 0.01, 0}, {"ThresholdedRelu", true, false, 1, 0},
    {"ScaledTanh", true, true, 1, 1},    {"HardSigmoid", true, true, 0.2, 0.5},
    {"Elu", true, false, 1, 0},
};

const ActivationRow& activation_row(const NodeContext& n, const std::string& name) {
  for (const ActivationRow& row : kActivations)
    if (row.name == name) return row;
  n.unsupported("activation " + name);
}

}  // namespace

std::vector<Activation> read_activations(NodeContext& n, const std::vector<std::string>& defaults) {
  std::vector<std::string> names;
  if (const AttributeProto* given = n.attr("activations")) names = given->strings;
  if (names.empty()) names = defaults;
  const std::vector<float> alphas = n.attr_floats("activation_alpha"),
                           betas = n.attr_floats("activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<Activation> result;
  for (const std::string& name : names) {
    const ActivationRow& row = activation_row(n, name);
    Activation activation{name, row.alpha, row.beta};
    if (row.takes_alpha && alpha < alphas.size()) activation.alpha = static_cast<double>(alphas[alpha++]);
    if (row.takes_beta && beta < betas.size()) activation.beta = static_cast<double>(betas[beta++]);
    result.push_back(activation);
  }
  return result;
}

Activation make_activation(const NodeContext& n, const std::string& name, const std::vector<float>& numbers) {
  const ActivationRow& row = activation_row(n, name);
  Activation activation{name, row.alpha, row.beta};
  size_t at = 0;
  if (row.takes_alpha && at < numbers.size()) activation.alpha = static_cast<double>(numbers[at++]);
  if (row.takes_beta && at < numbers.size()) activation.beta = static_cast<double>(numbers[at++]);
  return activation;
}

ValueId activate(NodeContext& n, const Activation& activation, ValueId x) {
  const auto& [name, alpha, beta] = activation;
  const auto num = [&](double value) { return n.scalar(n.dtype_of(x), value); };
  const auto scaled = [&](ValueId v, double by) { return n.add(Op::mul, {v, num(by)}); };
  if (name == "Tanh") return n.add(Op::tanh, {x});
  if (name == "Relu") return n.add(Op::relu, {x});
  if (name == "Softplus") return n.add(Op::softplus, {x});
  if (name == "Softsign") return n.add(Op::div, {x, n.add(Op::add, {n.add(Op::abs, {x}), num(1)})});
  if (name == "Affine") return n.add(Op::add, {scaled(x, alpha), num(beta)});
  if (name == "LeakyRelu") return n.add(Op::leaky_relu, {x}, {{"alpha", alpha}});
  if (name == "Elu") return n.add(Op::elu, {x}, {{"alpha", alpha}});
  if (name == "ThresholdedRelu") return n.add(Op::select, {n.add(Op::gt, {x, num(alpha)}), x, num(0)});
  if (name == "ScaledTanh") return scaled(n.add(Op::tanh, {scaled(x, beta)}), alpha);
  if (name == "HardSigmoid")
    return n.add(Op::clamp, {n.add(Op::add, {scaled(x, alpha), num(beta)}), num(0), num(1)});
  return n.add(Op::sigmoid, {x});
}

ValueId Cell::activate(size_t which, ValueId x) const {
  if (clip > 0) x = n.add(Op::clamp, {x, num(-clip), num(clip)});
  return onnx::activate(n, activations[which], x);
}

ValueId Cell::project(ValueId x, const GateWeights& weights, ValueId bias) const {
  if (weights.scale == kNoValue) return n.add(Op::linear, {x, weights.values, bias}, {{"transpose_w", true}});
  const DynamicallyQuantized q = quantize_dynamically(n, x);
  const ValueId product = integer_matmul(n, q.values, q.zero, weights.values, weights.zero);
  const ValueId scale = mul(q.scale, weights.scale);
  const ValueId y = mul(n.cast(product, n.dtype_of(scale)), scale);
  return bias == kNoValue ? y : add(y, bias);
}

ValueId Cell::rnn(ValueId wx, ValueId h) const { return activate(0, add(wx, project(h, r, bias_r))); }

ValueId Cell::gru(ValueId wx, ValueId h) const {
  const ValueId rh = project(h, r, bias_r);
  const ValueId z = activate(0, add(gate(wx, 0), gate(rh, 0))),
                reset = activate(0, add(gate(wx, 1), gate(rh, 1)));
  ValueId inner;
  if (linear_before_reset) {
    inner = mul(reset, gate(rh, 2));
  } else {
    const GateWeights r_h{n.slice_axis(r.values, 0, 2 * hidden, 3 * hidden)};  // a GRU has floats only
    const ValueId bias = bias_r == kNoValue ? kNoValue : n.slice_axis(bias_r, 0, 2 * hidden, 3 * hidden);
    inner = project(mul(reset, h), r_h, bias);
  }
  const ValueId candidate = activate(1, add(gate(wx, 2), inner));
  return add(mul(n.add(Op::sub, {num(1), z}), candidate), mul(z, h));
}

// Gates i, o, f, c; peepholes i, o, f.
std::pair<ValueId, ValueId> Cell::lstm(ValueId wx, ValueId h, ValueId c) const {
  const ValueId all = add(wx, project(h, r, bias_r));
  auto peeped = [&](int64_t g, ValueId cell) {
    return peephole == kNoValue ? gate(all, g) : add(gate(all, g), mul(peep(g), cell));
  };
  const ValueId i = activate(0, peeped(0, c));
  const ValueId f = input_forget ? n.add(Op::sub, {num(1), i}) : activate(0, peeped(2, c));
  const ValueId next_c = add(mul(f, c), mul(i, activate(1, gate(all, 3))));
  const ValueId o = activate(0, peeped(1, next_c));
  // The clip is for gates: onnxruntime leaves the cell as it is.
  return {mul(o, onnx::activate(n, activations[2], next_c)), next_c};
}

}  // namespace aicf::onnx
