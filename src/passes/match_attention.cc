#include <optional>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

struct Scores {
  ValueId q, k;
  bool k_transposed;  // k is [B, H, D, Tk], not [B, H, Tk, D]
  ValueId mask = kNoValue;
  double scale = 1;
};

// Finds the scores of an attention. `whole`: also where others read what lies inside it, which is then
// computed beside it. Whether the parts are one attention decides which halves are rounded, and readers must
// not.
struct ScoreFinder {
  const Graph& graph;
  const std::vector<int>& uses;
  const bool whole;

  bool is_alone(ValueId id) const { return whole || used_once(uses, id); }

  // x * c, c * x or x / c by a scalar constant: removes it from `id` into `scale`.
  void strip_scale(ValueId& id, double& scale) const {
    for (;;) {
      const Node* node = graph.producer(id);
      const auto inner = node != nullptr && is_alone(id) ? scaled(graph, *node) : std::nullopt;
      if (!inner) return;
      scale *= inner->factor;
      id = inner->value;
    }
  }

  std::optional<Scores> match_product(ValueId id, double scale) const {
    strip_scale(id, scale);
    const Node* product = producer_with_op(graph, id, Op::matmul);
    if (product == nullptr || !is_alone(id) || product->attrs.get_bool("transpose_x")) return std::nullopt;
    return Scores{product->operands[0], product->operands[1], !product->attrs.get_bool("transpose_y"),
                  kNoValue, scale};
  }

  // scale * (q @ k) [+ mask].
  std::optional<Scores> match_scores(ValueId id) const {
    const Node* sum = producer_with_op(graph, id, Op::add);
    if (sum == nullptr) return match_product(id, 1);
    if (!is_alone(id)) return std::nullopt;
    for (size_t i = 0; i < 2; ++i)
      if (auto scores = match_product(sum->operands[i], 1)) {
        scores->mask = sum->operands[1 - i];
        return scores;
      }
    return std::nullopt;
  }
};

bool is_plain_matrix_batch(const Graph& graph, ValueId id) { return graph.type(id).rank() == 4; }

}  // namespace

// matmul(softmax(scale * matmul(q, k) + mask), v) = attention(q, transpose(k), v, mask). The one difference:
// a row whose keys are all masked with -inf gives 0 instead of NaN, as attention is defined. Serves every
// exported transformer (MiniLM: three kernels become one in each of its layers, and no scores are stored).
Graph match_attention(const Graph& graph, const PassContext& context) {
  const std::vector<int> uses = graph.use_counts();
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const auto scores = [&]() -> std::optional<Scores> {
      if (node.op != Op::matmul || node.attrs.get_bool("transpose_x") || node.attrs.get_bool("transpose_y"))
        return std::nullopt;
      const bool whole = is_half(graph.dtype(node.results[0])) || contraction_dtype(context.precision);
      const ScoreFinder finder{graph, uses, whole};
      const Node* softmax = producer_with_op(graph, node.operands[0], Op::softmax);
      if (softmax == nullptr || !finder.is_alone(node.operands[0]) || softmax->attrs.get_int("axis") != 3)
        return std::nullopt;
      auto found = finder.match_scores(softmax->operands[0]);
      if (!found || !is_plain_matrix_batch(graph, found->q) || !is_plain_matrix_batch(graph, found->k))
        return std::nullopt;
      if (!is_plain_matrix_batch(graph, node.operands[1])) return std::nullopt;
      // attention wants equal batch sizes of q, k and v, and equal heads of k and v.
      const Shape &q = graph.shape(found->q), &k = graph.shape(found->k), &v = graph.shape(node.operands[1]);
      if (!(q[0] == k[0] && q[0] == v[0] && q[1] == k[1] && k[1] == v[1])) return std::nullopt;
      if (found->mask != kNoValue && graph.type(found->mask).rank() > 4) return std::nullopt;
      return found;
    }();
    if (!scores) {
      rewriter.copy(node);
      continue;
    }
    Graph& built = rewriter.graph();
    ValueId k = rewriter.value(scores->k);
    if (scores->k_transposed) k = built.add(Op::transpose, {k}, {{"perm", Ints{0, 1, 3, 2}}}, node.origin);
    const ValueId mask = scores->mask == kNoValue ? kNoValue : rewriter.value(scores->mask);
    rewriter.map(
        node.results[0],
        built.add(Op::attention, {rewriter.value(scores->q), k, rewriter.value(node.operands[1]), mask},
                  {{"scale", scores->scale}}, node.origin));
  }
  return rewriter.finish();
}

}  // namespace aicf
