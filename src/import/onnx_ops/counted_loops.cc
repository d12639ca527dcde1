#include "import/onnx_ops/counted_loops.h"

#include <cmath>

namespace aicf::onnx {
namespace {

std::optional<Line> line_of_constant(const Array& array) {
  if (array.count() != 1) return std::nullopt;
  if (!is_float(array.dtype())) return Line{0, Dim(array.get_i64(0))};
  const double value = array.get_f64(0);
  if (value != std::floor(value) || std::abs(value) > 1 << 24) return std::nullopt;
  return Line{0, Dim(static_cast<int64_t>(value))};
}

std::optional<Line> line_of(const Graph& graph, ValueId id, const Lines& known) {
  if (const auto found = known.find(id); found != known.end()) return found->second;
  if (graph.value(id).role == Role::kConstant) return line_of_constant(graph.value(id).constant);
  const Node* node = graph.producer(id);
  if (node == nullptr || element_count(graph.shape(id)) != Dim(1)) return std::nullopt;
  switch (node->op) {
    case Op::size_of:
      return Line{0, node->attrs.get_dims("size")[0]};
    case Op::cast:  // the numbers of steps are far below where floats leave out integers
    case Op::reshape:
    case Op::broadcast_to:
      return line_of(graph, node->operands[0], known);
    case Op::add:
    case Op::sub: {
      const auto x = line_of(graph, node->operands[0], known), y = line_of(graph, node->operands[1], known);
      if (!x || !y) return std::nullopt;
      return node->op == Op::add ? Line{x->slope + y->slope, x->base + y->base}
                                 : Line{x->slope - y->slope, x->base - y->base};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<int64_t> growth(const Graph& body, ValueId input, ValueId next) {
  if (next == input) return 0;
  const auto line = line_of(body, next, {{input, Line{1, Dim(0)}}});
  if (!line || line->slope != 1) return std::nullopt;
  return line->base.constant();
}

bool holds_until(const Graph& graph, ValueId condition, const Lines& known, const Dim& last,
                 const std::function<Interval(const Dim&)>& bounds) {
  if (graph.value(condition).role == Role::kConstant) {
    const Array& array = graph.value(condition).constant;
    return array.count() == 1 && array.get_i64(0) != 0;
  }
  const Node* node = graph.producer(condition);
  if (node == nullptr || element_count(graph.shape(condition)) != Dim(1)) return false;
  const std::vector<ValueId>& in = node->operands;
  // y - x is a line: what is least is at one of its ends.
  const auto above = [&](ValueId x, ValueId y, int64_t least) {
    const auto from = line_of(graph, x, known), to = line_of(graph, y, known);
    if (!from || !to) return false;
    const int64_t slope = to->slope - from->slope;
    const Dim start = to->base - from->base;
    return bounds(slope >= 0 ? start : start + last * Dim(slope)).lo >= least;
  };
  switch (node->op) {
    case Op::bit_and:
      return holds_until(graph, in[0], known, last, bounds) && holds_until(graph, in[1], known, last, bounds);
    case Op::reshape:
    case Op::broadcast_to:
      return holds_until(graph, in[0], known, last, bounds);
    case Op::lt:
      return above(in[0], in[1], 1);
    case Op::le:
      return above(in[0], in[1], 0);
    case Op::gt:
      return above(in[1], in[0], 1);
    case Op::ge:
      return above(in[1], in[0], 0);
    default:
      return false;
  }
}

}  // namespace aicf::onnx
