#include "select/storage_order.h"

#include <algorithm>

#include "ir/region.h"
#include "target/tile_mapping.h"

namespace aicf {
namespace {

constexpr int64_t kUnitBytes = 16;
constexpr int64_t kMostPadding = 4;  // one part in so many of a row: more would be much of the memory

class PaddedRows {
 public:
  explicit PaddedRows(const Graph& graph)
      : graph_(graph),
        barred_(static_cast<size_t>(graph.value_count())),
        multiplied_(barred_.size()),
        shapes_(barred_.size()) {}

  std::vector<Shape> run() {
    for (ValueId id : graph_.outputs()) bar(id);
    for (const Update& update : graph_.updates()) bar(update.value);
    // Backwards: what a view is read by counts as readers of what it views.
    for (auto node = graph_.nodes().rbegin(); node != graph_.nodes().rend(); ++node) note_reader(*node);
    for (const Node& node : graph_.nodes())
      if (writes_rows(node))
        for (ValueId id : node.results) pad(id);
    return std::move(shapes_);
  }

 private:
  void bar(ValueId id) { barred_[static_cast<size_t>(id)] = 1; }

  bool is_region(const Node& node) const { return is_tile_region(node) || tile_claims(graph_, node); }
  // Of a concat the kernels that make its parts, and copies.
  bool writes_rows(const Node& node) const {
    return begins_with(node, Op::matmul) || is_region(node) || node.op == Op::concat;
  }

  // The axis along which rows lie.
  size_t row_axis(ValueId id) const {
    const Shape& shape = graph_.shape(id);
    size_t axis = shape.size() - 1;
    while (axis > 0 && shape[axis] == Dim(1)) --axis;
    return axis;
  }
  const Dim& row_length(ValueId id) const { return graph_.shape(id)[row_axis(id)]; }

  // Whether strides can say what the view shows of padded rows.
  bool keeps_rows(const Node& view) const {
    if (view.op != Op::reshape) return true;
    const Shape &from = graph_.shape(view.operands[0]), &to = graph_.shape(view.results[0]);
    return !from.empty() && !to.empty() && row_length(view.operands[0]) == row_length(view.results[0]);
  }

  void note_reader(const Node& node) {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      if (id == kNoValue) continue;
      const auto at = static_cast<size_t>(id);
      if (op_info(node.op).has(kView)) {
        const auto seen = static_cast<size_t>(node.results[0]);
        if (!keeps_rows(node) || barred_[seen] != 0) barred_[at] = 1;
        if (multiplied_[seen] != 0) multiplied_[at] = 1;
      } else if (begins_with(node, Op::matmul)) {
        if (is_factor(node, i)) multiplied_[at] = 1;
      } else if (!is_region(node) && node.op != Op::concat) {
        barred_[at] = 1;
      }
    }
  }
  // Whether operand i is one that the product multiplies.
  static bool is_factor(const Node& node, size_t i) {
    if (node.op == Op::matmul) return true;
    const Graph& body = node.bodies[0];
    const std::vector<ValueId>& factors = body.nodes()[0].operands;
    return std::find(factors.begin(), factors.end(), body.inputs()[i]) != factors.end();
  }

  void pad(ValueId id) {
    const auto at = static_cast<size_t>(id);
    const TensorType& type = graph_.type(id);
    if (multiplied_[at] == 0 || barred_[at] != 0 || !is_half(type.dtype) || type.shape.size() < 2) return;
    const size_t axis = row_axis(id);
    const int64_t unit = kUnitBytes / dtype_bytes(type.dtype);
    const int64_t length = type.shape[axis].constant().value_or(0);
    const int64_t stored = (length + unit - 1) / unit * unit;
    if (axis == 0 || stored == length || (stored - length) * kMostPadding > length) return;
    shapes_[at] = type.shape;
    shapes_[at][axis] = Dim(stored);
  }

  const Graph& graph_;
  std::vector<char> barred_, multiplied_;  // by value
  std::vector<Shape> shapes_;
};

}  // namespace

std::vector<Shape> padded_shapes(const Graph& graph, const Target& target) {
  if (!target.is_cuda()) return std::vector<Shape>(static_cast<size_t>(graph.value_count()));
  return PaddedRows(graph).run();
}

}  // namespace aicf
