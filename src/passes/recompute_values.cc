#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "passes/recompute_cost.h"
#include "passes/region_body.h"

namespace aicf {
namespace {

constexpr int kMaxChain = 24;             // nodes that compute a value again
constexpr int64_t kLeastElements = 4096;  // of a value worth the change

// A region with its results by the ids of the graph.
struct Unit : RegionBody {
  const Node* node = nullptr;
  std::vector<ValueId> results;
  std::set<ValueId> needs;  // operands after the changes
  bool changed = false;
};

// A value of a unit's body.
using Inner = std::pair<size_t, ValueId>;

class Recomputer {
 public:
  Recomputer(const Graph& graph, const PassContext& context) : graph_(graph), context_(context) {
    unit_of_.resize(graph.nodes().size(), -1);
    for (size_t i = 0; i < graph.nodes().size(); ++i) add_unit(i);
    find_readers();
  }

  Graph run() {
    for (size_t unit = 0; unit < units_.size(); ++unit)
      for (size_t i = units_[unit].results.size(); i-- > 0;) consider(units_[unit].results[i]);
    return emit();
  }

 private:
  // --- what the graph says

  void add_unit(size_t index) {
    const Node& node = graph_.nodes()[index];
    std::optional<RegionBody> region = region_body(graph_, node, context_.target);
    if (!region) return;
    Unit unit{std::move(*region), &node, node.results, {}};
    unit.needs = {unit.operands.begin(), unit.operands.end()};
    unit_of_[index] = static_cast<int>(units_.size());
    for (size_t i = 0; i < unit.results.size(); ++i)
      made_[unit.results[i]] = {units_.size(), unit.body.outputs()[i]};
    units_.push_back(std::move(unit));
  }

  // Who reads each value, and which values must stay as they are.
  void find_readers() {
    for (ValueId id : graph_.outputs()) fixed_.insert(id);
    for (const Update& update : graph_.updates()) fixed_.insert(update.value);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (unit_of_[i] < 0) {
        fixed_.insert(node.operands.begin(), node.operands.end());
        continue;
      }
      const auto index = static_cast<size_t>(unit_of_[i]);
      const Unit& unit = units_[index];
      for (ValueId id : unit.operands) readers_[id].insert(index);
      if (unit.contraction)
        for (ValueId inner : unit.body.nodes()[0].operands)
          if (const int input = input_index(unit.body, inner); input >= 0)
            fixed_.insert(unit.operands[static_cast<size_t>(input)]);
    }
  }

  // Results that units gain have ids beyond those of the graph.
  const TensorType& type_of(ValueId id) const {
    if (id < graph_.value_count()) return graph_.type(id);
    const Inner& inner = gained_[static_cast<size_t>(id - graph_.value_count())];
    return units_[inner.first].body.type(inner.second);
  }
  double bytes_of(ValueId id) const { return most_bytes(type_of(id), context_.program.sizes); }

  // --- what a value can be computed from

  struct Chain {
    std::set<ValueId> leaves;
    std::set<Inner> gains;  // to be stored from now on
    int nodes = 0;
    int64_t elements = 0;  // of the value
    Readers readers = Readers::kMany;
  };

  bool expand(ValueId id, Chain& chain) const {
    if (const auto at = removed_.find(id); at != removed_.end()) return expand(at->second, chain);
    if (id >= graph_.value_count() || !is_immediate(graph_.value(id))) chain.leaves.insert(id);
    return true;
  }

  bool expand(const Inner& value, Chain& chain) const {
    const Unit& unit = units_[value.first];
    const Value& inner = unit.body.value(value.second);
    if (inner.role == Role::kConstant) return true;
    if (inner.role == Role::kInput)
      return expand(unit.operands[static_cast<size_t>(input_index(unit.body, value.second))], chain);
    if (const ValueId stored = stored_as(value); stored != kNoValue) {
      chain.leaves.insert(stored);
      return true;
    }
    if (is_cheap_to_store(most_elements(inner.type.shape, context_.program.sizes), chain.elements)) {
      chain.gains.insert(value);
      return true;
    }
    const Node& node = unit.body.node(inner.producer);
    if (++chain.nodes > kMaxChain || !readers_may_compute(node, chain.readers)) return false;
    if (node.op == Op::cast) return expand_cast(value.first, node, chain);
    return std::all_of(node.operands.begin(), node.operands.end(),
                       [&](ValueId operand) { return expand(Inner{value.first, operand}, chain); });
  }

  // What is widened can be stored as it was before.
  bool expand_cast(size_t unit, const Node& cast, Chain& chain) const {
    const Inner from{unit, cast.operands[0]};
    Chain deeper = chain;
    if (expand(from, deeper)) {
      chain = std::move(deeper);
      return true;
    }
    if (!widens(units_[unit].body, cast)) return false;
    chain.gains.insert(from);
    return true;
  }

  // The id of a body's value that is a result of its unit, and still is one.
  ValueId stored_as(const Inner& value) const {
    if (const auto at = gained_ids_.find(value); at != gained_ids_.end()) return at->second;
    const Unit& unit = units_[value.first];
    for (size_t i = 0; i < unit.results.size(); ++i)
      if (unit.body.outputs()[i] == value.second && !removed_.contains(unit.results[i]))
        return unit.results[i];
    return kNoValue;
  }

  // --- the decision

  void consider(ValueId id) {
    if (fixed_.contains(id) || !readers_.contains(id)) return;
    Chain chain;
    chain.elements = most_elements(graph_.shape(id), context_.program.sizes);
    chain.readers = readers_.at(id).size() == 1 ? Readers::kOne : Readers::kMany;
    if (chain.elements < kLeastElements) return;
    removed_.emplace(id, made_.at(id));
    if (!expand(made_.at(id), chain) || !pays(id, chain)) {
      removed_.erase(id);
      return;
    }
    remove(id, chain);
  }

  // Whether fewer bytes move, and every reader can take the leaves in.
  bool pays(ValueId id, const Chain& chain) const {
    double gained = 0;
    for (const auto& [unit, inner] : chain.gains)
      gained += most_bytes(units_[unit].body.type(inner), context_.program.sizes);
    double saved = bytes_of(id) - gained;
    for (size_t index : readers_.at(id)) {
      const Unit& reader = units_[index];
      if (!(region_domain(reader) == graph_.shape(id))) return false;
      saved += bytes_of(id) - gained;
      size_t added = chain.gains.size();
      for (ValueId leaf : chain.leaves) {
        if (reader.needs.contains(leaf)) continue;
        saved -= bytes_of(leaf);
        ++added;
      }
      if (reader.needs.size() + reader.results.size() + added > kMaxRegionOperands) return false;
    }
    return saved > 0;
  }

  void remove(ValueId id, Chain& chain) {
    for (const Inner& gain : chain.gains) {
      const auto gained = static_cast<ValueId>(graph_.value_count() + static_cast<int>(gained_.size()));
      gained_.push_back(gain);
      gained_ids_[gain] = gained;
      units_[gain.first].changed = true;
      chain.leaves.insert(gained);
    }
    units_[made_.at(id).first].changed = true;
    for (size_t index : readers_.at(id)) {
      Unit& reader = units_[index];
      reader.changed = true;
      reader.needs.erase(id);
      for (ValueId leaf : chain.leaves) {
        reader.needs.insert(leaf);
        readers_[leaf].insert(index);
      }
    }
  }

  // --- the new graph

  // A unit's body under construction.
  struct Body {
    Graph graph{"body"};
    std::vector<ValueId> operands;
    std::map<ValueId, ValueId> outer;
    std::map<Inner, ValueId> inner;
  };

  ValueId outer_value(Body& to, ValueId id) const {
    if (const auto at = to.outer.find(id); at != to.outer.end()) return at->second;
    ValueId value;
    if (const auto removed = removed_.find(id); removed != removed_.end()) {
      value = inner_value(to, removed->second);
    } else {
      value = add_body_input(to.graph, type_of(id));
      to.operands.push_back(id);
    }
    return to.outer[id] = value;
  }

  ValueId inner_value(Body& to, const Inner& value) const {
    if (const auto at = to.inner.find(value); at != to.inner.end()) return at->second;
    const Graph& body = units_[value.first].body;
    const Value& inner = body.value(value.second);
    ValueId result;
    if (inner.role == Role::kConstant) {
      result = to.graph.add_constant(inner.constant);
    } else if (inner.role == Role::kInput) {
      result =
          outer_value(to, units_[value.first].operands[static_cast<size_t>(input_index(body, value.second))]);
    } else if (const ValueId stored = stored_as(value); stored != kNoValue) {
      result = outer_value(to, stored);
    } else {
      result = copy(to, value.first, body.node(inner.producer));
    }
    return to.inner[value] = result;
  }

  ValueId copy(Body& to, size_t unit, const Node& node) const {
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
    const Unit& unit = units_[index];
    std::vector<std::pair<ValueId, ValueId>> outputs;
    for (size_t i = 0; i < unit.results.size(); ++i)
      if (!removed_.contains(unit.results[i])) outputs.emplace_back(unit.body.outputs()[i], unit.results[i]);
    for (const auto& [inner, id] : gained_ids_)
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

  Graph emit() {
    GraphRewriter rewriter(graph_);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const int unit = unit_of_[i];
      if (unit < 0 || !units_[static_cast<size_t>(unit)].changed)
        rewriter.copy(graph_.nodes()[i]);
      else
        emit_unit(static_cast<size_t>(unit), rewriter);
    }
    return rewriter.finish();
  }

  void emit_unit(size_t index, GraphRewriter& rewriter) {
    const Unit& unit = units_[index];
    const auto outputs = outputs_of(index);
    if (outputs.empty()) return;
    Body body;
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
      const std::string kind = unit.node->op == Op::fused ? unit.node->attrs.get_str("kind") : "tile";
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
  static std::vector<ValueId> emit_lone(const Body& body, const std::vector<ValueId>& operands,
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

  const Graph& graph_;
  const PassContext& context_;
  std::vector<Unit> units_;
  std::vector<int> unit_of_;          // by node
  std::map<ValueId, Inner> made_;     // results of units
  std::map<ValueId, Inner> removed_;  // those that readers compute again
  std::set<ValueId> fixed_;           // read by others than units, or as they are
  std::map<ValueId, std::set<size_t>> readers_;
  std::vector<Inner> gained_;  // values that units store from now on
  std::map<Inner, ValueId> gained_ids_;
  std::map<ValueId, ValueId> gained_values_;  // in the new graph
};

}  // namespace

// A value that one region stores and others read is computed again by its readers where cheap ops give it
// from what is stored anyway and fewer bytes move: widened copies of half types, and the centred and
// normalised activations of a norm, which its gradient wants, from the activations and the mean and deviation
// of each row. On a GPU such arithmetic is free behind the memory; on the CPU it is not. Serves training
// steps of every transformer, whose saved activations become a quarter; only those, because what a reduction
// reads beside its operand decides its order of additions, which for inference had better not depend on
// sizes.
Graph recompute_values(const Graph& graph, const PassContext& context) {
  return context.target.is_cuda() && trains(graph) ? Recomputer(graph, context).run() : graph;
}

}  // namespace aicf
