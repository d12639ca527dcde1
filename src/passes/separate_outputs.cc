#include <set>

#include "passes/pass.h"

namespace aicf {

namespace {

// What the value is a reshape of.
ValueId reshaped(const Graph& graph, ValueId id) {
  const Node* producer = graph.producer(id);
  while (producer != nullptr && producer->op == Op::reshape) {
    id = producer->operands[0];
    producer = graph.producer(id);
  }
  return id;
}

// The source, if an earlier output is already the same elements of a pointwise op; kNoValue: it is not.
ValueId taken_source(const Graph& graph, ValueId id, std::set<ValueId>& taken) {
  const ValueId source = reshaped(graph, id);
  const Node* producer = graph.producer(source);
  const bool is_first = taken.insert(source).second;
  return !is_first && producer != nullptr && op_info(producer->op).has(kPointwise) ? source : kNoValue;
}

}  // namespace

// An output that another one is already, as the gradients of both operands of a sum are, becomes a cast to
// its own type: a copy that the region of the value can store beside it.
Graph separate_outputs(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) rewriter.copy(node);
  Graph& made = rewriter.graph();
  std::set<ValueId> taken;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    ValueId id = rewriter.value(graph.outputs()[i]);
    const TensorType type = made.type(id);
    if (const ValueId source = taken_source(made, id, taken); source != kNoValue) {
      id = made.add(Op::cast, {source}, {{"dtype", type.dtype}});
      if (!(made.shape(id) == type.shape)) id = made.add(Op::reshape, {id}, {{"shape", type.shape}});
    }
    made.add_output(id, graph.output_names()[i]);
  }
  for (const Update& update : graph.updates())
    made.add_update(rewriter.value(update.variable), rewriter.value(update.value));
  return eliminate_dead_code(std::move(made));
}

bool repeats_outputs(const Graph& graph, const PassContext&) {
  std::set<ValueId> taken;
  bool repeats = false;
  for (ValueId id : graph.outputs()) repeats = taken_source(graph, id, taken) != kNoValue || repeats;
  return repeats;
}

}  // namespace aicf
