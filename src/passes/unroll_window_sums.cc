#include <algorithm>
#include <vector>

#include "ir/decompose/emitter.h"
#include "passes/pass.h"

namespace aicf {
namespace {

constexpr int64_t kMostTerms = 16;

bool is_reduced(const Node& node, size_t axis) {
  const Ints& axes = node.attrs.get_ints("axes");
  return std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
}

// Whether a few elements are added that lie apart within a row of the operand: axes of the result stand
// before and behind reduced ones. Sums of columns, whose first axis goes, are left to what takes them along.
bool sums_windows(const Graph& graph, const Node& node) {
  if (node.op != Op::reduce_sum) return false;
  const Shape& shape = graph.shape(node.operands[0]);
  int64_t terms = 1;
  bool kept = false, reduced = false, interleaved = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == Dim(1)) continue;
    if (!is_reduced(node, i)) {
      kept = true;
      interleaved = interleaved || reduced;
      continue;
    }
    if (!kept) return false;
    const auto size = shape[i].constant();
    if (!size || *size < 1 || *size > kMostTerms) return false;
    terms *= *size;
    reduced = true;
  }
  return interleaved && terms > 1 && terms <= kMostTerms;
}

// Whether the value lies in memory anyway: what a region computes is added where it is computed.
bool is_stored(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  while (node != nullptr && op_info(node->op).has(kView)) node = graph.producer(node->operands[0]);
  return node == nullptr || !op_info(node->op).has(kPointwise);
}

// The terms in row-major order.
ValueId sum_of_slices(Emitter& e, const Node& node, ValueId x) {
  const Shape shape = e.shape(x);
  Shape starts(shape.size(), Dim(0)), limits = shape;
  std::vector<size_t> axes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (is_reduced(node, i)) axes.push_back(i);
  std::vector<int64_t> at(axes.size(), 0);
  ValueId sum = kNoValue;
  for (bool more = true; more;) {
    for (size_t k = 0; k < axes.size(); ++k) starts[axes[k]] = Dim(at[k]), limits[axes[k]] = Dim(at[k] + 1);
    const ValueId term = e.widen(
        e.op(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", Ints(shape.size(), 1)}}));
    sum = sum == kNoValue ? term : e.add(sum, term);
    more = false;
    for (size_t k = axes.size(); k-- > 0 && !more;) {
      more = ++at[k] < *shape[axes[k]].constant();
      if (!more) at[k] = 0;
    }
  }
  return e.cast(sum, e.dtype(x));
}

}  // namespace

// reduce_sum over windows of a few elements = the sum of slices, one for each place in a window: pointwise,
// so that neighbouring threads read neighbouring windows.
Graph unroll_window_sums(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!sums_windows(graph, node) || !is_stored(graph, node.operands[0])) {
      rewriter.copy(node);
      continue;
    }
    Emitter emitter(rewriter.graph(), node.origin);
    const ValueId sum = sum_of_slices(emitter, node, rewriter.value(node.operands[0]));
    rewriter.map(node.results[0], emitter.reshape(sum, graph.shape(node.results[0])));
  }
  return rewriter.finish();
}

}  // namespace aicf
