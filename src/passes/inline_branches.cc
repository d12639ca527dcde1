#include <algorithm>

#include "passes/pass.h"

namespace aicf {
namespace {

// An index outside its axis is an error when running, so an op that reads indices must not run in the branch
// that the condition rules out.
bool can_fail(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    switch (node.op) {
      case Op::gather:
      case Op::gather_elements:
      case Op::gather_nd:
      case Op::scatter_elements:
      case Op::scatter_nd:
      case Op::cross_entropy:
      case Op::linear_cross_entropy:
      case Op::linear_cross_entropy_backward:
      case Op::while_loop:
        return true;
      default:
        return std::any_of(node.bodies.begin(), node.bodies.end(), can_fail);
    }
  });
}

bool wants_inlining(const Node& node) {
  return node.op == Op::if_else && !can_fail(node.bodies[0]) && !can_fail(node.bodies[1]);
}

void inline_branches_of(GraphRewriter& rewriter, const Node& node) {
  Graph& graph = rewriter.graph();
  const std::vector<ValueId> operands = rewriter.values(node.operands);
  const std::vector<ValueId> captures(operands.begin() + 1, operands.end());
  const std::vector<ValueId> first = inline_body(graph, node.bodies[0], captures),
                             second = inline_body(graph, node.bodies[1], captures);
  for (size_t i = 0; i < first.size(); ++i)
    rewriter.map(node.results[i], graph.add(Op::select, {operands[0], first[i], second[i]}, {}, node.origin));
}

}  // namespace

// Branches lie within branches, so this repeats until none is left that may be inlined.
Graph inline_branches(const Graph& graph, const PassContext&) {
  Graph current = graph;
  while (std::any_of(current.nodes().begin(), current.nodes().end(), wants_inlining)) {
    GraphRewriter rewriter(current);
    for (const Node& node : current.nodes()) {
      if (wants_inlining(node)) {
        inline_branches_of(rewriter, node);
      } else {
        rewriter.copy(node);
      }
    }
    current = rewriter.finish();
  }
  return current;
}

}  // namespace aicf
