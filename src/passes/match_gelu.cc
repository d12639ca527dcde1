#include <cmath>
#include <optional>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

constexpr double kTolerance = 1e-6;  // of constants that models hold in f32 (or 1e-3 of them, in half types)

bool is_about(double value, double wanted, DType dtype) {
  const double tolerance = dtype == DType::f16 || dtype == DType::bf16 ? 4e-3 : kTolerance;
  return std::abs(value - wanted) <= tolerance * wanted;
}

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph), uses_(graph.use_counts()) {}

  // x of 0.5 x (1 + erf(x / sqrt(2))) if `node` computes it.
  std::optional<ValueId> match(const Node& node) const {
    if (node.op != Op::mul && node.op != Op::div) return std::nullopt;
    const DType dtype = graph_.dtype(node.results[0]);
    double factor = 1;
    const Node* product = strip_factors(&node, factor);
    if (product->op != Op::mul) return std::nullopt;
    for (size_t i = 0; i < 2; ++i) {
      // The half may stand with either operand of the product.
      double half = factor;
      const ValueId x = strip_factors(product->operands[i], half);
      const ValueId phi = strip_factors(product->operands[1 - i], half);
      if (is_about(half, 0.5, dtype) && is_twice_phi(phi, x, dtype)) return x;
    }
    return std::nullopt;
  }

 private:
  const Node* strip_factors(const Node* node, double& factor) const {
    for (;;) {
      const auto inner = scaled(graph_, *node);
      if (!inner) return node;
      const Node* next = graph_.producer(inner->value);
      if (next == nullptr || !used_once(uses_, inner->value)) return node;
      factor *= inner->factor;
      node = next;
    }
  }

  ValueId strip_factors(ValueId id, double& factor) const {
    for (;;) {
      const Node* node = graph_.producer(id);
      const auto inner = node != nullptr && used_once(uses_, id) ? scaled(graph_, *node) : std::nullopt;
      if (!inner) return id;
      factor *= inner->factor;
      id = inner->value;
    }
  }

  // 1 + erf(x / sqrt(2)), in either order.
  bool is_twice_phi(ValueId id, ValueId x, DType dtype) const {
    const Node* sum = producer_of(graph_, id, Op::add);
    if (sum == nullptr || !used_once(uses_, id)) return false;
    for (size_t i = 0; i < 2; ++i) {
      const Node* erf = producer_of(graph_, sum->operands[i], Op::erf);
      if (erf == nullptr || !used_once(uses_, sum->operands[i])) continue;
      if (scalar_constant(graph_, sum->operands[1 - i]) != 1.0) continue;
      double factor = 1;
      if (strip_factors(erf->operands[0], factor) == x && is_about(factor, std::sqrt(0.5), dtype))
        return true;
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
