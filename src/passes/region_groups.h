// The nodes of a graph in groups, each to become one region: fuse_regions forms them, release_epilogues takes
// nodes out again, emit_regions writes the graph. Whoever lets a node into a group has asked whether the
// group accepts it, and that nothing outside the group stands between the two: a region runs as a whole, so
// it must not depend on itself. Graph and context outlive the groups.
#pragma once

#include "passes/pass.h"

namespace aicf {

// All values have the full shape, or the row shape (reduced axes of size 1); casts of smaller leaves (a
// norm's scale, a bias) are computed along with what reads them.
struct Group {
  std::vector<NodeId> nodes;  // in topological order; none: the group was merged into another
  bool contraction = false;   // nodes[0] is a matmul or a conv, the others its epilogue
  Shape full;
  std::vector<int64_t> axes;  // reduced; empty: no reductions
};

bool inside(const Group& group, NodeId id);
// The node that gives the value; -1: it is a leaf or absent.
NodeId producer_id(const Graph& graph, ValueId id);
// What a region that begins with the node runs over.
const Shape& domain_of(const Graph& graph, const Node& node);

class RegionGroups {
 public:
  RegionGroups(const Graph& graph, const PassContext& context);

  const Graph& graph() const { return graph_; }
  const PassContext& context() const { return context_; }
  int count() const { return static_cast<int>(groups_.size()); }
  const Group& operator[](int g) const { return groups_[static_cast<size_t>(g)]; }
  // The group that the node is in; -1: none.
  int of(NodeId id) const { return group_of_[static_cast<size_t>(id)]; }

  // --- changes
  void start(NodeId id, bool contraction);
  void join(NodeId id, int g);
  // Out of its group, into another or (-1) one of its own.
  void move(NodeId id, int to);
  // Joins all of group `from` to `to`, if the two may be one region.
  void merge(int from, int to);
  void clear();

  // --- what a group may hold
  // Whether the node's shape, axes and operands fit the group.
  bool accepts(const Group& group, const Node& node) const;
  // Whether the node gives an output that repeats what has reduced axes, for a GPU: a kernel of the reduction
  // can store it.
  bool repeats_rows(const Node& node) const;
  // Whether a small group for a GPU reduces its first axes alone and the shape is what is left: a value of
  // each row, as the optimizer of a bias sees the sums that are its gradient. A large sum is spread over
  // launches which several such sums could share.
  bool is_row_without_axes(const Shape& shape, const Group& group) const;

  // --- who reads what
  const std::vector<NodeId>& readers_of(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  bool used_outside(const Group& group, ValueId id) const;
  // Whether anything but a region reads the value, or the contraction that a region begins with.
  bool used_outside_regions(ValueId id) const;
  // A cast of a leaf, or of what another region gives, that only regions read: each computes it again, which
  // costs less than a kernel of its own.
  bool is_absorbed(NodeId id) const;

  // --- dependence (region_order.cc)
  // Whether some operand of `node` that lies outside group g depends on g: joining would make a cycle.
  bool depends_outside(const Node& node, int g);

 private:
  // Whether rows along the axes may be read again by later stages.
  bool row_fits(const Shape& full, const std::vector<int64_t>& axes) const;
  // Whether one of the groups only reduces what the other computes, on a GPU, where no row is read again and
  // few long ones are shared by launches.
  bool sums_at_once(const Group& a, const Group& b) const;
  size_t operand_count(const Group& group, const Node& extra) const;
  bool leaves_graph(ValueId id) const { return leaves_graph_[static_cast<size_t>(id)]; }
  Group& group(int g) { return groups_[static_cast<size_t>(g)]; }

  // --- region_order.cc. A unit is what runs as one: a group, named by its first node, or a node without one.
  bool depends_on(const Node& node, int g);
  bool path_through_third(int earlier, int later);
  bool reaches(std::vector<NodeId> nodes, int g);
  void make_tree();
  bool descends(NodeId node, NodeId from) const;
  NodeId unit_of(NodeId id) const { return of(id) < 0 ? id : (*this)[of(id)].nodes[0]; }
  int slot_of(NodeId unit) const { return of(unit) < 0 ? unit : group_slot_[static_cast<size_t>(of(unit))]; }
  int64_t& place_of(NodeId unit) { return places_[static_cast<size_t>(slot_of(unit))]; }
  void push_operands(NodeId unit, std::vector<NodeId>& nodes) const;
  std::vector<NodeId> operands_between(NodeId start, int64_t first, int64_t last);
  int place_together(NodeId a, NodeId b);
  void take_out(int slot);
  void insert_before(const std::vector<int>& slots, int at);
  void place_anew(const std::vector<int>& slots);
  void order_anew();

  const Graph& graph_;
  const PassContext& context_;
  std::vector<std::vector<NodeId>> readers_;  // by value
  std::vector<bool> leaves_graph_;            // by value: an output, or what an update writes
  std::vector<Group> groups_;
  std::vector<int> group_of_;  // by node
  std::vector<int> stamp_;     // by unit: the last search that came by
  int search_ = 0;
  // A tree over the nodes, each below the latest that it reads from, in preorder: by node its place and how
  // many it holds. What lies below a node depends on it, which spares a search along a chain of layers.
  std::vector<int> preorder_, below_;
  // Places of units in an order in which each stands after all that it depends on, so that searches stay
  // between the places of what they ask about. The order is a list of slots: a node's is its number, a group
  // has that of one of its nodes.
  std::vector<int64_t> places_;
  std::vector<int> previous_, next_;  // by slot; -1: none
  std::vector<int> group_slot_;
  bool is_ordered_ = true;  // false: a node left its group since
};

}  // namespace aicf
