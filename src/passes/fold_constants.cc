#include <algorithm>
#include <cmath>

#include "ir/reference/evaluator.h"
#include "ir/rounding.h"
#include "passes/pass.h"

namespace aicf {
namespace {

constexpr int64_t kMaxFoldedElements = 1 << 20;  // larger results cost more in the file than when running
// What can be had from nothing: counting is a kernel of its own, repeating an element a view that costs
// nothing.
constexpr int64_t kMaxFoldedCount = 1 << 12;

// Whether kernels give the bits of the evaluator: what moves, compares or counts does, and one operation that
// IEEE 754 rounds. The others are off by some units in the last place, each in its own way.
bool has_one_rounding(const Graph& graph, const Node& node) {
  const auto is_float_result = [&](ValueId id) { return is_float(graph.dtype(id)); };
  if (std::none_of(node.results.begin(), node.results.end(), is_float_result)) return true;
  if (rounds_nothing(node.op)) return true;
  switch (node.op) {
    case Op::sign:
    case Op::sqrt:
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
    case Op::round:
    case Op::round_tf32:
    case Op::cast:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::pad:
    case Op::concat:
    case Op::iota:
    case Op::gather:
    case Op::gather_elements:
    case Op::gather_nd:
      return true;
    default:
      return false;
  }
}

// An operand of a fixed shape may be one of symbolic shape in the model compiled for a range, where a kernel
// computes the result, and its bits must be the same here. Scalars have no shape, and patterns want to know
// them.
bool folds_alike(const Graph& graph, const Node& node) {
  return has_one_rounding(graph, node) ||
         std::all_of(node.operands.begin(), node.operands.end(),
                     [&](ValueId id) { return id != kNoValue && graph.shape(id).empty(); });
}

// `operands` are the node's operands in the graph being built.
bool foldable(const Graph& graph, const Node& node, const Graph& built,
              const std::vector<ValueId>& operands) {
  const bool generates = node.op == Op::iota || node.op == Op::broadcast_to;
  if ((operands.empty() && !generates) || !node.bodies.empty() || op_info(node.op).has(kRandom)) return false;
  if (node.op == Op::custom || !folds_alike(graph, node)) return false;  // a custom function need not be here
  for (ValueId id : operands)
    if (id != kNoValue && built.value(id).role != Role::kConstant) return false;
  for (ValueId id : node.results) {
    const Dim count = element_count(graph.shape(id));
    if (!count.is_constant() || *count.constant() > (generates ? kMaxFoldedCount : kMaxFoldedElements))
      return false;
  }
  for (const auto& [name, attr] : node.attrs.items())
    if (const Shape* dims = std::get_if<Shape>(&attr))
      for (const Dim& dim : *dims)
        if (!dim.is_constant()) return false;
  return true;
}

// The sign and the payload of a NaN are those of the machine that computes it.
bool has_computed_nan(const Node& node, const std::vector<Array>& results) {
  if (op_info(node.op).has(kView)) return false;
  for (const Array& result : results) {
    if (!is_float(result.dtype())) continue;
    for (int64_t i = 0; i < result.count(); ++i)
      if (std::isnan(result.get_f64(i))) return true;
  }
  return false;
}

}  // namespace

// Only constants fold: what depends on params is left to the init entry, so that weights can be swapped.
Graph fold_constants(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  double work = 0;
  for (const Node& node : graph.nodes()) {
    const std::vector<ValueId> ids = rewriter.values(node.operands);
    if (!foldable(graph, node, rewriter.graph(), ids) ||
        work + evaluation_work(graph, node) > kMaxFoldedWork) {
      rewriter.copy(node);
      continue;
    }
    work += evaluation_work(graph, node);
    std::vector<Array> operands;
    for (ValueId id : ids) operands.push_back(id == kNoValue ? Array() : rewriter.graph().value(id).constant);
    const std::vector<Array> results = evaluate_node(graph, node, operands, {});
    if (has_computed_nan(node, results)) {
      rewriter.copy(node);
      continue;
    }
    for (size_t i = 0; i < results.size(); ++i)
      rewriter.map(node.results[i], rewriter.graph().add_constant(results[i]));
  }
  return rewriter.finish();
}

}  // namespace aicf
