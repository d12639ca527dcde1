#include "passes/emit_regions.h"

#include <algorithm>
#include <map>

#include "passes/region_body.h"

namespace aicf {
namespace {

class RegionEmitter {
 public:
  explicit RegionEmitter(const RegionGroups& groups)
      : groups_(groups),
        graph_(groups.graph()),
        rewriter_(graph_),
        count_(static_cast<NodeId>(graph_.nodes().size())),
        done_(graph_.nodes().size(), 0) {}

  Graph run() {
    for (NodeId id = 0; id < count_; ++id)
      if (groups_.is_absorbed(id)) done_[static_cast<size_t>(id)] = 1;
    for (NodeId id = 0; id < count_; ++id) emit_unit(id);
    return rewriter_.finish();
  }

 private:
  // The node with its group, after what they read.
  void emit_unit(NodeId id) {
    if (done_[static_cast<size_t>(id)]) return;
    const int g = groups_.of(id);
    const std::vector<NodeId> members = g >= 0 ? groups_[g].nodes : std::vector<NodeId>{id};
    for (NodeId member : members) done_[static_cast<size_t>(member)] = 1;
    for (NodeId member : members)
      for (ValueId operand : graph_.node(member).operands) {
        const NodeId producer = emitted_producer(operand);
        if (producer >= 0 && std::find(members.begin(), members.end(), producer) == members.end())
          emit_unit(producer);
      }
    if (members.size() == 1)
      rewriter_.copy(graph_.node(id));
    else
      emit_region(groups_[g]);
  }

  // The node that gives the value, or what the value's absorbed cast reads; -1: none does.
  NodeId emitted_producer(ValueId id) const {
    if (id == kNoValue) return -1;
    const NodeId producer = graph_.value(id).producer;
    if (producer < 0 || !groups_.is_absorbed(producer)) return producer;
    return graph_.value(graph_.node(producer).operands[0]).producer;
  }

  // A region's body under construction.
  struct RegionBody {
    const Group& group;
    Graph graph{"body"};
    std::map<ValueId, ValueId> inner{};  // by value of the whole graph
    std::vector<ValueId> operands{};
  };

  void emit_region(const Group& group) {
    RegionBody body{group};
    std::string origin;
    for (NodeId id : group.nodes) {
      const Node& node = graph_.node(id);
      std::vector<ValueId> operands;
      // A contraction reads its operands from memory, never as immediates.
      const bool immediates = !group.contraction || id != group.nodes[0];
      for (ValueId operand : node.operands) operands.push_back(body_value(body, operand, immediates));
      const NodeId copy = body.graph.add_node(node.op, operands, node.attrs, {}, node.origin);
      for (size_t i = 0; i < node.results.size(); ++i)
        body.inner[node.results[i]] = body.graph.node(copy).results[i];
      if (!node.origin.empty()) origin = node.origin;
    }
    std::vector<ValueId> results;
    for (NodeId id : group.nodes)
      for (ValueId result : graph_.node(id).results)
        if (groups_.used_outside(group, result)) {
          add_body_output(body.graph, body.inner.at(result));
          results.push_back(result);
        }
    const std::string kind(group.contraction ? op_info(graph_.node(group.nodes[0]).op).name : kTileRegion);
    const std::vector<ValueId> outputs =
        add_region(rewriter_.graph(), std::move(body.graph), rewriter_.values(body.operands), kind, origin);
    for (size_t i = 0; i < results.size(); ++i) rewriter_.map(results[i], outputs[i]);
  }

  // The body's value for an outer one: a member's result, an immediate, or a new input.
  ValueId body_value(RegionBody& body, ValueId id, bool immediates) const {
    if (id == kNoValue) return kNoValue;
    if (auto at = body.inner.find(id); at != body.inner.end()) return at->second;
    const Value& value = graph_.value(id);
    if (immediates && is_immediate(value)) return body.inner[id] = body.graph.add_constant(value.constant);
    if (value.role == Role::kTemp && groups_.is_absorbed(value.producer)) {
      const Node& cast = graph_.node(value.producer);
      const ValueId source = body_value(body, cast.operands[0], true);
      return body.inner[id] = body.graph.add(cast.op, {source}, cast.attrs);
    }
    if (value.role == Role::kTemp && counts_along(graph_.node(value.producer), body.group))
      return body.inner[id] = body.graph.add(Op::iota, {}, graph_.node(value.producer).attrs);
    body.operands.push_back(id);
    return body.inner[id] = add_body_input(body.graph, value.type);
  }

  // Whether the node numbers the elements of the group's rows, which a region can do by itself.
  bool counts_along(const Node& node, const Group& group) const {
    if (node.op != Op::iota || group.contraction || group.axes != Ints{node.attrs.get_int("axis")})
      return false;
    const TensorType& type = graph_.type(node.results[0]);
    const auto axis = static_cast<size_t>(group.axes[0]);
    if (type.dtype != DType::i64 && type.dtype != DType::i32) return false;
    for (size_t i = 0; i < type.shape.size(); ++i)
      if (!(type.shape[i] == (i == axis ? group.full[axis] : Dim(1)))) return false;
    return type.shape.size() == group.full.size();
  }

  const RegionGroups& groups_;
  const Graph& graph_;
  GraphRewriter rewriter_;
  NodeId count_;
  std::vector<char> done_;  // by node
};

}  // namespace

Graph emit_regions(const RegionGroups& groups) { return RegionEmitter(groups).run(); }

}  // namespace aicf
