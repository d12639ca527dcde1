#include "ir/decompose.h"
#include "passes/pass.h"

namespace aicf {
namespace {

bool wants_decomposition(const Graph& graph, const Node& node, const Target& target) {
  return op_info(node.op).has(kComposite) && !target.claims(graph, node);
}

}  // namespace

// A decomposition may use other composites, so this repeats until every composite left is claimed.
Graph decompose_composites(const Graph& graph, const PassContext& context) {
  Graph current = graph;
  for (;;) {
    GraphRewriter rewriter(current);
    bool changed = false;
    for (const Node& node : current.nodes()) {
      if (!wants_decomposition(current, node, context.target)) {
        rewriter.copy(node);
        continue;
      }
      const std::vector<ValueId> results = decompose(rewriter.graph(), node, rewriter.values(node.operands));
      for (size_t i = 0; i < results.size(); ++i) rewriter.map(node.results[i], results[i]);
      changed = true;
    }
    Graph next = rewriter.finish();
    if (!changed) return next;
    current = std::move(next);
  }
}

}  // namespace aicf
