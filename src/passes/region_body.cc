#include "passes/region_body.h"

#include <algorithm>
#include <utility>

namespace aicf {
namespace {

RegionBody lone_region(const Graph& graph, const Node& node) {
  RegionBody region;
  std::vector<ValueId> inner;
  for (ValueId id : node.operands) {
    const Value& value = graph.value(id);
    if (is_immediate(value)) {
      inner.push_back(region.body.add_constant(value.constant));
      continue;
    }
    inner.push_back(add_body_input(region.body, value.type));
    region.operands.push_back(id);
  }
  add_body_output(region.body, region.body.add(node.op, inner, node.attrs, node.origin));
  return region;
}

}  // namespace

bool is_region_op(const Graph& graph, const Node& node, const Target& target) {
  const OpInfo& info = op_info(node.op);
  const bool reduces = info.has(kReduction) && node.attrs.get_bool("keepdims");
  return (info.has(kPointwise) || reduces) && target.fuses(graph, node);
}

bool is_immediate(const Value& value) { return value.role == Role::kConstant && value.constant.count() == 1; }

std::optional<RegionBody> region_body(const Graph& graph, const Node& node, const Target& target) {
  if (node.op == Op::fused) return RegionBody{node.bodies[0], !is_tile_region(node), node.operands};
  if (node.results.size() != 1 || !is_region_op(graph, node, target)) return std::nullopt;
  return lone_region(graph, node);
}

const Shape& region_domain(const RegionBody& region) {
  const Graph& body = region.body;
  if (region.contraction) return body.shape(body.nodes()[0].results[0]);
  const Node* reduction = first_reduction(body);
  return body.shape(reduction != nullptr ? reduction->operands[0] : body.outputs()[0]);
}

std::vector<std::vector<NodeId>> readers_by_value(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(static_cast<size_t>(graph.value_count()));
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    for (ValueId operand : graph.nodes()[n].operands)
      if (operand != kNoValue) readers[static_cast<size_t>(operand)].push_back(static_cast<NodeId>(n));
  return readers;
}

int input_index(const Graph& body, ValueId inner) {
  const auto at = std::find(body.inputs().begin(), body.inputs().end(), inner);
  return at == body.inputs().end() ? -1 : static_cast<int>(at - body.inputs().begin());
}

ValueId add_body_input(Graph& body, const TensorType& type) {
  return body.add_input("x" + std::to_string(body.inputs().size()), type);
}

void add_body_output(Graph& body, ValueId inner) {
  body.add_output(inner, "y" + std::to_string(body.outputs().size()));
}

std::vector<ValueId> add_region(Graph& graph, Graph body, std::vector<ValueId> operands,
                                const std::string& kind, const std::string& origin) {
  std::vector<Graph> bodies;
  bodies.push_back(std::move(body));
  const NodeId region =
      graph.add_node(Op::fused, std::move(operands), {{"kind", kind}}, std::move(bodies), origin);
  return graph.node(region).results;
}

}  // namespace aicf
