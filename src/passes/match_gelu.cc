#include <cmath>
#include <optional>
#include <vector>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

constexpr double kTolerance = 1e-6;  // of constants that models hold in f32 (or 1e-3 of them, in half types)

bool is_about(double value, double wanted, DType dtype) {
  const double tolerance = is_half(dtype) ? 4e-3 : kTolerance;
  return std::abs(value - wanted) <= tolerance * wanted;
}

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph), uses_(graph.use_counts()) {}

  // x of 0.5 x (1 + erf(x / sqrt(2))) if `node` computes it.
  std::optional<ValueId> match(const Node& node) const {
    if (node.op != Op::mul && node.op != Op::div) return std::nullopt;
    const DType dtype = graph_.dtype(node.results[0]);
    const Scaled whole = product_in(node, dtype);
    const Node* product = producer_with_op(graph_, whole.value, Op::mul);
    if (product == nullptr || (whole.value != node.results[0] && !is_alone(whole.value, dtype)))
      return std::nullopt;
    for (size_t i = 0; i < 2; ++i) {
      // The half may stand with either operand of the product.
      const Scaled phi = factors(product->operands[1 - i], dtype).back();
      for (const Scaled& x : factors(product->operands[i], dtype))
        if (is_about(whole.factor * phi.factor * x.factor, 0.5, dtype) &&
            is_twice_phi(phi.value, x.value, dtype))
          return x.value;
    }
    return std::nullopt;
  }

 private:
  // The value as a multiple of itself, of what it is a multiple of, and so on; not through values that others
  // read too, which would then be computed beside the gelu. Of halves through those as well: whether this is
  // one gelu decides what is rounded, and readers must not.
  std::vector<Scaled> factors(ValueId id, DType dtype) const {
    std::vector<Scaled> found{{id, 1}};
    for (;;) {
      const Node* node = graph_.producer(found.back().value);
      const auto inner = node == nullptr ? std::nullopt : multiple(*node, dtype);
      if (!inner || !is_alone(found.back().value, dtype)) return found;
      found.push_back({inner->value, found.back().factor * inner->factor});
    }
  }

  // Beside a half, a number that is none of its own stands between casts.
  std::optional<Scaled> multiple(const Node& node, DType dtype) const {
    if (node.op != Op::cast || !is_half(dtype)) return scaled(graph_, node);
    return is_float(graph_.dtype(node.operands[0])) ? std::optional(Scaled{node.operands[0], 1})
                                                    : std::nullopt;
  }

  // What the node is a multiple of; the node's own result may have any number of readers.
  Scaled product_in(const Node& node, DType dtype) const {
    const auto inner = scaled(graph_, node);
    if (!inner) return {node.results[0], 1};
    const Scaled rest = factors(inner->value, dtype).back();
    return {rest.value, inner->factor * rest.factor};
  }

  bool is_alone(ValueId id, DType dtype) const { return is_half(dtype) || used_once(uses_, id); }

  // 1 + erf(x / sqrt(2)), in either order.
  bool is_twice_phi(ValueId id, ValueId x, DType dtype) const {
    const Node* sum = producer_with_op(graph_, id, Op::add);
    if (sum == nullptr || !is_alone(id, dtype)) return false;
    for (size_t i = 0; i < 2; ++i) {
      const Node* erf = producer_with_op(graph_, sum->operands[i], Op::erf);
      if (erf == nullptr || !is_alone(sum->operands[i], dtype)) continue;
      if (scalar_constant(graph_, sum->operands[1 - i]) != 1.0) continue;
      for (const Scaled& inner : factors(erf->operands[0], dtype))
        if (inner.value == x && is_about(inner.factor, std::sqrt(0.5), dtype)) return true;
    }
    return false;
  }

  const Graph& graph_;
  const std::vector<int> uses_;
};

}  // namespace

// 0.5 x (1 + erf(x / sqrt(2))) = gelu(x), however the factors are spread: exporters write the five ops out.
// One function instead of five passes over the values, and its far negative tail is exact, where 1 + erf
// cancels. Serves BERT and MiniLM: the epilogue of the widest contraction of each layer.
Graph match_gelu(const Graph& graph, const PassContext&) {
  const Matcher matcher(graph);
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const auto x = matcher.match(node);
    if (x && graph.type(*x) == graph.type(node.results[0]))
      rewriter.map(node.results[0], rewriter.graph().add(Op::gelu, {rewriter.value(*x)}, {}, node.origin));
    else
      rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace aicf
