#include "passes/pass.h"

namespace aicf {

namespace {

bool reduces_nothing(const Node& node) {
  return op_info(node.op).attribute("axes") != nullptr && node.attrs.get_ints("axes").empty();
}

}  // namespace

// reduce(x, axes) = reshape(reduce(x, axes, keepdims), kept sizes); the same for argmax and argmin. A
// reduction over no axes is x.
Graph keep_reduced_axes(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (op_info(node.op).has(kReduction) && reduces_nothing(node)) {
      rewriter.map(node.results[0], rewriter.value(node.operands[0]));
      continue;
    }
    if (!op_info(node.op).has(kReduction) || node.attrs.get_bool("keepdims")) {
      rewriter.copy(node);
      continue;
    }
    Attrs attrs = node.attrs;
    attrs.set("keepdims", true);
    const ValueId kept = rewriter.graph().add(node.op, rewriter.values(node.operands), attrs, node.origin);
    const Shape& shape = graph.shape(node.results[0]);
    rewriter.map(node.results[0], rewriter.graph().add(Op::reshape, {kept}, {{"shape", shape}}, node.origin));
  }
  return rewriter.finish();
}

}  // namespace aicf
