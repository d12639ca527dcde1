#include "passes/pass.h"

namespace aicf {
namespace {

constexpr size_t kFactors = 2;  // the operands that are multiplied; a bias comes behind them

// No CPU multiplies in tf32; a GPU does where a row says so.
bool rounds_operands(const Graph& graph, const Node& node, const Target& target) {
  const Attr* tf32 = node.attrs.find("tf32");
  if (tf32 == nullptr || !std::get<bool>(*tf32)) return false;
  return !target.is_cuda() || !(target.claims(graph, node) || target.takes_epilogue(graph, node));
}

}  // namespace

Graph round_tf32_operands(const Graph& graph, const PassContext& context) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!rounds_operands(graph, node, context.target)) {
      rewriter.copy(node);
      continue;
    }
    std::vector<ValueId> operands = rewriter.values(node.operands);
    for (size_t i = 0; i < kFactors; ++i)
      operands[i] = rewriter.graph().add(Op::round_tf32, {operands[i]}, {}, node.origin);
    Attrs attrs = node.attrs;
    attrs.set("tf32", false);
    rewriter.map(node.results[0], rewriter.graph().add(node.op, operands, attrs, node.origin));
  }
  return rewriter.finish();
}

}  // namespace aicf
