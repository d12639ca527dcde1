// Questions that pattern passes ask of a graph.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace aicf {

// The value of a constant of one element.
inline std::optional<double> scalar_constant(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  if (value.role != Role::kConstant || value.constant.count() != 1) return std::nullopt;
  return value.constant.get_f64(0);
}

// The node that makes the value if it is of this op, else null.
inline const Node* producer_with_op(const Graph& graph, ValueId id, Op op) {
  const Node* node = graph.producer(id);
  return node != nullptr && node->op == op ? node : nullptr;
}

// `uses` are the graph's use_counts().
inline bool used_once(const std::vector<int>& uses, ValueId id) { return uses[static_cast<size_t>(id)] == 1; }

// If the node multiplies or divides by a scalar constant: the other operand, and the factor.
struct Scaled {
  ValueId value;
  double factor;
};
inline std::optional<Scaled> scaled(const Graph& graph, const Node& node) {
  if (node.op != Op::mul && node.op != Op::div) return std::nullopt;
  if (const auto right = scalar_constant(graph, node.operands[1]))
    return Scaled{node.operands[0], node.op == Op::mul ? *right : 1 / *right};
  if (const auto left = scalar_constant(graph, node.operands[0]); left && node.op == Op::mul)
    return Scaled{node.operands[1], *left};
  return std::nullopt;
}

}  // namespace aicf
