#include "ir/specialise.h"

#include <map>

#include "base/error.h"

namespace aicf {
namespace {

using SizesByName = std::map<std::string, Dim, std::less<>>;

Shape specialise(const Shape& shape, const SizesByName& sizes) {
  Shape result;
  for (const Dim& dim : shape) result.push_back(substitute(dim, sizes));
  return result;
}

ValueId specialise_leaf(Graph& to, const Value& leaf, const SizesByName& sizes) {
  const TensorType type{leaf.type.dtype, specialise(leaf.type.shape, sizes)};
  switch (leaf.role) {
    case Role::kInput:
      return to.add_input(leaf.name, type, leaf.constant);
    case Role::kParam:
      return to.add_param(leaf.name, type);
    case Role::kState:
      return to.add_state(leaf.name, type);
    case Role::kConstant:
      return to.add_constant(leaf.constant, leaf.name);
    case Role::kTemp:
      break;
  }
  AICF_CHECK(false, "a temp stands among the leaves of a graph");
}

Attrs specialise(const Attrs& attrs, const SizesByName& sizes) {
  Attrs result;
  for (const auto& [name, attr] : attrs.items()) {
    const Shape* dims = std::get_if<Shape>(&attr);
    result.set(name, dims != nullptr ? Attr(specialise(*dims, sizes)) : attr);
  }
  return result;
}

Graph specialise(const Graph& old, const SizesByName& sizes) {
  Graph graph(old.name());
  std::vector<ValueId> map(static_cast<size_t>(old.value_count()), kNoValue);
  const auto mapped = [&](ValueId id) { return id == kNoValue ? kNoValue : map[static_cast<size_t>(id)]; };
  for (ValueId leaf : old.leaves())
    map[static_cast<size_t>(leaf)] = specialise_leaf(graph, old.value(leaf), sizes);
  for (const Node& node : old.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId id : node.operands) operands.push_back(mapped(id));
    std::vector<Graph> bodies;
    for (const Graph& body : node.bodies) bodies.push_back(specialise(body, sizes));
    const NodeId copy = graph.add_node(node.op, std::move(operands), specialise(node.attrs, sizes),
                                       std::move(bodies), node.origin);
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueId result = graph.node(copy).results[i];
      map[static_cast<size_t>(node.results[i])] = result;
      if (const std::string& hint = old.value(node.results[i]).name; !hint.empty())
        graph.set_name(result, hint);
    }
  }
  for (size_t i = 0; i < old.outputs().size(); ++i)
    graph.add_output(mapped(old.outputs()[i]), old.output_names()[i]);
  for (const Update& update : old.updates()) graph.add_update(mapped(update.variable), mapped(update.value));
  return graph;
}

}  // namespace

Graph specialise(const Graph& graph, const SymbolValues& sizes) {
  SizesByName values;
  for (const auto& [name, value] : sizes) values.emplace(name, Dim(value));
  return specialise(graph, values);
}

}  // namespace aicf
