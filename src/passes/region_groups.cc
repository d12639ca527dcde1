#include "passes/region_groups.h"

#include <algorithm>
#include <optional>

#include "passes/recompute_cost.h"
#include "passes/region_body.h"

namespace aicf {
namespace {

constexpr size_t kMaxRegionNodes = 40;
constexpr int64_t kSmallSum = 1 << 16;  // elements of what a sum covers whose followers join it
constexpr int64_t kMaxKeptRow =
    1 << 17;  // elements: a row that later stages read again stays in the L2 cache

Shape row_shape(const Group& group) {
  Shape shape = group.full;
  for (int64_t axis : group.axes) shape[static_cast<size_t>(axis)] = Dim(1);
  return shape;
}

// Whether what repeats along the reduced axes, or lies between them, is stored in accesses of 16 bytes.
bool stores_wide(const Group& group, DType dtype) {
  const auto reduced = [&](size_t axis) {
    return std::find(group.axes.begin(), group.axes.end(), static_cast<int64_t>(axis)) != group.axes.end();
  };
  Dim run(dtype_bytes(dtype));
  size_t axis = group.full.size();
  for (std::optional<bool> along; axis > 0; --axis) {
    const Dim& size = group.full[axis - 1];
    if (size == Dim(1)) continue;
    if (along.value_or(reduced(axis - 1)) != reduced(axis - 1)) break;
    along = reduced(axis - 1);
    run = run * size;
  }
  return axis == 0 || divide_exactly(run, Dim(16)).has_value();
}

}  // namespace

NodeId producer_id(const Graph& graph, ValueId id) { return id == kNoValue ? -1 : graph.value(id).producer; }

bool inside(const Group& group, NodeId id) {
  return std::find(group.nodes.begin(), group.nodes.end(), id) != group.nodes.end();
}

const Shape& domain_of(const Graph& graph, const Node& node) {
  return graph.shape(op_info(node.op).has(kReduction) ? node.operands[0] : node.results[0]);
}

RegionGroups::RegionGroups(const Graph& graph, const PassContext& context)
    : graph_(graph),
      context_(context),
      readers_(readers_by_value(graph)),
      leaves_graph_(static_cast<size_t>(graph.value_count()), false),
      group_of_(graph.nodes().size(), -1),
      stamp_(graph.nodes().size(), 0),
      places_(graph.nodes().size()),
      previous_(graph.nodes().size(), -1),
      next_(graph.nodes().size(), -1) {
  make_tree();
  order_anew();
  for (ValueId id : graph.outputs()) leaves_graph_[static_cast<size_t>(id)] = true;
  for (const Update& update : graph.updates()) leaves_graph_[static_cast<size_t>(update.value)] = true;
}

// ---- changes

void RegionGroups::start(NodeId id, bool contraction) {
  const Node& node = graph_.node(id);
  Group created;
  created.nodes = {id};
  created.contraction = contraction;
  created.full = domain_of(graph_, node);
  if (op_info(node.op).has(kReduction)) created.axes = node.attrs.get_ints("axes");
  group_of_[static_cast<size_t>(id)] = count();
  groups_.push_back(std::move(created));
  group_slot_.push_back(id);
}

void RegionGroups::join(NodeId id, int g) {
  const Node& node = graph_.node(id);
  group_slot_[static_cast<size_t>(g)] = place_together(group(g).nodes[0], id);
  if (op_info(node.op).has(kReduction)) group(g).axes = node.attrs.get_ints("axes");
  std::vector<NodeId>& nodes = group(g).nodes;
  nodes.insert(std::upper_bound(nodes.begin() + (group(g).contraction ? 1 : 0), nodes.end(), id), id);
  group_of_[static_cast<size_t>(id)] = g;
}

void RegionGroups::move(NodeId id, int to) {
  std::erase(group(of(id)).nodes, id);
  group_of_[static_cast<size_t>(id)] = -1;
  is_ordered_ = false;
  if (to < 0)
    start(id, false);
  else
    join(id, to);
}

void RegionGroups::merge(int from, int to) {
  if (from == to || group(from).contraction) return;
  Group& target = group(to);
  const Group source = group(from);
  const bool rows_of_source = target.axes.empty() && is_row_without_axes(target.full, source);
  const bool same = source.full == target.full || rows_of_source ||
                    (source.axes.empty() && is_row_without_axes(source.full, target));
  if (!same || source.nodes.size() + target.nodes.size() > kMaxRegionNodes) return;
  if (target.contraction && !source.axes.empty()) return;
  if (!source.axes.empty() && !target.axes.empty() && source.axes != target.axes) return;
  const std::vector<int64_t> axes = source.axes.empty() ? target.axes : source.axes;
  const Shape full = rows_of_source ? source.full : target.full;
  if (!axes.empty() && !row_fits(full, axes) && !sums_at_once(source, target)) return;
  if (path_through_third(from, to) || path_through_third(to, from)) return;
  if (target.contraction && depends_on(graph_.node(target.nodes[0]), from)) return;
  Group merged = target;
  merged.axes = axes;
  merged.full = full;
  merged.nodes.insert(merged.nodes.end(), source.nodes.begin(), source.nodes.end());
  std::sort(merged.nodes.begin() + (target.contraction ? 1 : 0), merged.nodes.end());
  if (operand_count(merged, graph_.node(merged.nodes[0])) > kMaxRegionOperands) return;
  group_slot_[static_cast<size_t>(to)] = place_together(source.nodes[0], target.nodes[0]);
  target = merged;
  for (NodeId id : source.nodes) group_of_[static_cast<size_t>(id)] = to;
  group(from).nodes.clear();
}

void RegionGroups::clear() {
  groups_.clear();
  std::fill(group_of_.begin(), group_of_.end(), -1);
  group_slot_.clear();
  order_anew();
}

// ---- what a group may hold

bool RegionGroups::accepts(const Group& group, const Node& node) const {
  if (group.nodes.size() >= kMaxRegionNodes || operand_count(group, node) > kMaxRegionOperands) return false;
  if (op_info(node.op).has(kReduction)) {
    const std::vector<int64_t>& axes = node.attrs.get_ints("axes");
    if (group.contraction || axes.empty() || !(graph_.shape(node.operands[0]) == group.full)) return false;
    return group.axes.empty() ? row_fits(group.full, axes) || context_.target.is_cuda()
                              : group.axes == axes && row_fits(group.full, axes);
  }
  const Shape& shape = graph_.shape(node.results[0]);
  if (node.op == Op::broadcast_to)
    return !group.axes.empty() && shape == group.full && stores_wide(group, graph_.dtype(node.results[0]));
  if (group.axes.empty()) return shape == group.full;
  return shape == row_shape(group) || is_row_without_axes(shape, group) ||
         (shape == group.full && row_fits(group.full, group.axes));
}

bool RegionGroups::repeats_rows(const Node& node) const {
  return node.op == Op::broadcast_to && context_.target.is_cuda() && leaves_graph(node.results[0]) &&
         readers_of(node.results[0]).empty();
}

bool RegionGroups::is_row_without_axes(const Shape& shape, const Group& group) const {
  const size_t count = group.axes.size();
  if (!context_.gradients || !context_.target.is_cuda() || count == 0 || group.contraction ||
      shape.size() + count != group.full.size() ||
      most_elements(group.full, context_.program.sizes) > kSmallSum)
    return false;
  for (size_t i = 0; i < count; ++i)
    if (group.axes[i] != static_cast<int64_t>(i)) return false;
  return std::equal(shape.begin(), shape.end(), group.full.begin() + static_cast<std::ptrdiff_t>(count));
}

bool RegionGroups::row_fits(const Shape& full, const std::vector<int64_t>& axes) const {
  // A step for a GPU: long rows are spread over a cluster, and few of them over launches that there would be
  // in any case.
  if (context_.gradients && context_.target.is_cuda()) return true;
  Dim length(1);
  for (int64_t axis : axes) length = length * full[static_cast<size_t>(axis)];
  return bounds(length, context_.program.sizes).hi <= kMaxKeptRow;
}

bool RegionGroups::sums_at_once(const Group& a, const Group& b) const {
  if (!context_.target.is_cuda() || a.axes.empty() == b.axes.empty()) return false;
  const Group &sums = a.axes.empty() ? b : a, &terms = a.axes.empty() ? a : b;
  return std::none_of(terms.nodes.begin(), terms.nodes.end(), [&](NodeId id) {
    const std::vector<ValueId>& operands = graph_.node(id).operands;
    return std::any_of(operands.begin(), operands.end(),
                       [&](ValueId operand) { return inside(sums, producer_id(graph_, operand)); });
  });
}

size_t RegionGroups::operand_count(const Group& group, const Node& extra) const {
  std::vector<ValueId> touched;
  const auto add = [&](const Node& node) {
    for (ValueId id : node.operands)
      if (id != kNoValue && std::find(touched.begin(), touched.end(), id) == touched.end())
        touched.push_back(id);
    for (ValueId id : node.results) touched.push_back(id);
  };
  for (NodeId id : group.nodes) add(graph_.node(id));
  add(extra);
  return static_cast<size_t>(std::count_if(touched.begin(), touched.end(), [&](ValueId id) {
    return !is_immediate(graph_.value(id)) &&
           (!inside(group, producer_id(graph_, id)) || used_outside(group, id));
  }));
}

// ---- who reads what

bool RegionGroups::used_outside(const Group& group, ValueId id) const {
  const auto& readers = readers_of(id);
  return leaves_graph(id) ||
         std::any_of(readers.begin(), readers.end(), [&](NodeId reader) { return !inside(group, reader); });
}

bool RegionGroups::used_outside_regions(ValueId id) const {
  const auto& readers = readers_of(id);
  return leaves_graph(id) || std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
           if (of(reader) < 0) return true;
           const Group& region = (*this)[of(reader)];
           return region.nodes.size() == 1 || (region.contraction && region.nodes[0] == reader);
         });
}

bool RegionGroups::is_absorbed(NodeId id) const {
  const Node& node = graph_.node(id);
  if (node.op != Op::cast || of(id) < 0) return false;
  const NodeId source = producer_id(graph_, node.operands[0]);
  if (source >= 0 && (of(source) < 0 || !widens(graph_, node))) return false;
  return (*this)[of(id)].nodes.size() == 1 && !used_outside_regions(node.results[0]);
}

}  // namespace aicf
