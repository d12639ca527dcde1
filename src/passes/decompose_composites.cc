#include <algorithm>

#include "ir/decompose.h"
#include "passes/pass.h"

namespace aicf {
namespace {

bool wants_decomposition(const Graph& graph, const Node& node, const Target& target) {
  return op_info(node.op).has(kComposite) && !target.claims(graph, node);
}

// Composites within composites stay for the next time.
Graph decompose_once(const Graph& graph, const PassContext& context) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!wants_decomposition(graph, node, context.target)) {
      rewriter.copy(node);
      continue;
    }
    const std::vector<ValueId> operands = rewriter.values(node.operands);
    const std::vector<ValueId> results = decompose(rewriter.graph(), node, operands);
    for (size_t i = 0; i < results.size(); ++i) rewriter.map(node.results[i], results[i]);
  }
  return rewriter.finish();
}

}  // namespace

// A decomposition may use other composites, so this repeats until every composite left is claimed.
Graph decompose_composites(const Graph& graph, const PassContext& context) {
  Graph current = decompose_once(graph, context);
  const auto wanted = [&](const Node& node) { return wants_decomposition(current, node, context.target); };
  while (std::any_of(current.nodes().begin(), current.nodes().end(), wanted))
    current = decompose_once(current, context);
  return current;
}

}  // namespace aicf
