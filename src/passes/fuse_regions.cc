#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "passes/pass.h"

namespace aicf {
namespace {

constexpr size_t kMaxRegionNodes = 40;
constexpr size_t kMaxRegionOperands = 20;  // below kMaxTileOperands, outputs count too
constexpr int64_t kMaxKeptRow =
    1 << 16;  // elements: a row that later stages read again stays in the L2 cache

constexpr int64_t kLargeProduct = 1 << 19;  // elements
constexpr size_t kMaxEpilogueTensors = 4;   // of a large product: read or written
constexpr int64_t kFewElements = 1 << 10;   // a region over so few costs little but its launch

// A set of nodes that becomes one region. All its values have the full shape, or the row shape (reduced axes
// of size 1); casts of smaller leaves (a norm's scale, a bias) are computed along with what reads them.
struct Group {
  std::vector<NodeId> nodes;  // in topological order
  bool contraction = false;   // nodes[0] is a matmul or a conv, the others its epilogue
  Shape full;
  std::vector<int64_t> axes;  // reduced; empty: no reductions
};

class Fuser {
 public:
  Fuser(const Graph& graph, const PassContext& context)
      : graph_(graph),
        context_(context),
        group_of_(graph.nodes().size(), -1),
        stamp_(graph.nodes().size(), 0),
        first_across_(graph.nodes().size()) {
    std::iota(first_across_.begin(), first_across_.end(), 0);
  }

  Graph run() {
    form_groups();
    if (context_.target.is_cuda() && trains(graph_) && find_heavy_epilogues()) {
      groups_.clear();
      std::fill(group_of_.begin(), group_of_.end(), -1);
      form_groups();
    }
    release_followers();
    merge_siblings();
    return emit();
  }

 private:
  Group& group(int id) { return groups_[static_cast<size_t>(id)]; }

  void form_groups() {
    const auto count = static_cast<NodeId>(graph_.nodes().size());
    // Scalars last: a region of scalars that joined a sum of large regions' results would keep those apart.
    for (NodeId id = 0; id < count; ++id) consider(id, true);
    for (NodeId id = 0; id < count; ++id)
      if (group_of_[static_cast<size_t>(id)] < 0) consider(id, false);
  }

  // On a GPU an epilogue's loads and stores stand between the products of two tiles; one that moves many
  // tensors, an optimizer's step for one, costs more than a pass of its own behind the memory's full speed.
  bool find_heavy_epilogues() {
    for (const Group& g : groups_) {
      if (!g.contraction || bounds(element_count(g.full), context_.program.sizes).hi < kLargeProduct)
        continue;
      std::vector<ValueId> moved;
      const auto note = [&](ValueId id) {
        if (graph_.shape(id) == g.full && std::find(moved.begin(), moved.end(), id) == moved.end())
          moved.push_back(id);
      };
      for (NodeId id : g.nodes) {
        for (ValueId operand : graph_.node(id).operands)
          if (id != g.nodes[0] && operand != kNoValue && !inside(g, graph_.value(operand).producer))
            note(operand);
        for (ValueId result : graph_.node(id).results)
          if (used_outside(g, result)) note(result);
      }
      if (moved.size() > kMaxEpilogueTensors) plain_.insert(g.nodes[0]);
    }
    return !plain_.empty();
  }

  void consider(NodeId id, bool large_only) {
    const Node& node = graph_.node(id);
    if (is_contraction(node)) return start_group(id, true);
    if (!is_fusible(node)) return;
    for (int candidate : producer_groups(node)) {
      if (large_only && group(candidate).full.empty()) continue;
      if (group_of_[static_cast<size_t>(id)] < 0) {
        if (accepts(group(candidate), node) && !depends_outside(node, candidate)) join(id, candidate);
      } else {
        merge(candidate, group_of_[static_cast<size_t>(id)]);
      }
    }
    if (group_of_[static_cast<size_t>(id)] < 0 && !(large_only && domain_of(node).empty()))
      start_group(id, false);
  }

  // What a region that begins with this node runs over.
  const Shape& domain_of(const Node& node) const {
    return graph_.shape(op_info(node.op).has(kReduction) ? node.operands[0] : node.results[0]);
  }
  bool is_few(const Shape& shape) const {
    return bounds(element_count(shape), context_.program.sizes).hi <= kFewElements;
  }

  bool is_contraction(const Node& node) const {
    return (node.op == Op::matmul || node.op == Op::conv) && node.operands[0] != node.operands[1] &&
           !plain_.contains(graph_.value(node.results[0]).producer) &&
           context_.target.takes_epilogue(graph_, node);
  }

  // A region's body holds such a constant itself.
  bool is_immediate(ValueId id) const {
    return graph_.value(id).role == Role::kConstant && graph_.value(id).constant.count() == 1;
  }

  bool is_fusible(const Node& node) const {
    const OpInfo& info = op_info(node.op);
    if (!context_.target.fuses(graph_, node)) return false;
    return info.has(kPointwise) || (info.has(kReduction) && node.attrs.get_bool("keepdims"));
  }

  // Groups that produce operands, contractions first because an epilogue saves a whole pass over memory,
  // then the latest.
  std::vector<int> producer_groups(const Node& node) const {
    std::vector<int> found;
    for (ValueId id : node.operands) {
      if (id == kNoValue || graph_.value(id).role != Role::kTemp) continue;
      const int g = group_of_[static_cast<size_t>(graph_.value(id).producer)];
      if (g >= 0 && std::find(found.begin(), found.end(), g) == found.end()) found.push_back(g);
    }
    std::sort(found.begin(), found.end(), [&](int a, int b) {
      const bool ma = groups_[static_cast<size_t>(a)].contraction,
                 mb = groups_[static_cast<size_t>(b)].contraction;
      return ma != mb ? ma : a > b;
    });
    return found;
  }

  void start_group(NodeId id, bool contraction) {
    const Node& node = graph_.node(id);
    Group created;
    created.nodes = {id};
    created.contraction = contraction;
    created.full = domain_of(node);
    if (op_info(node.op).has(kReduction)) created.axes = node.attrs.get_ints("axes");
    group_of_[static_cast<size_t>(id)] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(created));
  }

  void join(NodeId id, int g) {
    const Node& node = graph_.node(id);
    if (op_info(node.op).has(kReduction)) group(g).axes = node.attrs.get_ints("axes");
    std::vector<NodeId>& nodes = group(g).nodes;
    nodes.insert(std::upper_bound(nodes.begin() + (group(g).contraction ? 1 : 0), nodes.end(), id), id);
    group_of_[static_cast<size_t>(id)] = g;
    note_span(group(g));
  }

  static Shape row_shape(const Group& g) {
    Shape shape = g.full;
    for (int64_t axis : g.axes) shape[static_cast<size_t>(axis)] = Dim(1);
    return shape;
  }

  bool row_fits(const Shape& full, const std::vector<int64_t>& axes) const {
    Dim length(1);
    for (int64_t axis : axes) length = length * full[static_cast<size_t>(axis)];
    return bounds(length, context_.program.sizes).hi <= kMaxKeptRow;
  }

  bool accepts(const Group& g, const Node& node) const {
    if (g.nodes.size() >= kMaxRegionNodes || operand_count(g, node) > kMaxRegionOperands) return false;
    if (op_info(node.op).has(kReduction)) {
      const std::vector<int64_t>& axes = node.attrs.get_ints("axes");
      if (g.contraction || axes.empty() || !(graph_.shape(node.operands[0]) == g.full)) return false;
      return (g.axes.empty() || g.axes == axes) && row_fits(g.full, axes);
    }
    const Shape& shape = graph_.shape(node.results[0]);
    if (g.axes.empty()) return shape == g.full;
    return shape == row_shape(g) || (shape == g.full && row_fits(g.full, g.axes));
  }

  size_t operand_count(const Group& g, const Node& extra) const {
    std::vector<ValueId> outside;
    const auto add = [&](const Node& node) {
      for (ValueId id : node.operands)
        if (id != kNoValue && std::find(outside.begin(), outside.end(), id) == outside.end())
          outside.push_back(id);
      for (ValueId id : node.results) outside.push_back(id);
    };
    for (NodeId id : g.nodes) add(graph_.node(id));
    add(extra);
    size_t count = 0;
    for (ValueId id : outside) {
      const Value& value = graph_.value(id);
      const bool inner_temp = value.role == Role::kTemp && inside(g, value.producer);
      if (!is_immediate(id) && (!inner_temp || used_outside(g, id))) ++count;
    }
    return count;
  }

  static bool inside(const Group& g, NodeId id) {
    return std::find(g.nodes.begin(), g.nodes.end(), id) != g.nodes.end();
  }

  bool used_outside(const Group& g, ValueId id) const {
    for (ValueId output : graph_.outputs())
      if (output == id) return true;
    for (const Update& update : graph_.updates())
      if (update.value == id) return true;
    const auto readers = readers_of(id);
    return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) { return !inside(g, reader); });
  }

  const std::vector<NodeId>& readers_of(ValueId id) const {
    if (readers_.empty()) {
      readers_.resize(static_cast<size_t>(graph_.value_count()));
      for (size_t n = 0; n < graph_.nodes().size(); ++n)
        for (ValueId operand : graph_.nodes()[n].operands)
          if (operand != kNoValue) readers_[static_cast<size_t>(operand)].push_back(static_cast<NodeId>(n));
    }
    return readers_[static_cast<size_t>(id)];
  }

  // Whether some operand of `node` that lies outside group g depends on g: joining would make a cycle.
  bool depends_outside(const Node& node, int g) {
    for (ValueId id : node.operands) {
      if (id == kNoValue || graph_.value(id).role != Role::kTemp) continue;
      const NodeId producer = graph_.value(id).producer;
      if (group_of_[static_cast<size_t>(producer)] != g && reaches(producer, g)) return true;
    }
    return false;
  }

  // Whether `start` or anything it depends on (through whole groups, for they run as one) is in group g.
  bool reaches(NodeId start, int g) {
    ++visit_;
    const NodeId floor = floor_of(group(g));
    std::vector<NodeId> stack{start};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (id < floor || stamp_[static_cast<size_t>(id)] == visit_) continue;
      stamp_[static_cast<size_t>(id)] = visit_;
      const int own = group_of_[static_cast<size_t>(id)];
      if (own == g) return true;
      if (own >= 0)
        for (NodeId member : group(own).nodes) stack.push_back(member);
      for (ValueId operand : graph_.node(id).operands)
        if (operand != kNoValue && graph_.value(operand).role == Role::kTemp)
          stack.push_back(graph_.value(operand).producer);
    }
    return false;
  }

  // No group has nodes on both sides of the floor below group g, and operands come before what reads them:
  // from nodes under it nothing leads to g. Without it every search would walk the whole graph.
  NodeId floor_of(const Group& g) const {
    NodeId floor = *std::min_element(g.nodes.begin(), g.nodes.end());
    while (first_across_[static_cast<size_t>(floor)] < floor)
      floor = first_across_[static_cast<size_t>(floor)];
    return floor;
  }
  // Called when a group grows; that one shrank only makes searches longer.
  void note_span(const Group& g) {
    const auto [first, last] = std::minmax_element(g.nodes.begin(), g.nodes.end());
    for (NodeId id = *first + 1; id <= *last; ++id) {
      NodeId& across = first_across_[static_cast<size_t>(id)];
      across = std::min(across, *first);
    }
  }

  // What an epilogue computes from values that it gives anyway, only for one other region or wider than they
  // are, is computed by those who read it: that costs nothing beside the memory.
  void release_followers() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const std::vector<NodeId> nodes = groups_[g].nodes;
      for (auto id = nodes.rbegin(); id != nodes.rend(); ++id) {
        if (groups_[g].nodes.size() == 1 || *id == nodes[0]) continue;
        const int reader = is_follower(*id, groups_[g]) ? reading_group(graph_.node(*id).results[0]) : -1;
        if (reader >= 0)
          move(*id, static_cast<int>(g), reader);
        else if (is_widened(*id, groups_[g]))
          move(*id, static_cast<int>(g), -1);
      }
    }
  }
  bool is_follower(NodeId id, const Group& g) const {
    const Node& node = graph_.node(id);
    return g.contraction && std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId operand) {
             const Value& value = graph_.value(operand);
             return value.role != Role::kTemp || !inside(g, value.producer) ||
                    (value.producer != g.nodes[0] && used_outside(g, operand));
           });
  }
  // The one group without a contraction whose nodes read the value, and that can take what computes it; -1:
  // there is none.
  int reading_group(ValueId id) const {
    const auto& readers = readers_of(id);
    if (readers.empty() || used_outside_regions(id)) return -1;
    const int found = group_of_[static_cast<size_t>(readers[0])];
    const Group& reader = groups_[static_cast<size_t>(found)];
    const bool only = std::all_of(readers.begin(), readers.end(),
                                  [&](NodeId node) { return group_of_[static_cast<size_t>(node)] == found; });
    return only && !reader.contraction && accepts(reader, graph_.node(graph_.value(id).producer)) ? found
                                                                                                  : -1;
  }
  // To group `to`, or one of its own.
  void move(NodeId id, int from, int to) {
    std::erase(group(from).nodes, id);
    if (to < 0) return start_group(id, false);
    std::vector<NodeId>& nodes = group(to).nodes;
    nodes.insert(std::lower_bound(nodes.begin(), nodes.end(), id), id);
    group_of_[static_cast<size_t>(id)] = to;
    note_span(group(to));
  }
  bool is_widened(NodeId id, const Group& g) const {
    const Node& node = graph_.node(id);
    if (node.op != Op::cast) return false;
    const Value& source = graph_.value(node.operands[0]);
    const ValueId result = node.results[0];
    const auto& readers = readers_of(result);
    return source.role == Role::kTemp && inside(g, source.producer) && widens(node) &&
           std::none_of(readers.begin(), readers.end(), [&](NodeId reader) { return inside(g, reader); }) &&
           !used_outside_regions(result);
  }

  // Small regions over one domain cost a launch each and next to nothing more: counters, scales and flags of
  // a train step, rows of labels. Only the latest few are tried: all pairs of an unrolled network take
  // minutes.
  void merge_siblings() {
    constexpr size_t kTried = 8;
    std::map<std::string, std::vector<int>> known;  // by domain
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
      if (!is_small(group(g))) continue;
      std::vector<int>& others = known[to_string(group(g).full)];
      for (size_t i = others.size(); i-- > 0 && others.size() - i <= kTried && !group(g).nodes.empty();)
        merge(g, others[i]);
      if (!group(g).nodes.empty()) others.push_back(g);
    }
  }
  bool is_small(const Group& g) const {
    if (g.nodes.empty() || g.contraction || (g.nodes.size() == 1 && is_absorbed(g.nodes[0]))) return false;
    return is_few(g.full);
  }

  // Joins group `from` into `to` if both cover the same domain and no path runs from one to the other through
  // a third.
  void merge(int from, int to) {
    if (from == to || group(from).contraction) return;
    Group& target = group(to);
    const Group source = group(from);
    if (!(source.full == target.full) || source.nodes.size() + target.nodes.size() > kMaxRegionNodes) return;
    if (target.contraction && !source.axes.empty()) return;
    if (!source.axes.empty() && !target.axes.empty() && source.axes != target.axes) return;
    const std::vector<int64_t> axes = source.axes.empty() ? target.axes : source.axes;
    if (!axes.empty() && !row_fits(source.full, axes)) return;
    if (path_through_third(from, to) || path_through_third(to, from)) return;
    if (target.contraction && depends_on(graph_.node(target.nodes[0]), from)) return;
    Group merged = target;
    merged.axes = axes;
    merged.nodes.insert(merged.nodes.end(), source.nodes.begin(), source.nodes.end());
    std::sort(merged.nodes.begin(), merged.nodes.end());
    if (target.contraction)
      std::stable_partition(merged.nodes.begin(), merged.nodes.end(),
                            [&](NodeId id) { return id == target.nodes[0]; });
    if (operand_count(merged, graph_.node(merged.nodes[0])) > kMaxRegionOperands) return;
    target = merged;
    for (NodeId id : source.nodes) group_of_[static_cast<size_t>(id)] = to;
    group(from).nodes.clear();
    note_span(target);
  }

  // Whether an operand of the node is in group g or depends on it.
  bool depends_on(const Node& node, int g) {
    return std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId id) {
      return id != kNoValue && graph_.value(id).role == Role::kTemp && reaches(graph_.value(id).producer, g);
    });
  }

  // Whether a node of `later` has an operand outside both groups that depends on `earlier`.
  bool path_through_third(int earlier, int later) {
    for (NodeId id : group(later).nodes)
      for (ValueId operand : graph_.node(id).operands) {
        if (operand == kNoValue || graph_.value(operand).role != Role::kTemp) continue;
        const NodeId producer = graph_.value(operand).producer;
        const int own = group_of_[static_cast<size_t>(producer)];
        if (own != earlier && own != later && reaches(producer, earlier)) return true;
      }
    return false;
  }

  // Emits groups and lone nodes in dependency order: a unit is emitted when all it reads has been.
  Graph emit() {
    GraphRewriter rewriter(graph_);
    std::vector<char> done(graph_.nodes().size(), 0);
    const auto count = static_cast<NodeId>(graph_.nodes().size());
    for (NodeId id = 0; id < count; ++id)
      if (is_absorbed(id)) done[static_cast<size_t>(id)] = 1;
    for (NodeId id = 0; id < count; ++id) emit_unit(id, rewriter, done);
    return rewriter.finish();
  }

  // A cast of a leaf, or of what another region gives, that only regions read: each computes it again, which
  // costs less than a kernel of its own.
  bool is_absorbed(NodeId id) const {
    const Node& node = graph_.node(id);
    const int own = group_of_[static_cast<size_t>(id)];
    if (node.op != Op::cast || own < 0) return false;
    const Value& source = graph_.value(node.operands[0]);
    if (source.role == Role::kTemp && (group_of_[static_cast<size_t>(source.producer)] < 0 || !widens(node)))
      return false;
    const Group& lone = groups_[static_cast<size_t>(own)];
    return lone.nodes.size() == 1 && !used_outside_regions(node.results[0]);
  }

  bool widens(const Node& cast) const {
    const auto bytes = [&](ValueId value) { return dtype_bytes(graph_.value(value).type.dtype); };
    return bytes(cast.results[0]) > bytes(cast.operands[0]);
  }

  // Whether anything but a region reads the value, or the contraction that a region begins with.
  bool used_outside_regions(ValueId id) const {
    for (ValueId output : graph_.outputs())
      if (output == id) return true;
    for (const Update& update : graph_.updates())
      if (update.value == id) return true;
    const auto& readers = readers_of(id);
    return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
      const int g = group_of_[static_cast<size_t>(reader)];
      if (g < 0) return true;
      const Group& region = groups_[static_cast<size_t>(g)];
      return region.nodes.size() == 1 || (region.contraction && region.nodes[0] == reader);
    });
  }

  void emit_unit(NodeId id, GraphRewriter& rewriter, std::vector<char>& done) {
    if (done[static_cast<size_t>(id)]) return;
    const int g = group_of_[static_cast<size_t>(id)];
    const std::vector<NodeId> members = g >= 0 ? group(g).nodes : std::vector<NodeId>{id};
    for (NodeId member : members) done[static_cast<size_t>(member)] = 1;
    for (NodeId member : members)
      for (ValueId operand : graph_.node(member).operands) {
        if (operand == kNoValue || graph_.value(operand).role != Role::kTemp) continue;
        NodeId producer = graph_.value(operand).producer;
        if (is_absorbed(producer)) {
          const Value& source = graph_.value(graph_.node(producer).operands[0]);
          if (source.role != Role::kTemp) continue;
          producer = source.producer;
        }
        if (std::find(members.begin(), members.end(), producer) == members.end())
          emit_unit(producer, rewriter, done);
      }
    if (members.size() == 1) {
      rewriter.copy(graph_.node(id));
    } else {
      emit_region(group(g), rewriter);
    }
  }

  void emit_region(const Group& g, GraphRewriter& rewriter) {
    Graph body("body");
    std::map<ValueId, ValueId> inner;
    std::vector<ValueId> operands;
    std::string origin;
    for (NodeId id : g.nodes) {
      const Node& node = graph_.node(id);
      std::vector<ValueId> mapped;
      // A contraction reads its operands from memory, never as immediates.
      const bool immediates = !g.contraction || id != g.nodes[0];
      for (ValueId operand : node.operands)
        mapped.push_back(body_value(operand, g, body, inner, operands, immediates));
      const NodeId copy = body.add_node(node.op, mapped, node.attrs, {}, node.origin);
      for (size_t i = 0; i < node.results.size(); ++i) inner[node.results[i]] = body.node(copy).results[i];
      if (!node.origin.empty()) origin = node.origin;
    }
    std::vector<ValueId> results;
    for (NodeId id : g.nodes)
      for (ValueId result : graph_.node(id).results)
        if (used_outside(g, result)) {
          body.add_output(inner.at(result), "y" + std::to_string(results.size()));
          results.push_back(result);
        }
    std::vector<ValueId> mapped = rewriter.values(operands);
    std::vector<Graph> bodies;
    bodies.push_back(std::move(body));
    const std::string kind(g.contraction ? op_info(graph_.node(g.nodes[0]).op).name : "tile");
    const NodeId fused =
        rewriter.graph().add_node(Op::fused, mapped, {{"kind", kind}}, std::move(bodies), origin);
    for (size_t i = 0; i < results.size(); ++i)
      rewriter.map(results[i], rewriter.graph().node(fused).results[i]);
  }

  // Whether the node numbers the elements of the group's rows, which a region can do by itself.
  bool counts_along(const Node& node, const Group& g) const {
    if (node.op != Op::iota || g.contraction || g.axes != Ints{node.attrs.get_int("axis")}) return false;
    const TensorType& type = graph_.type(node.results[0]);
    const auto axis = static_cast<size_t>(g.axes[0]);
    if (type.dtype != DType::i64 && type.dtype != DType::i32) return false;
    for (size_t i = 0; i < type.shape.size(); ++i)
      if (!(type.shape[i] == (i == axis ? g.full[axis] : Dim(1)))) return false;
    return type.shape.size() == g.full.size();
  }

  // The body's value for an outer one: a member's result, an immediate, or a new input.
  ValueId body_value(ValueId id, const Group& g, Graph& body, std::map<ValueId, ValueId>& inner,
                     std::vector<ValueId>& operands, bool immediates) const {
    if (id == kNoValue) return kNoValue;
    if (auto at = inner.find(id); at != inner.end()) return at->second;
    const Value& value = graph_.value(id);
    if (immediates && is_immediate(id)) return inner[id] = body.add_constant(value.constant);
    if (value.role == Role::kTemp && is_absorbed(value.producer)) {
      const Node& cast = graph_.node(value.producer);
      const ValueId source = body_value(cast.operands[0], g, body, inner, operands, true);
      return inner[id] = body.add(cast.op, {source}, cast.attrs);
    }
    if (value.role == Role::kTemp && counts_along(graph_.node(value.producer), g))
      return inner[id] = body.add(Op::iota, {}, graph_.node(value.producer).attrs);
    inner[id] = body.add_input("x" + std::to_string(operands.size()), value.type);
    operands.push_back(id);
    return inner[id];
  }

  const Graph& graph_;
  const PassContext& context_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::set<NodeId> plain_;  // contractions that are left without an epilogue
  std::vector<int> stamp_;
  std::vector<NodeId>
      first_across_;  // by node: the first node of the groups with nodes before it and from it on
  int visit_ = 0;
  mutable std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

Graph fuse_regions(const Graph& graph, const PassContext& context) { return Fuser(graph, context).run(); }

}  // namespace aicf
