// Who depends on whom among the units of RegionGroups. Units have places in an order in which each stands
// after all that it depends on; two that become one are placed together as in "A Dynamic Topological Sort
// Algorithm for Directed Acyclic Graphs" (Pearce and Kelly, 2006): only units between them that depend on the
// first, or that the second depends on, change places.
#include <algorithm>

#include "passes/region_groups.h"

namespace aicf {

int& RegionGroups::place_of(NodeId unit) {
  return of(unit) < 0 ? node_place_[static_cast<size_t>(unit)] : group_place_[static_cast<size_t>(of(unit))];
}

// The nodes that the unit reads from, or that read from it.
void RegionGroups::push_next(NodeId unit, Towards towards, std::vector<NodeId>& nodes) const {
  const auto push = [&](const Node& node) {
    if (towards == Towards::kOperands) {
      for (ValueId operand : node.operands)
        if (const NodeId producer = producer_of(graph_, operand); producer >= 0) nodes.push_back(producer);
    } else {
      for (ValueId result : node.results)
        nodes.insert(nodes.end(), readers_of(result).begin(), readers_of(result).end());
    }
  };
  if (of(unit) < 0) return push(graph_.node(unit));
  for (NodeId member : (*this)[of(unit)].nodes) push(graph_.node(member));
}

bool RegionGroups::depends_outside(const Node& node, int g) {
  std::vector<NodeId> producers;
  for (ValueId operand : node.operands)
    if (const NodeId producer = producer_of(graph_, operand); producer >= 0 && of(producer) != g)
      producers.push_back(producer);
  return reaches(std::move(producers), g);
}

// Whether an operand of the node is in group g or depends on it.
bool RegionGroups::depends_on(const Node& node, int g) {
  std::vector<NodeId> producers;
  for (ValueId operand : node.operands)
    if (const NodeId producer = producer_of(graph_, operand); producer >= 0) producers.push_back(producer);
  return reaches(std::move(producers), g);
}

// Whether a node of `later` has an operand outside both groups that depends on `earlier`.
bool RegionGroups::path_through_third(int earlier, int later) {
  std::vector<NodeId> producers;
  push_next(group(later).nodes[0], Towards::kOperands, producers);
  std::erase_if(producers, [&](NodeId id) { return of(id) == earlier || of(id) == later; });
  return reaches(std::move(producers), earlier);
}

// Whether one of the nodes or anything they depend on (through whole groups, for they run as one) is in group
// g.
bool RegionGroups::reaches(std::vector<NodeId> nodes, int g) {
  if (!is_ordered_) order_anew();
  ++search_;
  const int floor = group_place_[static_cast<size_t>(g)];
  while (!nodes.empty()) {
    const NodeId unit = unit_of(nodes.back());
    nodes.pop_back();
    if (place_of(unit) < floor || stamp_[static_cast<size_t>(unit)] == search_) continue;
    stamp_[static_cast<size_t>(unit)] = search_;
    if (of(unit) == g) return true;
    push_next(unit, Towards::kOperands, nodes);
  }
  return false;
}

// The unit `start` and those reached from it, placed from `first` to `last`; in the order of their places.
std::vector<NodeId> RegionGroups::units_between(NodeId start, Towards towards, int first, int last) {
  ++search_;
  std::vector<NodeId> found, nodes{start};
  while (!nodes.empty()) {
    const NodeId unit = unit_of(nodes.back());
    nodes.pop_back();
    const int place = place_of(unit);
    if (place < first || place > last || stamp_[static_cast<size_t>(unit)] == search_) continue;
    stamp_[static_cast<size_t>(unit)] = search_;
    found.push_back(unit);
    push_next(unit, towards, nodes);
  }
  std::sort(found.begin(), found.end(), [&](NodeId a, NodeId b) { return place_of(a) < place_of(b); });
  return found;
}

// Makes room for the units of the two nodes at one place, which it returns: after all that either depends on,
// before all that depends on either. No third unit may stand between the two.
int RegionGroups::place_together(NodeId a, NodeId b) {
  if (!is_ordered_) return place_of(unit_of(a));  // whoever asks next orders all
  NodeId first = unit_of(a), second = unit_of(b);
  if (place_of(first) > place_of(second)) std::swap(first, second);
  const int from = place_of(first), to = place_of(second);
  const std::vector<NodeId> before = units_between(second, Towards::kOperands, from + 1, to);
  const std::vector<NodeId> after = units_between(first, Towards::kReaders, from, to - 1);
  std::vector<int> places;
  for (const auto* units : {&before, &after})
    for (NodeId unit : *units) places.push_back(place_of(unit));
  std::sort(places.begin(), places.end());
  // `before` ends with the second of the two, `after` begins with the first: they share the place between.
  const size_t own = before.size() - 1;
  for (size_t i = 0; i < own; ++i) place_of(before[i]) = places[i];
  for (size_t i = 1; i < after.size(); ++i) place_of(after[i]) = places[own + i];
  return places[own];
}

// Places every unit after those that it reads from, by a search in depth.
void RegionGroups::order_anew() {
  is_ordered_ = true;
  ++search_;
  int next = 0;
  struct Visit {
    NodeId unit;
    std::vector<NodeId> operands;
  };
  std::vector<Visit> visits;
  const auto visit = [&](NodeId id) {
    const NodeId unit = unit_of(id);
    if (stamp_[static_cast<size_t>(unit)] == search_) return;
    stamp_[static_cast<size_t>(unit)] = search_;
    visits.push_back({unit, {}});
    push_next(unit, Towards::kOperands, visits.back().operands);
  };
  for (size_t id = 0; id < graph_.nodes().size(); ++id) {
    visit(static_cast<NodeId>(id));
    while (!visits.empty()) {
      Visit& top = visits.back();
      if (top.operands.empty()) {
        place_of(top.unit) = next++;
        visits.pop_back();
      } else {
        const NodeId operand = top.operands.back();
        top.operands.pop_back();
        visit(operand);
      }
    }
  }
}

}  // namespace aicf
