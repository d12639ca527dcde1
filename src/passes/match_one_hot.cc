#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "ir/decompose/emitter.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

// Whether all elements are one: a scalar repeated, or a constant of equal elements.
bool is_filled(const Graph& graph, ValueId id) {
  constexpr int64_t kMostCompared = 1 << 12;  // what fold_constants repeats
  if (const Node* repeat = producer_with_op(graph, id, Op::broadcast_to)) id = repeat->operands[0];
  const Value& value = graph.value(id);
  if (value.role != Role::kConstant || value.constant.count() > kMostCompared) return false;
  const auto* bytes = static_cast<const char*>(static_cast<const void*>(value.constant.data()));
  const auto size = static_cast<size_t>(value.constant.bytes()),
             unit = static_cast<size_t>(dtype_bytes(value.type.dtype));
  return size <= unit || std::equal(bytes, bytes + size - unit, bytes + unit);
}

size_t axis_of(const Node& node) { return static_cast<size_t>(node.attrs.get_int("axis")); }

// Whether another node reads at the same indices within the same bounds, and so reports a bad one.
bool are_checked(const Graph& graph, const Node& node) {
  const Dim& bound = graph.shape(node.operands[0])[axis_of(node)];
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& other) {
    return other.op == Op::gather_elements && other.operands[1] == node.operands[1] &&
           graph.shape(other.operands[0])[axis_of(other)] == bound;
  });
}

bool picks_one(const Graph& graph, const Node& node) {
  if (node.op != Op::scatter_elements || !is_filled(graph, node.operands[0])) return false;
  const std::string& reduction = node.attrs.get_str("reduction");
  if (reduction != "none" && (reduction != "add" || graph.dtype(node.operands[0]) == DType::boolean))
    return false;
  const size_t axis = axis_of(node);
  Shape one = graph.shape(node.operands[0]);
  const auto classes = one[axis].constant();
  if (!classes || *classes > std::numeric_limits<int32_t>::max()) return false;
  one[axis] = Dim(1);
  return graph.shape(node.operands[1]) == one && are_checked(graph, node);
}

// Indices may count from the end. Where they are checked, i32 holds them.
ValueId chosen(Emitter& e, const Node& node, const Values& operands, size_t axis) {
  const ValueId x = operands[0], update = operands[2];
  const Shape full = e.shape(x);
  Shape line(full.size(), Dim(1));
  line[axis] = full[axis];
  const ValueId index = e.cast(operands[1], DType::i32), size = e.size(full[axis], DType::i32);
  const ValueId wrapped =
      e.select(e.op(Op::lt, {index, e.scalar_int(DType::i32, 0)}), e.add(index, size), index);
  const ValueId number =
      e.op(Op::iota, {}, {{"shape", line}, {"axis", static_cast<int64_t>(axis)}, {"dtype", DType::i32}});
  const bool adds = node.attrs.get_str("reduction") == "add";
  return e.select(e.op(Op::eq, {number, wrapped}), adds ? e.add(x, update) : update, x);
}

}  // namespace

// scatter_elements(filled, i, update) with one update for each line along the axis =
// select(iota == i, update or their sum, filled), which fuses. Only where a gather has the same indices:
// a choice reports no bad one.
Graph match_one_hot(const Graph& graph, const PassContext&) {
  const Graph alive = eliminate_dead_code(graph);
  GraphRewriter rewriter(alive);
  for (const Node& node : alive.nodes()) {
    if (!picks_one(alive, node)) {
      rewriter.copy(node);
      continue;
    }
    Emitter emitter(rewriter.graph(), node.origin);
    rewriter.map(node.results[0], chosen(emitter, node, rewriter.values(node.operands), axis_of(node)));
  }
  return rewriter.finish();
}

}  // namespace aicf
