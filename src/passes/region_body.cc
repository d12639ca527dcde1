#include "passes/region_body.h"

#include <algorithm>

namespace aicf {
namespace {

RegionBody lone_region(const Graph& graph, const Node& node) {
  RegionBody region;
  std::vector<ValueId> inner;
  for (ValueId id : node.operands) {
    const Value& value = graph.value(id);
    if (value.role == Role::kConstant && value.constant.count() == 1) {
      inner.push_back(region.body.add_constant(value.constant));
      continue;
    }
    inner.push_back(region.body.add_input("x" + std::to_string(region.operands.size()), value.type));
    region.operands.push_back(id);
  }
  region.body.add_output(region.body.add(node.op, inner, node.attrs, node.origin), "y0");
  return region;
}

}  // namespace

std::optional<RegionBody> region_body(const Graph& graph, const Node& node, const Target& target) {
  if (node.op == Op::fused)
    return RegionBody{node.bodies[0], node.attrs.get_str("kind") != "tile", node.operands};
  const OpInfo& info = op_info(node.op);
  const bool reduces = info.has(kReduction) && node.attrs.get_bool("keepdims");
  if (!target.fuses(graph, node) || node.results.size() != 1 || !(info.has(kPointwise) || reduces))
    return std::nullopt;
  return lone_region(graph, node);
}

const Shape& region_domain(const RegionBody& region) {
  const Graph& body = region.body;
  if (region.contraction) return body.shape(body.nodes()[0].results[0]);
  for (const Node& node : body.nodes())
    if (op_info(node.op).has(kReduction)) return body.shape(node.operands[0]);
  return body.shape(body.outputs()[0]);
}

int input_index(const Graph& body, ValueId inner) {
  const auto at = std::find(body.inputs().begin(), body.inputs().end(), inner);
  return at == body.inputs().end() ? -1 : static_cast<int>(at - body.inputs().begin());
}

}  // namespace aicf
