#include "ir/decompose.h"
#include "ir/precision.h"
#include "passes/pass.h"

namespace aicf {
namespace {

// A recurrent layer that no kernel takes whole holds products of its own.
Graph with_products_of_layers(const Graph& graph, const Target& target) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const bool is_layer = node.op == Op::recurrent || node.op == Op::recurrent_backward;
    if (!is_layer || target.claims(graph, node)) {
      rewriter.copy(node);
      continue;
    }
    const std::vector<ValueId> results = decompose(rewriter.graph(), node, rewriter.values(node.operands));
    for (size_t i = 0; i < results.size(); ++i) rewriter.map(node.results[i], results[i]);
  }
  return rewriter.finish();
}

}  // namespace

Graph narrow_contractions(const Graph& graph, const PassContext& context) {
  if (context.precision == Precision::kF32) return graph;
  const Graph whole = with_products_of_layers(graph, context.target);
  if (context.precision == Precision::kTf32) return multiply_in_tf32(whole);
  const std::optional<DType> dtype = contraction_dtype(context.precision);
  return dtype ? narrow_contractions(whole, *dtype) : whole;
}

}  // namespace aicf
