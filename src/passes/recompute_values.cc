#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "passes/recompute_cost.h"
#include "passes/recompute_plan.h"

namespace aicf {
namespace {

constexpr int kMaxChain = 24;             // nodes that compute a value again
constexpr int64_t kLeastElements = 4096;  // of a value worth the change, unless its region goes with it

class Recomputer {
 public:
  Recomputer(const Graph& graph, const PassContext& context) : graph_(graph), context_(context) {
    plan_.unit_of.resize(graph.nodes().size(), -1);
    for (size_t i = 0; i < graph.nodes().size(); ++i) add_unit(i);
    find_readers();
  }

  Graph run() {
    for (size_t unit = 0; unit < plan_.units.size(); ++unit)
      for (size_t i = plan_.units[unit].results.size(); i-- > 0;) {
        const ValueId id = plan_.units[unit].results[i];
        if (context_.gradients || is_widened(id) || serves_pointwise(id)) consider(id);
      }
    return emit_recomputed(plan_);
  }

 private:
  // --- what the graph says

  void add_unit(size_t index) {
    const Node& node = graph_.nodes()[index];
    std::optional<RegionBody> region = region_body(graph_, node, context_.target);
    if (!region) return;
    RecomputedRegion unit{std::move(*region), &node, node.results, {}};
    unit.needs = {unit.operands.begin(), unit.operands.end()};
    plan_.unit_of[index] = static_cast<int>(plan_.units.size());
    for (size_t i = 0; i < unit.results.size(); ++i)
      made_[unit.results[i]] = {plan_.units.size(), unit.body.outputs()[i]};
    plan_.units.push_back(std::move(unit));
  }

  // Who reads each value, and which values must stay as they are.
  void find_readers() {
    for (ValueId id : graph_.outputs()) fixed_.insert(id);
    for (const Update& update : graph_.updates()) fixed_.insert(update.value);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (plan_.unit_of[i] < 0) {
        fixed_.insert(node.operands.begin(), node.operands.end());
        continue;
      }
      const auto index = static_cast<size_t>(plan_.unit_of[i]);
      const RecomputedRegion& unit = plan_.units[index];
      for (ValueId id : unit.operands) readers_[id].insert(index);
      if (unit.contraction)
        for (ValueId inner : unit.body.nodes()[0].operands)
          if (const int input = input_index(unit.body, inner); input >= 0)
            fixed_.insert(unit.operands[static_cast<size_t>(input)]);
    }
  }

  double bytes_of(ValueId id) const { return most_bytes(plan_.type_of(id), context_.program.sizes); }

  // --- what a value can be computed from

  struct Chain {
    std::set<ValueId> leaves;
    std::set<Inner> gains;  // to be stored from now on
    int nodes = 0;
    int64_t elements = 0;  // of the value
    Readers readers = Readers::kMany;
  };

  bool expand(ValueId id, Chain& chain) const {
    if (const auto at = plan_.removed.find(id); at != plan_.removed.end()) return expand(at->second, chain);
    if (id >= graph_.value_count() || !is_immediate(graph_.value(id))) chain.leaves.insert(id);
    return true;
  }

  bool expand(const Inner& value, Chain& chain) const {
    const RecomputedRegion& unit = plan_.units[value.first];
    const Value& inner = unit.body.value(value.second);
    if (inner.role == Role::kConstant) return true;
    if (inner.role == Role::kInput)
      return expand(unit.operands[static_cast<size_t>(input_index(unit.body, value.second))], chain);
    if (const ValueId stored = plan_.stored_as(value); stored != kNoValue) {
      chain.leaves.insert(stored);
      return true;
    }
    if (!is_removed(value) && can_store(unit, inner.type.shape) &&
        is_cheap_to_store(most_elements(inner.type.shape, context_.program.sizes), chain.elements)) {
      chain.gains.insert(value);
      return true;
    }
    const Node& node = unit.body.node(inner.producer);
    if (++chain.nodes > kMaxChain || !readers_may_compute(node, chain.readers)) return false;
    if (node.op == Op::cast) return expand_cast(value.first, node, chain);
    return std::all_of(node.operands.begin(), node.operands.end(),
                       [&](ValueId operand) { return expand(Inner{value.first, operand}, chain); });
  }

  // A region stores values over all of its elements, and over those that a reduction leaves; what few
  // operands decide alone, such as a widened weight, is over others.
  static bool can_store(const RecomputedRegion& unit, const Shape& shape) {
    const std::vector<Node>& nodes = unit.body.nodes();
    return shape == region_domain(unit) || std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
             return op_info(node.op).has(kReduction) && unit.body.shape(node.results[0]) == shape;
           });
  }

  // Whether readers compute it already: nothing is gained by storing it again.
  bool is_removed(const Inner& value) const {
    const RecomputedRegion& unit = plan_.units[value.first];
    for (size_t i = 0; i < unit.results.size(); ++i)
      if (unit.body.outputs()[i] == value.second && plan_.removed.contains(unit.results[i])) return true;
    return false;
  }

  // What is widened can be stored as it was before.
  bool expand_cast(size_t unit, const Node& cast, Chain& chain) const {
    const Inner from{unit, cast.operands[0]};
    Chain deeper = chain;
    if (expand(from, deeper)) {
      chain = std::move(deeper);
      return true;
    }
    const RecomputedRegion& region = plan_.units[unit];
    if (!widens(region.body, cast) || !can_store(region, region.body.shape(from.second))) return false;
    chain.gains.insert(from);
    return true;
  }

  // --- the decision

  // A wider copy of what is stored anyway, for readers over the same elements.
  bool is_widened(ValueId id) const {
    const Inner value = made_.at(id);
    const RecomputedRegion& unit = plan_.units[value.first];
    const Node* cast = unit.body.producer(value.second);
    if (cast == nullptr || cast->op != Op::cast || !widens(unit.body, *cast)) return false;
    const auto& readers = readers_.find(id);
    return is_stored({value.first, cast->operands[0]}) && readers != readers_.end() &&
           std::all_of(readers->second.begin(), readers->second.end(),
                       [&](size_t reader) { return region_domain(plan_.units[reader]) == graph_.shape(id); });
  }

  // Readers that reduce nothing: no order of additions depends on what they read.
  bool serves_pointwise(ValueId id) const {
    const auto reduces = [&](size_t reader) {
      const std::vector<Node>& nodes = plan_.units[reader].body.nodes();
      return plan_.units[reader].contraction || std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
               return op_info(node.op).has(kReduction);
             });
    };
    const auto& readers = readers_.find(id);
    return readers != readers_.end() && std::none_of(readers->second.begin(), readers->second.end(), reduces);
  }

  bool is_stored(const Inner& value) const {
    return plan_.units[value.first].body.value(value.second).role == Role::kInput ||
           plan_.stored_as(value) != kNoValue;
  }

  void consider(ValueId id) {
    if (fixed_.contains(id) || !readers_.contains(id)) return;
    Chain chain;
    chain.elements = most_elements(graph_.shape(id), context_.program.sizes);
    chain.readers = readers_.at(id).size() == 1 ? Readers::kOne : Readers::kMany;
    plan_.removed.emplace(id, made_.at(id));
    const bool expands = expand(made_.at(id), chain);
    const bool gains_little = context_.gradients && is_small(chain) && !is_from_given(chain);
    if (!expands || gains_little || !pays(id, chain)) {
      plan_.removed.erase(id);
      return;
    }
    remove(id, chain);
  }

  static bool is_small(const Chain& chain) { return chain.elements < kLeastElements; }

  // From params, states and inputs alone: a launch that makes few such values costs more than their bytes.
  bool is_from_given(const Chain& chain) const {
    return chain.gains.empty() && std::none_of(chain.leaves.begin(), chain.leaves.end(),
                                               [&](ValueId leaf) { return made_.contains(leaf); });
  }

  // A reader over more elements does the work for each of its own, so no more than one cast.
  bool fits(const RecomputedRegion& reader, ValueId id, const Chain& chain) const {
    return region_domain(reader) == graph_.shape(id) || (is_small(chain) && chain.nodes == 1);
  }

  // Whether fewer bytes move, and every reader can take the leaves in.
  bool pays(ValueId id, const Chain& chain) const {
    double gained = 0;
    for (const auto& [unit, inner] : chain.gains)
      gained += most_bytes(plan_.units[unit].body.type(inner), context_.program.sizes);
    double saved = bytes_of(id) - gained;
    for (size_t index : readers_.at(id)) {
      const RecomputedRegion& reader = plan_.units[index];
      if (!fits(reader, id, chain)) return false;
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
      const auto gained = static_cast<ValueId>(graph_.value_count() + static_cast<int>(plan_.gained.size()));
      plan_.gained.push_back(gain);
      plan_.gained_ids[gain] = gained;
      plan_.units[gain.first].changed = true;
      chain.leaves.insert(gained);
    }
    plan_.units[made_.at(id).first].changed = true;
    for (size_t index : readers_.at(id)) {
      RecomputedRegion& reader = plan_.units[index];
      reader.changed = true;
      reader.needs.erase(id);
      for (ValueId leaf : chain.leaves) {
        reader.needs.insert(leaf);
        readers_[leaf].insert(index);
      }
    }
  }

  const Graph& graph_;
  const PassContext& context_;
  RecomputePlan plan_{graph_};
  std::map<ValueId, Inner> made_;  // results of units
  std::set<ValueId> fixed_;        // read by others than units, or as they are
  std::map<ValueId, std::set<size_t>> readers_;
};

}  // namespace

// A value that one region stores and others read is computed again by its readers where cheap ops give it
// from what is stored anyway and fewer bytes move: widened copies of half types, and the centred and
// normalised activations of a norm, which its gradient wants, from the activations and the mean and deviation
// of each row. On a GPU such arithmetic is free behind the memory; on the CPU it is not. Serves training
// steps of every transformer, whose saved activations become a quarter. Elsewhere wider copies of what is
// stored anyway go, whatever the sizes, and what only pointwise regions read: what a reduction reads beside
// its operand decides its order of additions, which for inference had better not depend on them.
Graph recompute_values(const Graph& graph, const PassContext& context) {
  return context.target.is_cuda() ? Recomputer(graph, context).run() : graph;
}

}  // namespace aicf
