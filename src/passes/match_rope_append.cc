#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

// Of few steps the count has been folded.
bool is_folded_count(const Value& value) {
  if (value.role != Role::kConstant || value.type.dtype != DType::i64 || value.type.rank() != 4) return false;
  const std::vector<int64_t>& sizes = value.constant.sizes();
  const int64_t inner = sizes[3], rows = sizes[2];
  const auto* steps = static_cast<const int64_t*>(value.constant.data());
  for (int64_t i = 0; i < value.constant.count(); ++i)
    if (steps[i] != i / inner % rows) return false;
  return true;
}

bool is_step_count(const Graph& graph, ValueId id) {
  if (is_folded_count(graph.value(id))) return true;
  const Node* node = producer_with_op(graph, id, Op::iota);
  return node != nullptr && graph.type(id).rank() == 4 && node->attrs.get_int("axis") == 2;
}

// The one element that a value repeats, seen through reshapes and broadcasts.
ValueId repeated_scalar(const Graph& graph, ValueId id) {
  while (!(element_count(graph.shape(id)) == Dim(1))) {
    const Node* node = graph.producer(id);
    if (node == nullptr || (node->op != Op::broadcast_to && node->op != Op::reshape)) return kNoValue;
    id = node->operands[0];
  }
  return id;
}

// The position p of an index p + t at step t, axis 2 of rank 4.
ValueId first_row(const Graph& graph, ValueId index) {
  if (const Node* wide = producer_with_op(graph, index, Op::broadcast_to)) index = wide->operands[0];
  const Node* sum = producer_with_op(graph, index, Op::add);
  // Of a single step, whose number is 0, the position alone may be left.
  if (sum == nullptr) return graph.shape(index)[2] == Dim(1) ? repeated_scalar(graph, index) : kNoValue;
  for (size_t i = 0; i < 2; ++i)
    if (is_step_count(graph, sum->operands[i])) return repeated_scalar(graph, sum->operands[1 - i]);
  return graph.shape(index)[2] == Dim(1) ? repeated_scalar(graph, index) : kNoValue;
}

struct Append {
  NodeId node = -1;
  ValueId cache = kNoValue, rows = kNoValue, position = kNoValue;
};

// cache with `rows` scattered to consecutive rows of axis 2.
std::optional<Append> match_append(const Graph& graph, ValueId id) {
  const Node* scatter = producer_with_op(graph, id, Op::scatter_elements);
  if (scatter == nullptr || graph.type(id).rank() != 4 || scatter->attrs.get_int("axis") != 2 ||
      scatter->attrs.get_str("reduction") != "none")
    return std::nullopt;
  // Every head and column of the cache is written.
  const Shape &whole = graph.shape(id), &rows = graph.shape(scatter->operands[2]);
  if (!(whole[0] == rows[0] && whole[1] == rows[1] && whole[3] == rows[3])) return std::nullopt;
  const ValueId position = first_row(graph, scatter->operands[1]);
  if (position == kNoValue || graph.dtype(position) != DType::i64) return std::nullopt;
  return Append{graph.value(id).producer, scatter->operands[0], scatter->operands[2], position};
}

struct RopeStep {
  NodeId q_rope = -1, last = -1;  // `last` of the three nodes that the new one replaces
  ValueId k = kNoValue;
  Append keys, values;
};

bool same_angles(const Node& a, const Node& b) {
  return a.operands[1] == b.operands[1] && a.operands[2] == b.operands[2] && a.attrs == b.attrs;
}

std::optional<RopeStep> match_step(const Graph& graph, const Node& attention) {
  const Node* q_rope = producer_with_op(graph, attention.operands[0], Op::rope);
  const auto keys = match_append(graph, attention.operands[1]),
             values = match_append(graph, attention.operands[2]);
  if (q_rope == nullptr || !keys || !values || keys->position != values->position) return std::nullopt;
  const Node* k_rope = producer_with_op(graph, keys->rows, Op::rope);
  if (k_rope == nullptr || !same_angles(*q_rope, *k_rope) || keys->cache == values->cache)
    return std::nullopt;
  const Shape &q = graph.shape(attention.operands[0]), &k = graph.shape(keys->rows);
  if (!(q[0] == k[0] && q[2] == k[2])) return std::nullopt;
  RopeStep step{graph.value(attention.operands[0]).producer, -1, k_rope->operands[0], *keys, *values};
  step.last = std::max({step.q_rope, step.keys.node, step.values.node});
  return step;
}

// Whether a node before `step.last` reads what the step gives: the new node would come too late.
bool read_before(const Graph& graph, const RopeStep& step) {
  for (NodeId id = 0; id < step.last; ++id)
    for (ValueId operand : graph.node(id).operands)
      for (NodeId made : {step.q_rope, step.keys.node, step.values.node})
        if (operand == graph.node(made).results[0]) return true;
  return false;
}

}  // namespace

// The rotations of q and k and the writes of k and v to their caches as one rope_append: four kernels become
// one in each layer of a decoder (Llama), and the caches are written in place.
Graph match_rope_append(const Graph& graph, const PassContext&) {
  std::map<NodeId, RopeStep> steps;  // by the node where rope_append goes
  std::set<NodeId> replaced;
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::attention) continue;
    const auto step = match_step(graph, node);
    if (!step || read_before(graph, *step)) continue;
    const std::set<NodeId> made{step->q_rope, step->keys.node, step->values.node};
    if (std::any_of(made.begin(), made.end(), [&](NodeId id) { return replaced.contains(id); })) continue;
    replaced.insert(made.begin(), made.end());
    steps.emplace(step->last, *step);
  }
  GraphRewriter rewriter(graph);
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    if (!replaced.contains(id)) {
      rewriter.copy(graph.node(id));
      continue;
    }
    const auto at = steps.find(id);
    if (at == steps.end()) continue;
    const RopeStep& step = at->second;
    const Node& rope = graph.node(step.q_rope);
    const std::vector<ValueId> x =
        rewriter.values({rope.operands[0], step.k, step.values.rows, rope.operands[1], rope.operands[2],
                         step.keys.cache, step.values.cache, step.keys.position});
    Graph& built = rewriter.graph();
    std::vector<ValueId> operands = x;
    if (built.type(x[7]).rank() != 1)
      operands[7] = built.add(Op::reshape, {x[7]}, {{"shape", Shape{Dim(1)}}}, rope.origin);
    const NodeId made = built.add_node(Op::rope_append, operands, rope.attrs, {}, rope.origin);
    rewriter.map(rope.results[0], built.node(made).results[0]);
    rewriter.map(graph.node(step.keys.node).results[0], built.node(made).results[1]);
    rewriter.map(graph.node(step.values.node).results[0], built.node(made).results[2]);
  }
  return rewriter.finish();
}

}  // namespace aicf
