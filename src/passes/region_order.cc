// Who depends on whom among the units of RegionGroups. Units have places in an order in which each stands
// after all that it depends on; where two become one, what the second depends on moves before the first, and
// nothing else: the order stays one, for no third unit may stand between the two.
#include <algorithm>

#include "passes/region_groups.h"

namespace aicf {
namespace {

constexpr int64_t kRoom = int64_t{1} << 32;  // between the places of neighbours, at first
constexpr int64_t kStep = int64_t{1} << 16;  // what is moved takes of the room where it goes

}  // namespace

void RegionGroups::push_operands(NodeId unit, std::vector<NodeId>& nodes) const {
  const auto push = [&](const Node& node) {
    for (ValueId operand : node.operands)
      if (const NodeId producer = producer_id(graph_, operand); producer >= 0) nodes.push_back(producer);
  };
  if (of(unit) < 0) return push(graph_.node(unit));
  for (NodeId member : (*this)[of(unit)].nodes) push(graph_.node(member));
}

bool RegionGroups::depends_outside(const Node& node, int g) {
  std::vector<NodeId> producers;
  for (ValueId operand : node.operands)
    if (const NodeId producer = producer_id(graph_, operand); producer >= 0 && of(producer) != g)
      producers.push_back(producer);
  return reaches(std::move(producers), g);
}

// Whether an operand of the node is in group g or depends on it.
bool RegionGroups::depends_on(const Node& node, int g) {
  std::vector<NodeId> producers;
  for (ValueId operand : node.operands)
    if (const NodeId producer = producer_id(graph_, operand); producer >= 0) producers.push_back(producer);
  return reaches(std::move(producers), g);
}

// Whether a node of `later` has an operand outside both groups that depends on `earlier`.
bool RegionGroups::path_through_third(int earlier, int later) {
  std::vector<NodeId> producers;
  push_operands(group(later).nodes[0], producers);
  std::erase_if(producers, [&](NodeId id) { return of(id) == earlier || of(id) == later; });
  return reaches(std::move(producers), earlier);
}

// Whether one of the nodes or anything they depend on (through whole groups, for they run as one) is in group
// g.
bool RegionGroups::reaches(std::vector<NodeId> nodes, int g) {
  if (!is_ordered_) order_anew();
  for (NodeId node : nodes)
    for (NodeId member : (*this)[g].nodes)
      if (descends(node, member)) return true;
  ++search_;
  const int64_t floor = places_[static_cast<size_t>(group_slot_[static_cast<size_t>(g)])];
  while (!nodes.empty()) {
    const NodeId unit = unit_of(nodes.back());
    nodes.pop_back();
    if (place_of(unit) < floor || stamp_[static_cast<size_t>(unit)] == search_) continue;
    stamp_[static_cast<size_t>(unit)] = search_;
    if (of(unit) == g) return true;
    push_operands(unit, nodes);
  }
  return false;
}

void RegionGroups::make_tree() {
  const size_t count = graph_.nodes().size();
  std::vector<NodeId> parent(count, -1);
  below_.assign(count, 1);
  for (size_t i = count; i-- > 0;) {
    for (ValueId operand : graph_.nodes()[i].operands)
      parent[i] = std::max(parent[i], producer_id(graph_, operand));
    if (parent[i] >= 0) below_[static_cast<size_t>(parent[i])] += below_[i];
  }
  preorder_.resize(count);
  int roots = 0;                 // where the next tree begins
  std::vector<int> next(count);  // by node: where the next subtree below it begins
  for (size_t i = 0; i < count; ++i) {
    int& place = parent[i] < 0 ? roots : next[static_cast<size_t>(parent[i])];
    preorder_[i] = place;
    next[i] = place + 1;
    place += below_[i];
  }
}

// Whether the node is `from` or lies below it in the tree.
bool RegionGroups::descends(NodeId node, NodeId from) const {
  const int place = preorder_[static_cast<size_t>(node)], first = preorder_[static_cast<size_t>(from)];
  return first <= place && place < first + below_[static_cast<size_t>(from)];
}

// The unit `start` and what it depends on, placed behind `first` and up to `last`; in the order of their
// places.
std::vector<NodeId> RegionGroups::operands_between(NodeId start, int64_t first, int64_t last) {
  ++search_;
  std::vector<NodeId> found, nodes{start};
  while (!nodes.empty()) {
    const NodeId unit = unit_of(nodes.back());
    nodes.pop_back();
    const int64_t place = place_of(unit);
    if (place <= first || place > last || stamp_[static_cast<size_t>(unit)] == search_) continue;
    stamp_[static_cast<size_t>(unit)] = search_;
    found.push_back(unit);
    push_operands(unit, nodes);
  }
  std::sort(found.begin(), found.end(), [&](NodeId a, NodeId b) { return place_of(a) < place_of(b); });
  return found;
}

// The slot for the units of the two nodes as one: after all that either depends on, before all that depends
// on either.
int RegionGroups::place_together(NodeId a, NodeId b) {
  NodeId first = unit_of(a), second = unit_of(b);
  if (!is_ordered_) return slot_of(first);  // whoever asks next orders all
  if (place_of(first) > place_of(second)) std::swap(first, second);
  std::vector<int> moved;
  for (NodeId unit : operands_between(second, place_of(first), place_of(second))) {
    moved.push_back(slot_of(unit));
    take_out(moved.back());
  }
  moved.pop_back();  // the second itself, whose slot is no longer needed
  insert_before(moved, slot_of(first));
  return slot_of(first);
}

void RegionGroups::take_out(int slot) {
  const int previous = previous_[static_cast<size_t>(slot)], next = next_[static_cast<size_t>(slot)];
  if (previous >= 0) next_[static_cast<size_t>(previous)] = next;
  if (next >= 0) previous_[static_cast<size_t>(next)] = previous;
}

void RegionGroups::insert_before(const std::vector<int>& slots, int at) {
  if (slots.empty()) return;
  const auto count = static_cast<int64_t>(slots.size());
  const int64_t end = places_[static_cast<size_t>(at)];
  int last = previous_[static_cast<size_t>(at)];
  int64_t place = last < 0 ? end - (count + 1) * kRoom : places_[static_cast<size_t>(last)];
  const int64_t step = std::min(kStep, (end - place) / (count + 1));
  const auto follow = [&](int slot) {
    if (last >= 0) next_[static_cast<size_t>(last)] = slot;
    previous_[static_cast<size_t>(slot)] = last;
    last = slot;
  };
  for (int slot : slots) {
    places_[static_cast<size_t>(slot)] = place += step;
    follow(slot);
  }
  follow(at);
  if (step > 0) return;
  // No room is left: all places are made anew, in the same order.
  std::vector<int> all;
  while (previous_[static_cast<size_t>(at)] >= 0) at = previous_[static_cast<size_t>(at)];
  for (; at >= 0; at = next_[static_cast<size_t>(at)]) all.push_back(at);
  place_anew(all);
}

void RegionGroups::place_anew(const std::vector<int>& slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto slot = static_cast<size_t>(slots[i]);
    places_[slot] = static_cast<int64_t>(i) * kRoom;
    previous_[slot] = i > 0 ? slots[i - 1] : -1;
    next_[slot] = i + 1 < slots.size() ? slots[i + 1] : -1;
  }
}

// Places every unit after those that it reads from, by a search in depth.
void RegionGroups::order_anew() {
  is_ordered_ = true;
  ++search_;
  for (size_t g = 0; g < groups_.size(); ++g)
    if (!groups_[g].nodes.empty()) group_slot_[g] = groups_[g].nodes[0];
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
    push_operands(unit, visits.back().operands);
  };
  std::vector<int> slots;
  for (size_t id = 0; id < graph_.nodes().size(); ++id) {
    visit(static_cast<NodeId>(id));
    while (!visits.empty()) {
      Visit& top = visits.back();
      if (top.operands.empty()) {
        slots.push_back(slot_of(top.unit));
        visits.pop_back();
      } else {
        const NodeId operand = top.operands.back();
        top.operands.pop_back();
        visit(operand);
      }
    }
  }
  place_anew(slots);
}

}  // namespace aicf
