#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "passes/region_body.h"

namespace aicf {
namespace {

class ReductionMerger {
 public:
  ReductionMerger(const Graph& graph, const PassContext& context)
      : graph_(graph), readers_(readers_by_value(graph)) {
    for (const Node& node : graph.nodes()) {
      regions_.push_back(region_body(graph, node, context.target));
      if (regions_.back() && axes_of(*regions_.back()).empty()) regions_.back().reset();
    }
    merged_.resize(graph.nodes().size(), false);
  }

  Graph run() {
    GraphRewriter rewriter(graph_);
    for (size_t i = 0; i < regions_.size(); ++i) {
      if (merged_[i]) continue;
      const std::vector<size_t> group = group_of(i);
      if (group.size() == 1)
        rewriter.copy(graph_.nodes()[i]);
      else
        emit(group, rewriter);
    }
    return rewriter.finish();
  }

 private:
  // The regions that run where region i does, which comes first; only i if it has no reductions. Only readers
  // of a large value that the group reads, too, can join.
  std::vector<size_t> group_of(size_t i) const {
    std::vector<size_t> group{i};
    if (!regions_[i]) return group;
    std::set<NodeId> candidates;
    for (size_t member = i;; candidates.erase(candidates.begin())) {
      if (group.back() == member)
        for (ValueId id : regions_[member]->operands) {
          if (!(graph_.shape(id) == region_domain(*regions_[member]))) continue;
          const std::vector<NodeId>& readers = readers_[static_cast<size_t>(id)];
          candidates.insert(std::upper_bound(readers.begin(), readers.end(), static_cast<NodeId>(member)),
                            readers.end());
        }
      if (candidates.empty()) return group;
      member = static_cast<size_t>(*candidates.begin());
      if (joins(group, member)) group.push_back(member);
    }
  }

  static Ints axes_of(const RegionBody& region) {
    if (region.contraction) return {};
    const Node* reduction = first_reduction(region.body);
    return reduction != nullptr ? reduction->attrs.get_ints("axes") : Ints();
  }

  // Whether region j can run where the group's first does: same rows, what it reads is there, and it reads
  // something large that the group reads too.
  bool joins(const std::vector<size_t>& group, size_t j) const {
    const size_t first = group[0];
    if (merged_[j] || !regions_[j]) return false;
    const RegionBody &a = *regions_[first], &b = *regions_[j];
    if (axes_of(a) != axes_of(b) || !(region_domain(a) == region_domain(b))) return false;
    std::vector<ValueId> operands;
    size_t results = graph_.nodes()[j].results.size();
    for (size_t member : group) {
      results += graph_.nodes()[member].results.size();
      for (ValueId id : regions_[member]->operands) add_once(operands, id);
    }
    bool shares = false;
    for (ValueId id : b.operands) {
      const Value& value = graph_.value(id);
      if (value.role == Role::kTemp && value.producer >= static_cast<NodeId>(first)) return false;
      const bool known = std::find(operands.begin(), operands.end(), id) != operands.end();
      shares = shares || (known && value.type.shape == region_domain(b));
      add_once(operands, id);
    }
    return shares && operands.size() + results <= kMaxRegionOperands;
  }
  static void add_once(std::vector<ValueId>& list, ValueId id) {
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  }

  void emit(const std::vector<size_t>& group, GraphRewriter& rewriter) {
    Graph body("body");
    std::vector<ValueId> operands;
    std::map<ValueId, ValueId> inputs;
    for (size_t member : group) {
      const RegionBody& region = *regions_[member];
      std::vector<ValueId> inner;
      for (ValueId id : region.operands) {
        if (!inputs.contains(id)) {
          inputs[id] = add_body_input(body, graph_.type(id));
          operands.push_back(id);
        }
        inner.push_back(inputs.at(id));
      }
      for (ValueId result : inline_body(body, region.body, inner)) add_body_output(body, result);
      merged_[member] = true;
    }
    const std::vector<ValueId> results =
        add_region(rewriter.graph(), std::move(body), rewriter.values(operands), kTileRegion,
                   graph_.nodes()[group[0]].origin);
    size_t next = 0;
    for (size_t member : group)
      for (ValueId id : graph_.nodes()[member].results) rewriter.map(id, results[next++]);
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>> readers_;  // by value
  std::vector<std::optional<RegionBody>> regions_;  // by node: those with reductions
  std::vector<char> merged_;
};

}  // namespace

// Reductions over the same rows that read a large value in common run together and read it once: the
// gradients of a norm's scale and bias. Only in training steps, as recompute_values.
Graph merge_reductions(const Graph& graph, const PassContext& context) {
  return context.target.is_cuda() && context.gradients ? ReductionMerger(graph, context).run() : graph;
}

}  // namespace aicf
