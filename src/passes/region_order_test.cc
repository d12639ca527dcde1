// Whether groups of nodes may grow, asked of random graphs whose groups grow, merge and lose nodes meanwhile.
#include <gtest/gtest.h>

#include <set>

#include "base/splitmix.h"
#include "passes/region_groups.h"
#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::kCpu;

// Sums of two earlier values, mostly of late ones, so that groups overlap.
Graph random_sums(SplitMix& random, int count) {
  Graph graph;
  std::vector<ValueId> values{graph.add_input("x", {DType::f32, {Dim(4)}})};
  const auto pick = [&] {
    const double near = random.unit() * random.unit();
    return values[values.size() - 1 - static_cast<size_t>(near * static_cast<double>(values.size()))];
  };
  for (int i = 0; i < count; ++i) {
    const ValueId a = pick(), b = pick();
    values.push_back(graph.add(Op::add, {a, b}));
  }
  graph.add_output(values.back(), "y");
  return graph;
}

// Whether an operand of the node that lies outside group g depends on it, by walking everything before it.
bool depends_by_walking(const RegionGroups& groups, const Node& node, int g) {
  const Graph& graph = groups.graph();
  std::set<NodeId> seen;
  std::vector<NodeId> waiting;
  const auto push_operands = [&](const Node& reader, bool outside_only) {
    for (ValueId operand : reader.operands)
      if (const NodeId id = producer_id(graph, operand); id >= 0 && !(outside_only && groups.of(id) == g))
        waiting.push_back(id);
  };
  push_operands(node, true);
  while (!waiting.empty()) {
    const NodeId id = waiting.back();
    waiting.pop_back();
    if (!seen.insert(id).second) continue;
    if (groups.of(id) == g) return true;
    push_operands(graph.node(id), false);
    if (groups.of(id) >= 0)
      for (NodeId member : groups[groups.of(id)].nodes) push_operands(graph.node(member), false);
  }
  return false;
}

class Grower {
 public:
  explicit Grower(uint64_t seed)
      : random_(seed), program_(with(random_sums(random_, 120))), groups_(program_.entries[0], context_) {}

  void run() {
    for (NodeId id = 0; id < 120; ++id) place(id);
    for (int i = 0; i < 60; ++i) change();
    for (NodeId id = 0; id < 120; ++id)
      for (int g = 0; g < groups_.count(); ++g) ask(id, g);
  }
  int refused() const { return refused_; }
  int merged() const { return merged_; }

 private:
  static Program with(Graph graph) {
    Program program;
    program.entries = {std::move(graph)};
    return program;
  }
  int any(int count) { return static_cast<int>(random_.unit() * count); }

  bool ask(NodeId id, int g) {
    if (groups_[g].nodes.empty() || groups_.of(id) == g) return true;
    const Node& node = groups_.graph().node(id);
    const bool depends = depends_by_walking(groups_, node, g);
    EXPECT_EQ(groups_.depends_outside(node, g), depends) << "node " << id << ", group " << g;
    refused_ += depends;
    return depends;
  }

  // Into the group of an operand where it may be, else into one of its own.
  void place(NodeId id) {
    for (ValueId operand : groups_.graph().node(id).operands) {
      const NodeId producer = producer_id(groups_.graph(), operand);
      if (producer < 0 || groups_[groups_.of(producer)].nodes.size() >= 12 || any(3) == 0) continue;
      if (!ask(id, groups_.of(producer))) return groups_.join(id, groups_.of(producer));
    }
    groups_.start(id, false);
  }

  // Two groups that allow it become one, or the last node of one leaves it.
  void change() {
    const int a = any(groups_.count()), b = any(groups_.count());
    if (groups_[a].nodes.size() > 1 && any(4) == 0) return groups_.move(groups_[a].nodes.back(), -1);
    if (groups_[a].nodes.empty() || groups_[b].nodes.empty()) return;
    groups_.merge(a, b);
    merged_ += a != b && groups_[a].nodes.empty();
    ask(any(120), b);
  }

  SplitMix random_;
  Program program_;
  PassContext context_{program_, kCpu};
  RegionGroups groups_;
  int refused_ = 0, merged_ = 0;
};

// So many units move before one group that no place is left between it and what stands before it.
TEST(RegionOrder, PlacesAreMadeAnewWhereNoneIsLeft) {
  constexpr int kChain = 70'000, kMore = 40;
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(4)}});
  NodeId count = 0;
  const auto add = [&](ValueId a, ValueId b) { return ++count, graph.add(Op::add, {a, b}); };
  add(x, x);  // what stands before the group
  const ValueId first = add(x, x);
  ValueId chain = x;
  for (int i = 0; i < kChain; ++i) chain = add(chain, x);
  ValueId last = add(first, chain);
  std::vector<NodeId> joined{count - 1}, others;
  for (int i = 0; i < kMore; ++i) {
    const ValueId other = add(x, x);
    others.push_back(count - 1);
    last = add(last, other);
    joined.push_back(count - 1);
  }
  graph.add_output(add(last, chain), "y");
  Program program;
  program.entries = {std::move(graph)};
  const PassContext context{program, kCpu};
  RegionGroups groups(program.entries[0], context);
  groups.start(1, false);
  for (const NodeId id : joined) groups.join(id, 0);
  for (size_t i = 0; i + 1 < others.size(); i += 2) {
    groups.start(others[i], false);
    groups.join(others[i + 1], groups.count() - 1);
  }
  const Graph& whole = groups.graph();
  for (int g = 0; g < groups.count(); ++g)
    for (const NodeId id : {NodeId{2}, NodeId{kChain}, joined.back(), others.back(), count - 1})
      if (groups.of(id) != g) {
        EXPECT_EQ(groups.depends_outside(whole.node(id), g), depends_by_walking(groups, whole.node(id), g))
            << "node " << id << ", group " << g;
      }
}

TEST(RegionOrder, AnswersAreThoseOfAWalkOverTheWholeGraph) {
  int refused = 0, merged = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Grower grower(seed);
    grower.run();
    refused += grower.refused();
    merged += grower.merged();
  }
  EXPECT_GT(refused, 300);  // the test asks what it is about
  EXPECT_GT(merged, 30);
}

}  // namespace
}  // namespace aicf
