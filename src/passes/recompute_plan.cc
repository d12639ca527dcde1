#include <algorithm>

#include "passes/recompute_plan.h"

namespace aicf {

const TensorType& RecomputePlan::type_of(ValueId id) const {
  if (id < graph.value_count()) return graph.type(id);
  const Inner& inner = gained[static_cast<size_t>(id - graph.value_count())];
  return units[inner.first].body.type(inner.second);
}

ValueId RecomputePlan::stored_as(const Inner& value) const {
  if (const auto at = gained_ids.find(value); at != gained_ids.end()) return at->second;
  const RecomputedRegion& unit = units[value.first];
  for (size_t i = 0; i < unit.results.size(); ++i)
    if (unit.body.outputs()[i] == value.second && !removed.contains(unit.results[i])) return unit.results[i];
  return kNoValue;
}

namespace {

class RecomputeEmitter {
 public:
  explicit RecomputeEmitter(const RecomputePlan& plan) : plan_(plan), graph_(plan.graph) {}

  Graph run() {
    GraphRewriter rewriter(graph_);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const int unit = plan_.unit_of[i];
      if (unit < 0 || !plan_.units[static_cast<size_t>(unit)].changed)
        rewriter.copy(graph_.nodes()[i]);
      else
        emit_unit(static_cast<size_t>(unit), rewriter);
    }
    return rewriter.finish();
  }

 private:
  // A unit's body under construction.
  struct UnitBody {
    Graph graph{"body"};
    std::vector<ValueId> operands;
    std::map<ValueId, ValueId> outer;
    std::map<Inner, ValueId> inner;
  };

  ValueId outer_value(UnitBody& to, ValueId id) const {
    if (const auto at = to.outer.find(id); at != to.outer.end()) return at->second;
    ValueId value;
    if (const auto removed = plan_.removed.find(id); removed != plan_.removed.end()) {
      value = inner_value(to, removed->second);
    } else {
      value = add_body_input(to.graph, plan_.type_of(id));
      to.operands.push_back(id);
    }
    return to.outer[id] = value;
  }

  ValueId inner_value(UnitBody& to, const Inner& value) const {
    if (const auto at = to.inner.find(value); at != to.inner.end()) return at->second;
    const Graph& body = plan_.units[value.first].body;
    const Value& inner = body.value(value.second);
    ValueId result;
    if (inner.role == Role::kConstant) {
      result = to.graph.add_constant(inner.constant);
    } else if (inner.role == Role::kInput) {
      result = outer_value(
          to, plan_.units[value.first].operands[static_cast<size_t>(input_index(body, value.second))]);
    } else if (const ValueId stored = plan_.stored_as(value); stored != kNoValue) {
      result = outer_value(to, stored);
    } else {
      result = copy(to, value.first, body.node(inner.producer));
    }
    return to.inner[value] = result;
  }

  ValueId copy(UnitBody& to, size_t unit, const Node& node) const {
    std::vector<ValueId> operands;
    for (ValueId operand : node.operands)
      operands.push_back(operand == kNoValue ? kNoValue : inner_value(to, {unit, operand}));
    const NodeId id = to.graph.add_node(node.op, operands, node.attrs, {}, node.origin);
    for (size_t i = 0; i < node.results.size(); ++i)
      to.inner[{unit, node.results[i]}] = to.graph.node(id).results[i];
    return to.graph.node(id).results[0];
  }

  // The outputs that the unit has from now on: inner values and the ids they are known by.
  std::vector<std::pair<ValueId, ValueId>> outputs_of(size_t index) const {
    const RecomputedRegion& unit = plan_.units[index];
    std::vector<std::pair<ValueId, ValueId>> outputs;
    for (size_t i = 0; i < unit.results.size(); ++i)
      if (!plan_.removed.contains(unit.results[i]))
        outputs.emplace_back(unit.body.outputs()[i], unit.results[i]);
    for (const auto& [inner, id] : plan_.gained_ids)
      if (inner.first == index) outputs.emplace_back(inner.second, id);
    return outputs;
  }

  // Which nodes of a body its outputs depend on.
  static std::vector<bool> needed_nodes(const Graph& body,
                                        const std::vector<std::pair<ValueId, ValueId>>& outputs) {
    std::vector<bool> live(static_cast<size_t>(body.value_count()), false),
        needed(body.nodes().size(), false);
    for (const auto& [inner, id] : outputs) live[static_cast<size_t>(inner)] = true;
    for (size_t i = body.nodes().size(); i-- > 0;) {
      const Node& node = body.nodes()[i];
      needed[i] = std::any_of(node.results.begin(), node.results.end(),
                              [&](ValueId id) { return live[static_cast<size_t>(id)]; });
      if (!needed[i]) continue;
      for (ValueId id : node.operands)
        if (id != kNoValue) live[static_cast<size_t>(id)] = true;
    }
    return needed;
  }

  void emit_unit(size_t index, GraphRewriter& rewriter) {
    const RecomputedRegion& unit = plan_.units[index];
    const auto outputs = outputs_of(index);
    if (outputs.empty()) return;
    UnitBody body;
    const std::vector<bool> needed = needed_nodes(unit.body, outputs);
    for (size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) copy(body, index, unit.body.nodes()[i]);
    std::vector<ValueId> operands;
    for (ValueId id : body.operands)
      operands.push_back(id < graph_.value_count() ? rewriter.value(id) : gained_values_.at(id));
    std::vector<ValueId> results;
    if (body.graph.nodes().size() == 1) {
      results = emit_lone(body, operands, rewriter);
    } else {
      for (const auto& [inner, id] : outputs) add_body_output(body.graph, body.inner.at({index, inner}));
      const std::string kind = unit.node->op == Op::fused ? unit.node->attrs.get_str("kind") : kTileRegion;
      results = add_region(rewriter.graph(), std::move(body.graph), operands, kind, unit.node->origin);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ValueId id = outputs[i].second;
      if (id < graph_.value_count())
        rewriter.map(id, results[i]);
      else
        gained_values_[id] = results[i];
    }
  }

  // A body of one node is that node.
  static std::vector<ValueId> emit_lone(const UnitBody& body, const std::vector<ValueId>& operands,
                                        GraphRewriter& rewriter) {
    const Node& node = body.graph.nodes()[0];
    std::vector<ValueId> mapped;
    for (ValueId inner : node.operands) {
      const int input = inner == kNoValue ? -1 : input_index(body.graph, inner);
      mapped.push_back(inner == kNoValue ? kNoValue
                       : input >= 0      ? operands[static_cast<size_t>(input)]
                                         : rewriter.graph().add_constant(body.graph.value(inner).constant));
    }
    const NodeId id = rewriter.graph().add_node(node.op, mapped, node.attrs, {}, node.origin);
    return rewriter.graph().node(id).results;
  }

  const RecomputePlan& plan_;
  const Graph& graph_;
  std::map<ValueId, ValueId> gained_values_;  // in the new graph
};

}  // namespace

Graph emit_recomputed(const RecomputePlan& plan) { return RecomputeEmitter(plan).run(); }

}  // namespace aicf
