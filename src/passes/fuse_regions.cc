#include <algorithm>
#include <map>
#include <set>

#include "passes/emit_regions.h"
#include "passes/recompute_cost.h"
#include "passes/region_body.h"
#include "passes/release_epilogues.h"

namespace aicf {
namespace {

constexpr int64_t kFewElements = 1 << 10;   // a region over so few costs little but its launch
constexpr int64_t kManyElements = 1 << 24;  // one over so many does not wait: memory would fill meanwhile

// Forms the groups, node by node in the order of the graph: a node joins the group of an operand, else it
// starts one.
class RegionFuser {
 public:
  // `plain`: contractions that are left without an epilogue.
  RegionFuser(RegionGroups& groups, const std::set<NodeId>& plain)
      : groups_(groups), graph_(groups.graph()), target_(groups.context().target), plain_(plain) {}

  void run() {
    const auto count = static_cast<NodeId>(graph_.nodes().size());
    // Scalars last: a region of scalars that joined a sum of large regions' results would keep those apart.
    for (NodeId id = 0; id < count; ++id) consider(id, true);
    for (NodeId id = 0; id < count; ++id)
      if (groups_.of(id) < 0) consider(id, false);
  }

 private:
  void consider(NodeId id, bool large_only) {
    const Node& node = graph_.node(id);
    if (takes_epilogue(id)) return groups_.start(id, true);
    if (node.op == Op::reshape) return follow_small_sum(id);
    const bool repeats = groups_.repeats_rows(node);
    if (!repeats && !is_region_op(graph_, node, target_)) return;
    for (int candidate : producer_groups(node)) {
      if (large_only && groups_[candidate].full.empty()) continue;
      if (groups_.of(id) >= 0) {
        groups_.merge(candidate, groups_.of(id));
      } else if (groups_.accepts(groups_[candidate], node) && !groups_.depends_outside(node, candidate)) {
        groups_.join(id, candidate);
      }
    }
    if (groups_.of(id) < 0 && !repeats && !(large_only && domain_of(graph_, node).empty()))
      groups_.start(id, false);
  }

  // A reshape of a small sum that only drops its axes: the steps of a bias's optimizer can then run with the
  // sum that is its gradient.
  void follow_small_sum(NodeId id) {
    const Node& node = graph_.node(id);
    const Node* sum = graph_.producer(node.operands[0]);
    if (sum == nullptr || !op_info(sum->op).has(kReduction)) return;
    const int g = groups_.of(graph_.value(node.operands[0]).producer);
    if (g >= 0 && groups_.is_row_without_axes(graph_.shape(node.results[0]), groups_[g]) &&
        groups_.accepts(groups_[g], node))
      groups_.join(id, g);
  }

  bool takes_epilogue(NodeId id) const {
    const Node& node = graph_.node(id);
    const bool is_contraction = node.op == Op::matmul || node.op == Op::conv || node.op == Op::conv_transpose;
    return is_contraction && node.operands[0] != node.operands[1] && !plain_.contains(id) &&
           target_.takes_epilogue(graph_, node);
  }

  // Groups that produce operands, contractions first because an epilogue saves a whole pass over memory,
  // then the latest.
  std::vector<int> producer_groups(const Node& node) const {
    std::vector<int> found;
    for (ValueId id : node.operands) {
      if (id == kNoValue || graph_.value(id).role != Role::kTemp) continue;
      const int g = groups_.of(graph_.value(id).producer);
      if (g >= 0 && std::find(found.begin(), found.end(), g) == found.end()) found.push_back(g);
    }
    std::sort(found.begin(), found.end(), [&](int a, int b) {
      const bool ca = groups_[a].contraction, cb = groups_[b].contraction;
      return ca != cb ? ca : a > b;
    });
    return found;
  }

  RegionGroups& groups_;
  const Graph& graph_;
  const Target& target_;
  const std::set<NodeId>& plain_;
};

bool is_small(const RegionGroups& groups, const Group& group) {
  if (group.nodes.empty() || group.contraction) return false;
  if (group.nodes.size() == 1 && groups.is_absorbed(group.nodes[0])) return false;
  return most_elements(group.full, groups.context().program.sizes) <= kFewElements;
}

// The last node outside the group that it reads from; -1: it reads leaves only.
NodeId last_operand(const RegionGroups& groups, const Group& group) {
  NodeId last = -1;
  for (NodeId id : group.nodes)
    for (ValueId operand : groups.graph().node(id).operands) {
      const NodeId producer = operand == kNoValue ? -1 : groups.graph().value(operand).producer;
      if (producer >= 0 && !inside(group, producer)) last = std::max(last, producer);
    }
  return last;
}

// Whether a large node that reads the group stands before `node` in the graph's order.
bool serves_before(const RegionGroups& groups, const Group& group, NodeId node) {
  const Graph& graph = groups.graph();
  const auto waits = [&](NodeId reader) {
    return reader < node && !inside(group, reader) &&
           most_elements(domain_of(graph, graph.node(reader)), groups.context().program.sizes) >=
               kManyElements;
  };
  for (NodeId id : group.nodes)
    for (ValueId result : graph.node(id).results)
      if (std::any_of(groups.readers_of(result).begin(), groups.readers_of(result).end(), waits)) return true;
  return false;
}

// Whether a large node that reads one of them would have to wait for what the other reads: the gradients of
// one chunk of rows for the losses of all.
bool delay_large(const RegionGroups& groups, const Group& a, const Group& b) {
  return serves_before(groups, a, last_operand(groups, b)) ||
         serves_before(groups, b, last_operand(groups, a));
}

// Whether one of them could run first of all, and the other waits for something. In a step for a GPU the one
// then runs beside others in a launch that there is anyway, and what reads it does not wait.
bool waits_alone(const RegionGroups& groups, const Group& a, const Group& b) {
  const PassContext& context = groups.context();
  return context.gradients && context.target.is_cuda() &&
         (last_operand(groups, a) < 0) != (last_operand(groups, b) < 0);
}

// Small regions over one domain cost a launch each and next to nothing more: counters, scales and flags of
// a train step, rows of labels. Only the latest few are tried: all pairs of an unrolled network take minutes.
void merge_siblings(RegionGroups& groups) {
  constexpr size_t kTried = 8;
  std::map<std::string, std::vector<int>> known;  // by domain
  for (int g = 0; g < groups.count(); ++g) {
    if (!is_small(groups, groups[g])) continue;
    std::vector<int>& others = known[to_string(groups[g].full)];
    for (size_t i = others.size(); i-- > 0 && others.size() - i <= kTried && !groups[g].nodes.empty();)
      if (!delay_large(groups, groups[g], groups[others[i]]) &&
          !waits_alone(groups, groups[g], groups[others[i]]))
        groups.merge(g, others[i]);
    if (!groups[g].nodes.empty()) others.push_back(g);
  }
}

}  // namespace

Graph fuse_regions(const Graph& graph, const PassContext& context) {
  RegionGroups groups(graph, context);
  std::set<NodeId> plain;
  RegionFuser(groups, plain).run();
  // What one product gives up, another may take: until none is too heavy.
  while (context.target.is_cuda() && context.gradients) {
    const std::set<NodeId> heavy = heavy_epilogues(groups);
    if (heavy.empty()) break;
    plain.insert(heavy.begin(), heavy.end());
    groups.clear();
    RegionFuser(groups, plain).run();
  }
  release_followers(groups);
  merge_siblings(groups);
  return emit_regions(groups);
}

}  // namespace aicf
