#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ir/append.h"
#include "ir/graph.h"

namespace aicf {
namespace {

ValueId copy_leaf(Graph& graph, const Value& leaf) {
  switch (leaf.role) {
    case Role::kInput:
      return graph.add_input(leaf.name, leaf.type, leaf.constant);
    case Role::kParam:
      return graph.add_param(leaf.name, leaf.type);
    case Role::kState:
      return graph.add_state(leaf.name, leaf.type);
    case Role::kConstant:
      return graph.add_constant(leaf.constant, leaf.name);
    case Role::kTemp:
      break;
  }
  AICF_CHECK(false, "a temp stands among the leaves of a graph");
}

std::vector<ValueId> lookup(const std::vector<ValueId>& map, const std::vector<ValueId>& ids) {
  std::vector<ValueId> mapped;
  mapped.reserve(ids.size());
  for (ValueId id : ids) mapped.push_back(id == kNoValue ? kNoValue : map[static_cast<size_t>(id)]);
  return mapped;
}

// Whether the op table has seen a node like the copy of this one over these operands.
bool is_known(const Graph& to, const Graph& from, const Node& node, const std::vector<ValueId>& operands) {
  const auto same_type = [&](ValueId a, ValueId b) {
    return a == kNoValue || b == kNoValue ? a == b : to.type(a) == from.type(b);
  };
  return node.bodies.empty() &&
         std::equal(operands.begin(), operands.end(), node.operands.begin(), node.operands.end(), same_type);
}

// Appends a copy of `node` with the given operands and bodies, keeping the hints of its results' names.
NodeId copy_node(Graph& to, const Graph& from, const Node& node, std::vector<ValueId> operands,
                 std::vector<Graph> bodies, std::vector<ValueId>& map) {
  const NodeId id = is_known(to, from, node, operands) ? to.add_copy(from, node, std::move(operands))
                                                       : to.add_node(node.op, std::move(operands), node.attrs,
                                                                     std::move(bodies), node.origin);
  const std::vector<ValueId>& results = to.node(id).results;
  AICF_CHECK(results.size() == node.results.size(), "a copied node has another number of results");
  for (size_t i = 0; i < results.size(); ++i) {
    map[static_cast<size_t>(node.results[i])] = results[i];
    const std::string& hint = from.value(node.results[i]).name;
    if (!hint.empty() && to.value(results[i]).name.empty()) to.set_name(results[i], hint);
  }
  return id;
}

// Which values an output or update depends on.
std::vector<bool> live_values(const Graph& graph) {
  std::vector<bool> live(static_cast<size_t>(graph.value_count()), false);
  for (ValueId output : graph.outputs()) live[static_cast<size_t>(output)] = true;
  for (const Update& update : graph.updates()) {
    live[static_cast<size_t>(update.variable)] = true;
    live[static_cast<size_t>(update.value)] = true;
  }
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    bool needed = false;
    for (ValueId result : node.results) needed = needed || live[static_cast<size_t>(result)];
    if (!needed) continue;
    for (ValueId operand : node.operands)
      if (operand != kNoValue) live[static_cast<size_t>(operand)] = true;
  }
  return live;
}

// Rebuilding numbers the leaves first.
bool has_leaves_first(const Graph& graph) {
  const std::vector<ValueId>& leaves = graph.leaves();
  return leaves.empty() || leaves.back() + 1 == static_cast<ValueId>(leaves.size());
}

// Whether the rebuilt graph would be the graph itself.
bool nothing_to_remove(const Graph& graph, const std::vector<bool>& live) {
  for (ValueId leaf : graph.leaves())
    if (!live[static_cast<size_t>(leaf)] && graph.value(leaf).role != Role::kInput) return false;
  bool has_bodies = false;
  for (const Node& node : graph.nodes()) {
    has_bodies = has_bodies || !node.bodies.empty();
    if (std::none_of(node.results.begin(), node.results.end(),
                     [&](ValueId id) { return live[static_cast<size_t>(id)]; }))
      return false;
    for (const Graph& body : node.bodies)
      if (!nothing_to_remove(body, live_values(body))) return false;
  }
  return !has_bodies || has_leaves_first(graph);
}

}  // namespace

GraphRewriter::GraphRewriter(const Graph& old)
    : old_(old), new_(old.name()), map_(static_cast<size_t>(old.value_count()), kNoValue) {
  for (ValueId leaf : old.leaves()) map(leaf, copy_leaf(new_, old.value(leaf)));
}

ValueId GraphRewriter::value(ValueId old_id) const {
  if (old_id == kNoValue) return kNoValue;
  const ValueId id = map_[static_cast<size_t>(old_id)];
  AICF_CHECK(id != kNoValue, "a pass uses value " + std::to_string(old_id) + " before it has mapped it");
  return id;
}

std::vector<ValueId> GraphRewriter::values(const std::vector<ValueId>& old_ids) const {
  std::vector<ValueId> ids;
  ids.reserve(old_ids.size());
  for (ValueId id : old_ids) ids.push_back(value(id));
  return ids;
}

NodeId GraphRewriter::copy(const Node& node) {
  return copy_node(new_, old_, node, values(node.operands), node.bodies, map_);
}

Graph GraphRewriter::finish() {
  for (size_t i = 0; i < old_.outputs().size(); ++i)
    new_.add_output(value(old_.outputs()[i]), old_.output_names()[i]);
  for (const Update& update : old_.updates()) new_.add_update(value(update.variable), value(update.value));
  return eliminate_dead_code(std::move(new_));
}

Graph eliminate_dead_code(Graph graph) {
  const std::vector<bool> live = live_values(graph);
  if (nothing_to_remove(graph, live)) return graph;
  Graph kept(graph.name());
  std::vector<ValueId> map(live.size(), kNoValue);
  for (ValueId leaf : graph.leaves())
    if (live[static_cast<size_t>(leaf)] || graph.value(leaf).role == Role::kInput)
      map[static_cast<size_t>(leaf)] = copy_leaf(kept, graph.value(leaf));
  for (const Node& node : graph.nodes()) {
    bool needed = false;
    for (ValueId result : node.results) needed = needed || live[static_cast<size_t>(result)];
    if (!needed) continue;
    std::vector<Graph> bodies;
    for (const Graph& body : node.bodies) bodies.push_back(eliminate_dead_code(body));
    copy_node(kept, graph, node, lookup(map, node.operands), std::move(bodies), map);
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    kept.add_output(map[static_cast<size_t>(graph.outputs()[i])], graph.output_names()[i]);
  for (const Update& update : graph.updates())
    kept.add_update(map[static_cast<size_t>(update.variable)], map[static_cast<size_t>(update.value)]);
  return kept;
}

std::vector<ValueId> inline_body(Graph& graph, const Graph& body, const std::vector<ValueId>& operands) {
  AICF_CHECK(operands.size() == body.inputs().size(),
             "inlining body '" + body.name() + "' over a wrong operand count");
  AICF_CHECK(body.updates().empty(), "body '" + body.name() + "' updates a variable and cannot be inlined");
  std::vector<ValueId> map(static_cast<size_t>(body.value_count()), kNoValue);
  for (size_t i = 0; i < operands.size(); ++i) {
    const ValueId input = body.inputs()[i];
    AICF_CHECK(graph.type(operands[i]) == body.type(input),
               "input '" + body.value(input).name + "' of body '" + body.name() + "' is " +
                   to_string(body.type(input)) + " and its operand " + to_string(graph.type(operands[i])));
    map[static_cast<size_t>(input)] = operands[i];
  }
  for (ValueId leaf : body.leaves())
    if (body.value(leaf).role != Role::kInput)
      map[static_cast<size_t>(leaf)] = copy_leaf(graph, body.value(leaf));
  for (const Node& node : body.nodes())
    copy_node(graph, body, node, lookup(map, node.operands), node.bodies, map);
  return lookup(map, body.outputs());
}

std::vector<ValueId> append_graph(Graph& to, const Graph& from) {
  std::vector<ValueId> map(static_cast<size_t>(from.value_count()), kNoValue);
  for (ValueId leaf : from.leaves()) map[static_cast<size_t>(leaf)] = copy_leaf(to, from.value(leaf));
  for (const Node& node : from.nodes())
    copy_node(to, from, node, lookup(map, node.operands), node.bodies, map);
  return map;
}

}  // namespace aicf
