#include "ir/linear_cross_entropy.h"

#include <algorithm>
#include <set>

#include "passes/pass.h"

namespace aicf {
namespace {

// Moves the op that computes the gradients to where its loss is first wanted.
class GradientMover {
 public:
  explicit GradientMover(const Graph& graph)
      : graph_(graph), rewriter_(graph), done_(graph.nodes().size(), false) {}

  Graph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (node.op == Op::linear_cross_entropy) join(node);
      copy(i);
    }
    return rewriter_.finish();
  }

 private:
  void copy(size_t index) {
    if (done_[index]) return;
    done_[index] = true;
    const Node& node = graph_.nodes()[index];
    if (!joined(node)) rewriter_.copy(node);
  }
  bool joined(const Node& node) const {
    return node.op == Op::linear_cross_entropy && rewriter_.has(node.results[0]);
  }

  // The op over the same operands that computes the gradients too, if nothing it needs depends on the loss.
  void join(const Node& node) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& both = graph_.nodes()[i];
      if (both.op != Op::linear_cross_entropy_backward || both.attrs != node.attrs || done_[i] ||
          !std::equal(node.operands.begin(), node.operands.end(), both.operands.begin()) ||
          depends(node, both.operands[3], node.results[0]))
        continue;
      bring(both.operands[3]);
      copy(i);
      rewriter_.map(node.results[0], rewriter_.value(both.results[0]));
      return;
    }
  }

  // Whether `id` is computed from `from`, a result of the node.
  bool depends(const Node& node, ValueId id, ValueId from) const {
    std::set<ValueId> reached = {from};
    const auto first = static_cast<size_t>(&node - graph_.nodes().data());
    for (size_t i = first + 1; i < graph_.nodes().size(); ++i) {
      const Node& later = graph_.nodes()[i];
      if (std::any_of(later.operands.begin(), later.operands.end(),
                      [&](ValueId operand) { return reached.contains(operand); }))
        reached.insert(later.results.begin(), later.results.end());
    }
    return reached.contains(id);
  }
  // Copies what the value needs and is not there yet.
  void bring(ValueId id) {
    if (id == kNoValue || rewriter_.has(id)) return;
    const Node* node = graph_.producer(id);
    for (ValueId operand : node->operands) bring(operand);
    copy(static_cast<size_t>(node - graph_.nodes().data()));
  }

  const Graph& graph_;
  GraphRewriter rewriter_;
  std::vector<bool> done_;
};

}  // namespace

// A training step asks for the loss first and for the gradients later; together the logits of a chunk serve
// both and are gone before the next chunk.
Graph fuse_linear_cross_entropy(const Graph& graph, const PassContext&) {
  return GradientMover(fuse_linear_cross_entropy(graph)).run();
}

}  // namespace aicf
