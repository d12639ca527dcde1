#include "passes/release_epilogues.h"

#include <algorithm>

#include "passes/recompute_cost.h"

namespace aicf {
namespace {

constexpr int64_t kLargeProduct = 1 << 19;  // elements
constexpr size_t kMaxEpilogueTensors = 4;   // of a large product: read or written

// Values of the group's full shape that its epilogue reads or the group gives.
size_t tensors_moved(const RegionGroups& groups, const Group& group) {
  const Graph& graph = groups.graph();
  std::set<ValueId> moved;
  const auto note = [&](ValueId id) {
    if (graph.shape(id) == group.full) moved.insert(id);
  };
  for (NodeId id : group.nodes) {
    for (ValueId operand : graph.node(id).operands)
      if (id != group.nodes[0] && operand != kNoValue && !inside(group, graph.value(operand).producer))
        note(operand);
    for (ValueId result : graph.node(id).results)
      if (groups.used_outside(group, result)) note(result);
  }
  return moved.size();
}

// Whether an epilogue's node reads nothing that only the epilogue has.
bool is_follower(const RegionGroups& groups, NodeId id, const Group& group) {
  const Graph& graph = groups.graph();
  const Node& node = graph.node(id);
  return group.contraction && readers_may_compute(node, Readers::kOne) &&
         std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId operand) {
           const NodeId producer = graph.value(operand).producer;
           return !inside(group, producer) ||
                  (producer != group.nodes[0] && groups.used_outside(group, operand));
         });
}

// The one group without a contraction whose nodes read the value, and that can take what computes it; -1:
// there is none.
int reading_group(const RegionGroups& groups, ValueId id) {
  const auto& readers = groups.readers_of(id);
  if (readers.empty() || groups.used_outside_regions(id)) return -1;
  const int found = groups.of(readers[0]);
  const bool only =
      std::all_of(readers.begin(), readers.end(), [&](NodeId reader) { return groups.of(reader) == found; });
  const Graph& graph = groups.graph();
  const bool takes = only && !groups[found].contraction && groups.accepts(groups[found], *graph.producer(id));
  return takes ? found : -1;
}

// Whether a node widens what its group has, for other regions alone.
bool is_widened(const RegionGroups& groups, NodeId id, const Group& group) {
  const Graph& graph = groups.graph();
  const Node& node = graph.node(id);
  if (node.op != Op::cast || !widens(graph, node) || !readers_may_compute(node, Readers::kMany)) return false;
  const ValueId result = node.results[0];
  const auto& readers = groups.readers_of(result);
  return inside(group, graph.value(node.operands[0]).producer) && !groups.used_outside_regions(result) &&
         std::none_of(readers.begin(), readers.end(), [&](NodeId reader) { return inside(group, reader); });
}

}  // namespace

std::set<NodeId> heavy_epilogues(const RegionGroups& groups) {
  std::set<NodeId> heavy;
  for (int g = 0; g < groups.count(); ++g) {
    const Group& group = groups[g];
    if (group.contraction && most_elements(group.full, groups.context().program.sizes) >= kLargeProduct &&
        tensors_moved(groups, group) > kMaxEpilogueTensors)
      heavy.insert(group.nodes[0]);
  }
  return heavy;
}

void release_followers(RegionGroups& groups) {
  for (int g = 0; g < groups.count(); ++g) {
    const std::vector<NodeId> nodes = groups[g].nodes;
    for (auto id = nodes.rbegin(); id != nodes.rend(); ++id) {
      if (groups[g].nodes.size() == 1 || *id == nodes[0]) continue;
      const ValueId result = groups.graph().node(*id).results[0];
      const int reader = is_follower(groups, *id, groups[g]) ? reading_group(groups, result) : -1;
      if (reader >= 0 || is_widened(groups, *id, groups[g])) groups.move(*id, reader);
    }
  }
}

}  // namespace aicf
