#include "autodiff/join_parts.h"

#include <optional>
#include <utility>

namespace aicf {
namespace {

// `value` with zeros before and after it along one axis.
struct SlicePart {
  ValueId value;
  size_t axis;
  Dim low, size, high;
};

std::optional<SlicePart> part_of(const Graph& graph, ValueId id) {
  const Node* pad = graph.producer(id);
  if (pad == nullptr || pad->op != Op::pad || pad->operands[1] != kNoValue ||
      pad->attrs.get_str("mode") != "constant")
    return std::nullopt;
  const Shape &low = pad->attrs.get_dims("low"), &high = pad->attrs.get_dims("high");
  std::optional<size_t> axis;
  for (size_t i = 0; i < low.size(); ++i) {
    if (low[i] == Dim(0) && high[i] == Dim(0)) continue;
    if (axis) return std::nullopt;
    axis = i;
  }
  if (!axis) return std::nullopt;
  const ValueId value = pad->operands[0];
  return SlicePart{value, *axis, low[*axis], graph.shape(value)[*axis], high[*axis]};
}

// What a concat along the axis joins, or the value alone.
std::vector<ValueId> members(const Graph& graph, const SlicePart& part) {
  const Node* concat = graph.producer(part.value);
  const bool joined = concat != nullptr && concat->op == Op::concat &&
                      concat->attrs.get_int("axis") == static_cast<int64_t>(part.axis);
  return joined ? concat->operands : std::vector<ValueId>{part.value};
}

}  // namespace

ValueId join_parts(Graph& graph, ValueId a, ValueId b, const std::string& origin) {
  auto first = part_of(graph, a), second = part_of(graph, b);
  if (!first || !second || first->axis != second->axis) return kNoValue;
  if (second->low + second->size == first->low) std::swap(first, second);
  if (!(first->low + first->size == second->low)) return kNoValue;
  std::vector<ValueId> values = members(graph, *first);
  for (ValueId value : members(graph, *second)) values.push_back(value);
  const ValueId joined = graph.add(Op::concat, values, {{"axis", static_cast<int64_t>(first->axis)}}, origin);
  if (first->low == Dim(0) && second->high == Dim(0)) return joined;
  Shape low(graph.shape(joined).size(), Dim(0)), high = low;
  low[first->axis] = first->low;
  high[first->axis] = second->high;
  return graph.add(Op::pad, {joined, kNoValue}, {{"low", low}, {"high", high}}, origin);
}

}  // namespace aicf
