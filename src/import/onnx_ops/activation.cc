// Activations, by their formulas in the ONNX operator list.
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// Emits arithmetic on one dtype with plain numbers.
struct Math {
  NodeContext& n;
  DType dtype;
  ValueId num(double value) const { return n.scalar(dtype, value); }
  ValueId mul(ValueId x, double y) const { return y == 1.0 ? x : n.add(Op::mul, {x, num(y)}); }
  ValueId add(ValueId x, double y) const { return y == 0.0 ? x : n.add(Op::add, {x, num(y)}); }
  ValueId clamp(ValueId x, double low, double high) const {
    return n.add(Op::clamp, {x, num(low), num(high)});
  }
};

template <Op op>
void unary_activation(NodeContext& n) {
  n.out(0, n.add(op, {n.in(0)}));
}

void leaky_relu(NodeContext& n) {
  n.out(0, n.add(Op::leaky_relu, {n.in(0)}, {{"alpha", n.attr_float("alpha", 0.01)}}));
}
void elu(NodeContext& n) { n.out(0, n.add(Op::elu, {n.in(0)}, {{"alpha", n.attr_float("alpha", 1.0)}})); }

// gamma (x if x > 0 else alpha (e^x - 1))
void selu(NodeContext& n) {
  const Math m{n, n.dtype(0)};
  const double alpha = n.attr_float("alpha", 1.67326319217681884765625);
  n.out(0, m.mul(n.add(Op::elu, {n.in(0)}, {{"alpha", alpha}}),
                 n.attr_float("gamma", 1.05070102214813232421875)));
}

// max(0, x) + min(0, alpha (e^(x / alpha) - 1)); for alpha > 0 this is alpha elu(x / alpha).
void celu(NodeContext& n) {
  const Math m{n, n.dtype(0)};
  const double alpha = n.attr_float("alpha", 1.0);
  const ValueId x = n.in(0);
  const ValueId low = m.mul(n.add(Op::expm1, {n.add(Op::div, {x, m.num(alpha)})}), alpha);
  n.out(0, n.add(Op::add, {n.add(Op::max, {x, m.num(0)}), n.add(Op::min, {low, m.num(0)})}));
}

void hard_sigmoid(NodeContext& n) {
  const Math m{n, n.dtype(0)};
  n.out(0, m.clamp(m.add(m.mul(n.in(0), n.attr_float("alpha", 0.2)), n.attr_float("beta", 0.5)), 0, 1));
}

void hard_swish(NodeContext& n) {
  const Math m{n, n.dtype(0)};
  const ValueId x = n.in(0);
  constexpr double kSixth = 1.0F / 6.0F;  // an attribute of the function that the operator is, so an f32
  n.out(0, n.add(Op::mul, {x, m.clamp(m.add(m.mul(x, kSixth), 0.5), 0, 1)}));
}

void mish(NodeContext& n) {
  const ValueId x = n.in(0);
  n.out(0, n.add(Op::mul, {x, n.add(Op::tanh, {n.add(Op::softplus, {x})})}));
}

void softsign(NodeContext& n) {
  const Math m{n, n.dtype(0)};
  const ValueId x = n.in(0);
  n.out(0, n.add(Op::div, {x, m.add(n.add(Op::abs, {x}), 1.0)}));
}

void thresholded_relu(NodeContext& n) {
  const Math m{n, n.dtype(0)};
  const ValueId x = n.in(0);
  n.out(0, n.add(Op::select, {n.add(Op::gt, {x, m.num(n.attr_float("alpha", 1.0))}), x, m.num(0)}));
}

void shrink(NodeContext& n) {
  const DType dtype = n.dtype(0);
  // Integers are shrunk in f64, which holds both them and a fractional bias.
  const DType wide = is_float(dtype) ? dtype : DType::f64;
  const Math m{n, wide};
  const ValueId x = n.cast(n.in(0), wide);
  const double bias = n.attr_float("bias", 0.0), lambda = n.attr_float("lambd", 0.5);
  const ValueId above = n.add(Op::select, {n.add(Op::gt, {x, m.num(lambda)}), m.add(x, -bias), m.num(0)});
  n.out(0, n.cast(n.add(Op::select, {n.add(Op::lt, {x, m.num(-lambda)}), m.add(x, bias), above}), dtype));
}

void prelu(NodeContext& n) {
  const ValueId x = n.in(0), zero = n.scalar(n.dtype(0), 0);
  n.out(0, n.add(Op::select, {n.add(Op::lt, {x, zero}), n.add(Op::mul, {x, n.in(1)}), x}));
}

void gelu(NodeContext& n) {
  const std::string approximate = n.attr_str("approximate", "none");
  if (approximate != "none" && approximate != "tanh") n.unsupported("approximate=" + approximate);
  n.out(0, n.add(Op::gelu, {n.in(0)}, {{"approximate", approximate}}));
}

// com.microsoft: tanh form over x + bias.
void fast_gelu(NodeContext& n) {
  const ValueId x = n.has(1) ? n.add(Op::add, {n.in(0), n.in(1)}) : n.in(0);
  n.out(0, n.add(Op::gelu, {x}, {{"approximate", std::string("tanh")}}));
}

void bias_gelu(NodeContext& n) { n.out(0, n.add(Op::gelu, {n.add(Op::add, {n.in(0), n.in(1)})})); }

void swish(NodeContext& n) {
  const Math m{n, n.dtype(0)};
  const double alpha = n.attr_float("alpha", 1.0);
  const ValueId x = n.in(0);
  n.out(0, alpha == 1.0 ? n.add(Op::silu, {x}) : n.add(Op::mul, {x, n.add(Op::sigmoid, {m.mul(x, alpha)})}));
}

// Applies `op` along `axis`, or over all axes from `axis` on (the form before opset 13).
template <typename Apply>
void along_axis(NodeContext& n, Apply apply) {
  const int64_t rank = n.rank(0);
  const int64_t given = n.attr_int("axis", -1);
  const bool flatten = n.attr_int("flatten", 0) != 0;
  const int64_t axis = flatten && given == rank ? rank : n.axis(given, rank);
  if (!flatten) return n.out(0, apply(n.in(0), axis));
  const Shape shape = n.shape(0);
  const Dim rows = element_count(Shape(shape.begin(), shape.begin() + axis));
  const Dim columns = element_count(Shape(shape.begin() + axis, shape.end()));
  n.out(0, n.reshape(apply(n.reshape(n.in(0), {rows, columns}), 1), shape));
}

template <Op op>
void softmax(NodeContext& n) {
  along_axis(n, [&](ValueId x, int64_t axis) { return n.add(op, {x}, {{"axis", axis}}); });
}

void hardmax(NodeContext& n) {
  along_axis(n, [&](ValueId x, int64_t axis) {
    const DType dtype = n.dtype_of(x);
    const Dim depth = n.shape_of(x)[static_cast<size_t>(axis)];
    const ValueId index = n.add(Op::argmax, {x}, {{"axis", axis}});
    return n.add(Op::one_hot, {index, n.scalar(dtype, 1), n.scalar(dtype, 0)},
                 {{"depth", Shape{depth}}, {"axis", axis}});
  });
}

}  // namespace

std::vector<OpRule> activation_rules() {
  return {
      {"Relu", unary_activation<Op::relu>},
      {"Sigmoid", unary_activation<Op::sigmoid>},
      {"Softplus", unary_activation<Op::softplus>},
      {"LeakyRelu", leaky_relu},
      {"Elu", elu},
      {"Selu", selu},
      {"Celu", celu},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_swish},
      {"Mish", mish},
      {"Softsign", softsign},
      {"ThresholdedRelu", thresholded_relu},
      {"Shrink", shrink},
      {"PRelu", prelu},
      {"Gelu", gelu},
      {"Swish", swish},
      {"Softmax", softmax<Op::softmax>},
      {"LogSoftmax", softmax<Op::log_softmax>},
      {"Hardmax", hardmax},
      {"Gelu", gelu, 1, kContrib},
      {"FastGelu", fast_gelu, 1, kContrib},
      {"BiasGelu", bias_gelu, 1, kContrib},
  };
}

}  // namespace aicf::onnx
