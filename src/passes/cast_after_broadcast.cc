#include "passes/pass.h"

namespace aicf {
namespace {

// A reader that broadcasts the value to a larger shape while it computes element by element.
bool broadcasts(const Graph& graph, const Node& reader, ValueId id) {
  if (!op_info(reader.op).has(kPointwise) || reader.results.size() != 1) return false;
  return !(graph.shape(reader.results[0]) == graph.shape(id));
}

}  // namespace

// f(x, cast(w)) = f(x, cast(broadcast(w))) for a stored w that f broadcasts: the cast, alone a kernel of its
// own over a few elements, then has the domain of f and joins its region; the broadcast is a view. Improves
// normalisations of half-precision models, whose scale and bias are cast to f32 (two kernels fewer for each).
Graph cast_after_broadcast(const Graph& graph, const PassContext&) {
  std::vector<const Node*> cast_of(static_cast<size_t>(graph.value_count()), nullptr);
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::cast) continue;
    const Role role = graph.value(node.operands[0]).role;
    if (role == Role::kParam || role == Role::kState) cast_of[static_cast<size_t>(node.results[0])] = &node;
  }
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    std::vector<ValueId> operands = rewriter.values(node.operands);
    bool changed = false;
    for (size_t i = 0; i < operands.size(); ++i) {
      const ValueId id = node.operands[i];
      const Node* cast = id == kNoValue ? nullptr : cast_of[static_cast<size_t>(id)];
      if (cast == nullptr || !broadcasts(graph, node, id)) continue;
      const ValueId wide = rewriter.graph().add(Op::broadcast_to, {rewriter.value(cast->operands[0])},
                                                {{"shape", graph.shape(node.results[0])}}, cast->origin);
      operands[i] = rewriter.graph().add(Op::cast, {wide}, cast->attrs, cast->origin);
      changed = true;
    }
    if (changed) {
      rewriter.map(node.results[0], rewriter.graph().add(node.op, operands, node.attrs, node.origin));
    } else {
      rewriter.copy(node);
    }
  }
  return eliminate_dead_code(rewriter.finish());
}

}  // namespace aicf
