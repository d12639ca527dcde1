#include "ir/linear_cross_entropy.h"

#include <optional>

#include "ir/decompose/cross_entropy.h"

namespace aicf {
namespace {

// x [..., K] times w [K, C], or [C, K] if transposed.
struct Product {
  ValueId x, w;
  bool transposed;
};

std::optional<Product> product_of(const Graph& graph, const Node& node) {
  Product found{kNoValue, kNoValue, false};
  if (node.op == Op::matmul && !node.attrs.get_bool("transpose_x"))
    found = {node.operands[0], node.operands[1], node.attrs.get_bool("transpose_y")};
  else if (node.op == Op::linear && node.operands[2] == kNoValue)
    found = {node.operands[0], node.operands[1], node.attrs.get_bool("transpose_w")};
  else
    return std::nullopt;
  if (graph.shape(found.x).size() < 2 || graph.shape(found.w).size() != 2) return std::nullopt;
  // Of a transposed weight as it is stored, so that its gradient needs no transposing either.
  if (const Node* turned = graph.producer(found.w); turned != nullptr && turned->op == Op::transpose)
    found = {found.x, turned->operands[0], !found.transposed};
  return found;
}

// The product that makes the logits, through casts and reshapes that keep their classes.
std::optional<Product> logits_product(const Graph& graph, const std::vector<int>& uses, ValueId logits) {
  const Dim classes = graph.shape(logits).back();
  for (ValueId id = logits; uses[static_cast<size_t>(id)] == 1;) {
    const Node* node = graph.producer(id);
    if (node == nullptr || graph.shape(id).empty() || !(graph.shape(id).back() == classes)) break;
    if (const auto product = product_of(graph, *node)) return product;
    const bool widens = node->op == Op::cast && is_float(graph.dtype(node->operands[0])) &&
                        dtype_bytes(graph.dtype(id)) >= dtype_bytes(graph.dtype(node->operands[0]));
    if (!widens && node->op != Op::reshape) break;
    id = node->operands[0];
  }
  return std::nullopt;
}

ValueId fuse(GraphRewriter& rewriter, const Graph& graph, const Node& node, const Product& product) {
  Graph& to = rewriter.graph();
  const Dim width = graph.shape(product.x).back();
  const Shape shape = {graph.shape(node.operands[0])[0], width};
  ValueId x = rewriter.value(product.x);
  if (!(to.shape(x) == shape)) x = to.add(Op::reshape, {x}, {{"shape", shape}}, node.origin);
  return to.add(Op::linear_cross_entropy, {x, rewriter.value(product.w), rewriter.value(node.operands[1])},
                {{"dtype", graph.dtype(node.results[0])},
                 {"transpose_w", product.transposed},
                 {"ignore_index", node.attrs.get_int("ignore_index")}},
                node.origin);
}

}  // namespace

Graph fuse_linear_cross_entropy(const Graph& graph) {
  const std::vector<int> uses = graph.use_counts();
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    std::optional<Product> product;
    if (node.op == Op::cross_entropy) product = logits_product(graph, uses, node.operands[0]);
    if (product) {
      const Shape& logits = graph.shape(node.operands[0]);
      if (cross_entropy_chunk(logits[0], logits[1], graph.dtype(product->x)) == logits[0]) product.reset();
    }
    if (product)
      rewriter.map(node.results[0], fuse(rewriter, graph, node, *product));
    else
      rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace aicf
