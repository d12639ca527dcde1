// Products of a matrix with one row or one column, as sums over the rows or columns of that matrix. Every
// element of it is read for one multiplication, so that reading it is all there is to do: a region does that
// in order, while a tile of a product would hold one row that counts. Of halves that are a matrix times a
// column: products of one row have kernels of few rows.
#include "ir/decompose/emitter.h"
#include "passes/pass.h"

namespace aicf {
namespace {

bool has_one(const Graph& graph, ValueId id, size_t from_last) {
  const Shape& shape = graph.shape(id);
  return shape[shape.size() - from_last] == Dim(1);
}

// Whether the sums are over rows or columns of one operand.
bool is_vector_product(const Graph& graph, const Node& node) {
  if (node.op != Op::matmul || !is_float(graph.dtype(node.results[0]))) return false;
  const bool one_column = has_one(graph, node.results[0], 1), one_row = has_one(graph, node.results[0], 2);
  return is_half(graph.dtype(node.results[0])) ? one_column && !one_row : one_column || one_row;
}

// The row or column as one that lies along the last axis of the matrix, or across it.
ValueId laid(Emitter& e, ValueId vector, bool along) {
  Shape shape = e.shape(vector);
  const Dim length = shape.back() * shape[shape.size() - 2];
  shape.back() = along ? length : Dim(1);
  shape[shape.size() - 2] = along ? Dim(1) : length;
  return e.reshape(vector, shape);
}

}  // namespace

Graph reduce_vector_products(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!is_vector_product(graph, node)) {
      rewriter.copy(node);
      continue;
    }
    Emitter e(rewriter.graph(), node.origin);
    Values operands = rewriter.values(node.operands);
    for (ValueId& operand : operands) operand = e.widen(operand);
    if (node.attrs.get_bool("tf32"))
      for (ValueId& operand : operands) operand = e.op(Op::round_tf32, {operand});
    // x's one row is multiplied with y, or y's one column with x, whose rows are those of the result.
    const bool one_row = has_one(graph, node.results[0], 2);
    const ValueId matrix = operands[one_row ? 1 : 0], vector = operands[one_row ? 0 : 1];
    const bool along = node.attrs.get_bool(one_row ? "transpose_y" : "transpose_x") == one_row;
    const ValueId terms = e.mul(matrix, laid(e, vector, along));
    const ValueId sum = e.reduce(Op::reduce_sum, terms, {e.rank(terms) - (along ? 1 : 2)}, true);
    const ValueId result = e.cast(sum, graph.dtype(node.results[0]));
    rewriter.map(node.results[0], e.reshape(result, graph.shape(node.results[0])));
  }
  return rewriter.finish();
}

}  // namespace aicf
