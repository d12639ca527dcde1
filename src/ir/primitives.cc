#include "ir/primitives.h"

#include <algorithm>

#include "ir/decompose.h"

namespace aicf {
namespace {

// The bodies of regions and calls in their place, composites as their decompositions.
Graph taken_apart(const Graph& graph) {
  GraphRewriter rewriter(graph);
  const auto map = [&](const Node& node, const std::vector<ValueId>& results) {
    for (size_t i = 0; i < node.results.size(); ++i) rewriter.map(node.results[i], results[i]);
  };
  for (const Node& node : graph.nodes()) {
    const std::vector<ValueId> operands = rewriter.values(node.operands);
    if (node.op == Op::fused || node.op == Op::call) {
      map(node, inline_body(rewriter.graph(), primitives(node.bodies[0]), operands));
    } else if (!node.bodies.empty()) {
      std::vector<Graph> bodies;
      for (const Graph& body : node.bodies) bodies.push_back(primitives(body));
      const NodeId id =
          rewriter.graph().add_node(node.op, operands, node.attrs, std::move(bodies), node.origin);
      map(node, rewriter.graph().node(id).results);
    } else if (op_info(node.op).has(kComposite)) {
      map(node, decompose(rewriter.graph(), node, operands));
    } else {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();
}

bool holds_composites(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return op_info(node.op).has(kComposite) ||
           std::any_of(node.bodies.begin(), node.bodies.end(), holds_composites);
  });
}

}  // namespace

// A decomposition may use other composites.
Graph primitives(const Graph& graph) {
  Graph apart = taken_apart(graph);
  while (holds_composites(apart)) apart = taken_apart(apart);
  return apart;
}

}  // namespace aicf
