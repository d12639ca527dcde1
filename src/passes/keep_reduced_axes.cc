#include <map>
#include <optional>

#include "passes/pass.h"
#include "passes/region_body.h"

namespace aicf {

namespace {

bool reduces_nothing(const Node& node) {
  return op_info(node.op).attribute("axes") != nullptr && node.attrs.get_ints("axes").empty();
}

// The only operand of a pointwise node that is no number; none if there are several.
std::optional<ValueId> operand_beside_numbers(const Graph& graph, const Node& node) {
  if (!op_info(node.op).has(kPointwise) || node.results.size() != 1) return std::nullopt;
  std::optional<ValueId> found;
  for (ValueId id : node.operands) {
    if (id == kNoValue) return std::nullopt;
    if (is_immediate(graph.value(id)) && graph.shape(id).size() <= graph.shape(node.results[0]).size())
      continue;
    if (found && *found != id) return std::nullopt;
    found = id;
  }
  return found;
}

class AxisKeeper {
 public:
  explicit AxisKeeper(const Graph& graph, bool follow) : rewriter_(graph), follow_(follow) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes()) keep(node);
    return rewriter_.finish();
  }

 private:
  void keep(const Node& node) {
    if (op_info(node.op).has(kReduction) && reduces_nothing(node))
      return rewriter_.map(node.results[0], rewriter_.value(node.operands[0]));
    if (op_info(node.op).has(kReduction) && !node.attrs.get_bool("keepdims")) {
      Attrs attrs = node.attrs;
      attrs.set("keepdims", true);
      return drop_axes(node,
                       rewriter_.graph().add(node.op, rewriter_.values(node.operands), attrs, node.origin));
    }
    if (!follow_ || !follows(node)) rewriter_.copy(node);
  }

  // f(reshape(x)) = reshape(f(x)), so that a region takes f along with the reduction.
  bool follows(const Node& node) {
    const std::optional<ValueId> reduced = operand_beside_numbers(rewriter_.old(), node);
    if (!reduced) return false;
    const auto whole = kept_.find(rewriter_.value(*reduced));
    if (whole == kept_.end()) return false;
    std::vector<ValueId> operands;
    for (ValueId id : node.operands) operands.push_back(id == *reduced ? whole->second : rewriter_.value(id));
    drop_axes(node, rewriter_.graph().add(node.op, operands, node.attrs, node.origin));
    return true;
  }

  void drop_axes(const Node& node, ValueId kept) {
    const Shape& shape = rewriter_.old().shape(node.results[0]);
    const ValueId dropped = rewriter_.graph().add(Op::reshape, {kept}, {{"shape", shape}}, node.origin);
    kept_[dropped] = kept;
    rewriter_.map(node.results[0], dropped);
  }

  GraphRewriter rewriter_;
  const bool follow_;
  std::map<ValueId, ValueId> kept_;  // by value of the new graph that lacks reduced axes: the same with them
};

}  // namespace

// reduce(x, axes) = reshape(reduce(x, axes, keepdims), kept sizes); the same for argmax and argmin. A
// reduction over no axes is x. In a training step sums stay bare, for the passes that merge them.
Graph keep_reduced_axes(const Graph& graph, const PassContext& context) {
  return AxisKeeper(graph, !context.gradients).run();
}

}  // namespace aicf
