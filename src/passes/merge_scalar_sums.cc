#include <algorithm>
#include <utility>

#include "passes/pattern.h"
#include "passes/region_body.h"

namespace aicf {
namespace {

// Sums of more numbers than one region takes: added one after the other, as a loss adds up terms of many
// tensors, they would make a chain of regions that all wait for one another.
class ScalarSums {
 public:
  explicit ScalarSums(const Graph& graph) : graph_(graph), uses_(graph.use_counts()) {}

  Graph run() {
    std::vector<bool> is_inner(graph_.nodes().size(), false);
    std::vector<std::vector<ValueId>> terms(graph_.nodes().size());
    for (NodeId id = static_cast<NodeId>(graph_.nodes().size()); id-- > 0;) {
      if (is_inner[static_cast<size_t>(id)] || !adds_numbers(graph_.node(id))) continue;
      Sum sum = sum_of(id);
      if (sum.terms.size() < kMaxRegionOperands) continue;
      for (NodeId inner : sum.inner) is_inner[static_cast<size_t>(inner)] = true;
      terms[static_cast<size_t>(id)] = std::move(sum.terms);
    }
    GraphRewriter rewriter(graph_);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (is_inner[i]) continue;
      if (terms[i].empty())
        rewriter.copy(graph_.nodes()[i]);
      else
        emit(graph_.nodes()[i], terms[i], rewriter);
    }
    return rewriter.finish();
  }

 private:
  struct Sum {
    std::vector<ValueId> terms;  // from left to right
    std::vector<NodeId> inner;   // nodes that it takes beside the last one
  };

  // Of floats that are not rounded to halves after each of them.
  bool adds_numbers(const Node& node) const {
    if (node.op != Op::add) return false;
    const TensorType& type = graph_.type(node.results[0]);
    return (type.dtype == DType::f32 || type.dtype == DType::f64) && element_count(type.shape) == Dim(1) &&
           graph_.type(node.operands[0]) == type && graph_.type(node.operands[1]) == type;
  }

  Sum sum_of(NodeId last) const {
    Sum sum;
    std::vector<ValueId> open = {graph_.node(last).operands[1], graph_.node(last).operands[0]};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      const Node* node = graph_.producer(id);
      if (node != nullptr && used_once(uses_, id) && adds_numbers(*node)) {
        sum.inner.push_back(graph_.value(id).producer);
        open.insert(open.end(), {node->operands[1], node->operands[0]});
      } else if (scalar_constant(graph_, id) != 0.0) {
        sum.terms.push_back(id);
      }
    }
    return sum;
  }

  static void emit(const Node& node, const std::vector<ValueId>& terms, GraphRewriter& rewriter) {
    Graph& graph = rewriter.graph();
    std::vector<ValueId> parts;
    for (ValueId term : terms)
      parts.push_back(
          graph.add(Op::reshape, {rewriter.value(term)}, {{"shape", Shape{Dim(1)}}}, node.origin));
    const ValueId all = graph.add(Op::concat, std::move(parts), {{"axis", int64_t{0}}}, node.origin);
    const ValueId sum =
        graph.add(Op::reduce_sum, {all}, {{"axes", Ints{0}}, {"keepdims", true}}, node.origin);
    const Shape& shape = rewriter.old().shape(node.results[0]);
    rewriter.map(node.results[0], graph.add(Op::reshape, {sum}, {{"shape", shape}}, node.origin));
  }

  const Graph& graph_;
  std::vector<int> uses_;
};

}  // namespace

Graph merge_scalar_sums(const Graph& graph, const PassContext&) { return ScalarSums(graph).run(); }

}  // namespace aicf
