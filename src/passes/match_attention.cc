#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

// Axes before the last two.
Shape leading(const Graph& graph, ValueId id) {
  const Shape& shape = graph.shape(id);
  return Shape(shape.begin(), shape.end() - 2);
}

// What stands between a product and its softmax beside the scale. `lead`: the leading axes of the scores
// there.
struct Mask {
  enum Kind { kAdded, kKept, kHidden } kind;  // the last two are bool
  ValueId value;
  Shape lead;
};

struct Scores {
  ValueId q, k;
  bool k_transposed;  // k is [..., D, Tk], not [..., Tk, D]
  bool tf32;
  double scale = 1;
  ValueId factor = kNoValue;  // of each head: multiplies q
  std::vector<Mask> masks;
};

// Finds an attention from its last product upwards. `whole`: also where others read what lies inside it,
// which is then computed beside it. Whether the parts are one attention decides which halves are rounded, and
// readers must not.
struct Finder {
  const Graph& graph;
  const std::vector<int>& uses;
  const bool whole;
  std::optional<Shape> heads = std::nullopt;  // two leading axes, where some value inside has them
  int left = 64;                              // nodes to look at: sums of sums have many ways through

  const Node* inside(ValueId id) const { return whole || used_once(uses, id) ? graph.producer(id) : nullptr; }

  // A reshape of leading axes alone, or a cast between floats.
  bool passes(const Node& node) {
    if (node.op == Op::cast)
      return is_float(graph.dtype(node.operands[0])) && is_float(graph.dtype(node.results[0]));
    if (node.op != Op::reshape) return false;
    const Shape &from = graph.shape(node.operands[0]), &to = graph.shape(node.results[0]);
    if (from.size() < 3 || to.size() < 3 || !std::equal(from.end() - 2, from.end(), to.end() - 2))
      return false;
    see(node.operands[0]);
    see(node.results[0]);
    return true;
  }
  void see(ValueId id) {
    if (!heads && graph.type(id).rank() == 4) heads = leading(graph, id);
  }

  // Behind what `passes`.
  const Node* softmax_of(ValueId weights) {
    const Node* node = inside(weights);
    while (node != nullptr && passes(*node)) node = inside(node->operands[0]);
    if (node == nullptr || node->op != Op::softmax) return nullptr;
    const int64_t rank = graph.type(node->operands[0]).rank(), axis = node->attrs.get_int("axis");
    return rank >= 3 && (axis == rank - 1 || axis == -1) ? node : nullptr;
  }

  bool is_per_head(ValueId id) const {
    const Shape& shape = graph.shape(id);
    return std::all_of(shape.end() - std::min<std::ptrdiff_t>(2, std::ssize(shape)), shape.end(),
                       [](const Dim& size) { return size == Dim(1); });
  }
  bool is_minus_infinity(ValueId id) const {
    const auto value = scalar_constant(graph, id);
    return value && std::isinf(*value) && *value < 0;
  }

  std::optional<Scores> match_product(const Node& node, double scale) {
    if (node.attrs.get_bool("transpose_x")) return std::nullopt;
    const ValueId q = node.operands[0], k = node.operands[1];
    if (graph.type(q).rank() < 3 || leading(graph, q) != leading(graph, k)) return std::nullopt;
    see(q);
    return Scores{q,        k, !node.attrs.get_bool("transpose_y"), node.attrs.get_bool("tf32"), scale,
                  kNoValue, {}};
  }

  // The scores of `other` with one more mask, which nothing above scales.
  std::optional<Scores> match_masked(ValueId other, double scale, Mask::Kind kind, ValueId mask, ValueId id) {
    if (scale != 1 || graph.shape(other) != graph.shape(id)) return std::nullopt;
    auto found = match(other, 1);
    if (found) found->masks.push_back({kind, mask, leading(graph, id)});
    return found;
  }

  // mul(scores, factor of each head), before any mask.
  std::optional<Scores> match_factor(ValueId other, double scale, ValueId factor) {
    if (!is_per_head(factor)) return std::nullopt;
    auto found = match(other, scale);
    if (!found || found->factor != kNoValue || !found->masks.empty()) return std::nullopt;
    if (leading(graph, found->q) != leading(graph, other)) return std::nullopt;
    found->factor = factor;
    return found;
  }

  // `id` times `scale`.
  std::optional<Scores> match(ValueId id, double scale) {
    const Node* node = inside(id);
    if (node == nullptr || --left < 0) return std::nullopt;
    if (const auto inner = scaled(graph, *node)) return match(inner->value, scale * inner->factor);
    if (node->op == Op::matmul) return match_product(*node, scale);
    if (passes(*node)) return match(node->operands[0], scale);
    const std::vector<ValueId>& x = node->operands;
    if (node->op == Op::select && is_minus_infinity(x[2]))
      return match_masked(x[1], scale, Mask::kKept, x[0], id);
    if (node->op == Op::select && is_minus_infinity(x[1]))
      return match_masked(x[2], scale, Mask::kHidden, x[0], id);
    for (size_t i = 0; i < 2; ++i) {
      std::optional<Scores> found;
      if (node->op == Op::add) found = match_masked(x[i], scale, Mask::kAdded, x[1 - i], id);
      if (node->op == Op::mul) found = match_factor(x[i], scale, x[1 - i]);
      if (found) return found;
    }
    return std::nullopt;
  }
};

// The shapes that a mask over scores [lead, Tq, Tk] takes to be one over [heads, Tq, Tk]: repeated, then
// regrouped. None if axes of the one lie across those of the other.
std::optional<std::pair<Shape, Shape>> mask_shapes(const Shape& mask, const Shape& lead, const Shape& heads) {
  Shape full(lead.size() + 2 - std::min(lead.size() + 2, mask.size()), Dim(1));
  full.insert(full.end(), mask.begin(), mask.end());
  if (full.size() != lead.size() + 2) return std::nullopt;
  const Shape rest(full.end() - 2, full.end());
  const auto with = [&](Shape axes) {
    axes.insert(axes.end(), rest.begin(), rest.end());
    return axes;
  };
  const auto is_one = [](const Dim& size) { return size == Dim(1); };
  if (std::all_of(full.begin(), full.end() - 2, is_one)) return std::pair(full, with({Dim(1), Dim(1)}));
  if (lead == heads) return std::pair(full, full);
  if (lead.size() == 1) return std::pair(full, with(heads));
  Shape repeated, grouped;
  size_t axis = 0;
  for (const Dim& size : heads) {
    const size_t begin = axis;
    Dim product(1);
    while (axis < lead.size() && !(product == size)) product = product * lead[axis++];
    if (!(product == size)) return std::nullopt;
    if (&size == &heads.back()) axis = lead.size();
    const bool one = std::all_of(full.begin() + begin, full.begin() + axis, is_one);
    const Shape& from = one ? full : lead;
    repeated.insert(repeated.end(), from.begin() + begin, from.begin() + axis);
    grouped.push_back(one ? Dim(1) : size);
  }
  return std::pair(with(repeated), with(grouped));
}

struct Found {
  Scores scores;
  Shape heads;  // [B, H] of the attention
};

std::optional<Found> find_attention(const Graph& graph, const Node& node, Finder finder) {
  if (node.op != Op::matmul || node.attrs.get_bool("transpose_x") || node.attrs.get_bool("transpose_y"))
    return std::nullopt;
  const ValueId v = node.operands[1], out = node.results[0];
  if (graph.type(v).rank() < 3 || leading(graph, v) != leading(graph, out)) return std::nullopt;
  finder.see(out);
  const Node* softmax = finder.softmax_of(node.operands[0]);
  if (softmax == nullptr) return std::nullopt;
  auto scores = finder.match(softmax->operands[0], 1);
  if (!scores || scores->tf32 != node.attrs.get_bool("tf32")) return std::nullopt;
  const DType dtype = graph.dtype(out);
  for (const ValueId id : {scores->q, scores->k, v})
    if (graph.dtype(id) != dtype) return std::nullopt;
  const Dim count = element_count(leading(graph, out));
  const Shape heads = finder.heads.value_or(Shape{Dim(1), count});
  for (const ValueId id : {scores->q, scores->k, v})
    if (!(element_count(leading(graph, id)) == element_count(heads))) return std::nullopt;
  for (const Mask& mask : scores->masks) {
    const DType added = graph.dtype(mask.value);
    const bool fits =
        mask.kind == Mask::kAdded ? added == dtype || added == DType::f32 : added == DType::boolean;
    if (!fits || !mask_shapes(graph.shape(mask.value), mask.lead, heads)) return std::nullopt;
  }
  return Found{std::move(*scores), heads};
}

class Builder {
 public:
  Builder(GraphRewriter& rewriter, const Found& found, const std::string& origin)
      : rewriter_(rewriter), graph_(rewriter.graph()), found_(found), origin_(origin) {}

  ValueId result(const Node& node) {
    const Scores& scores = found_.scores;
    ValueId q = rewriter_.value(scores.q), k = rewriter_.value(scores.k);
    if (scores.factor != kNoValue) q = add(Op::mul, {q, rewriter_.value(scores.factor)});
    if (scores.k_transposed) k = swapped(k);
    const ValueId out = add(
        Op::attention, {with_heads(q), with_heads(k), with_heads(rewriter_.value(node.operands[1])), mask()},
        {{"scale", scores.scale}, {"tf32", scores.tf32}});
    return reshaped(out, rewriter_.old().shape(node.results[0]));
  }

 private:
  ValueId add(Op op, const std::vector<ValueId>& operands, const Attrs& attrs = {}) {
    return graph_.add(op, operands, attrs, origin_);
  }
  // transpose(x * c) = transpose(x) * c, so that x * c lies in memory as the kernels read keys.
  ValueId swapped(ValueId id) {
    const Node* producer = graph_.producer(id);
    if (producer != nullptr)
      if (const auto inner = scaled(graph_, *producer)) {
        Node node = *producer;
        std::replace(node.operands.begin(), node.operands.end(), inner->value, swapped(inner->value));
        return graph_.add(node.op, node.operands, node.attrs, node.origin);
      }
    Ints perm;
    for (int64_t axis = 0; axis < graph_.type(id).rank(); ++axis) perm.push_back(axis);
    std::swap(perm.end()[-1], perm.end()[-2]);
    return add(Op::transpose, {id}, {{"perm", perm}});
  }
  ValueId reshaped(ValueId id, const Shape& shape) {
    return graph_.shape(id) == shape ? id : add(Op::reshape, {id}, {{"shape", shape}});
  }
  ValueId with_heads(ValueId id) {
    Shape shape = found_.heads;
    shape.insert(shape.end(), graph_.shape(id).end() - 2, graph_.shape(id).end());
    return reshaped(id, shape);
  }
  ValueId regrouped(const Mask& mask) {
    const ValueId id = rewriter_.value(mask.value);
    const auto [repeated, grouped] = *mask_shapes(graph_.shape(id), mask.lead, found_.heads);
    if (grouped.size() == repeated.size() && std::equal(grouped.begin(), grouped.end(), repeated.begin()))
      return id;  // axes that it lacks are repeated
    const ValueId full = element_count(repeated) == element_count(graph_.shape(id))
                             ? id
                             : add(Op::broadcast_to, {id}, {{"shape", repeated}});
    return reshaped(full, grouped);
  }
  // One mask of all: bool ones together hide from the sum of those that are added.
  ValueId mask() {
    ValueId added = kNoValue, kept = kNoValue;
    for (const Mask& mask : found_.scores.masks) {
      ValueId id = regrouped(mask);
      if (mask.kind == Mask::kAdded) {
        if (added != kNoValue && graph_.dtype(added) != graph_.dtype(id))
          for (ValueId* side : {&added, &id}) *side = add(Op::cast, {*side}, {{"dtype", DType::f32}});
        added = added == kNoValue ? id : add(Op::add, {added, id});
      } else {
        if (mask.kind == Mask::kHidden) id = add(Op::logical_not, {id});
        kept = kept == kNoValue ? id : add(Op::bit_and, {kept, id});
      }
    }
    if (added == kNoValue || kept == kNoValue) return added == kNoValue ? kept : added;
    Array low(graph_.dtype(added), {});
    low.set_f64(0, -std::numeric_limits<double>::infinity());
    return add(Op::select, {kept, added, graph_.add_constant(std::move(low))});
  }

  GraphRewriter& rewriter_;
  Graph& graph_;
  const Found& found_;
  const std::string& origin_;
};

}  // namespace

// matmul(softmax(scale * matmul(q, k) + masks), v) = attention(q, transpose(k), v, mask), with any reshapes
// of leading axes and casts between. The one difference: a row whose keys are all masked with -inf gives 0
// instead of NaN, as attention is defined. Serves every exported transformer (MiniLM: three kernels become
// one in each of its layers, and no scores are stored).
Graph match_attention(const Graph& graph, const PassContext& context) {
  const std::vector<int> uses = graph.use_counts();
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const bool whole = node.op == Op::matmul && (is_half(graph.dtype(node.results[0])) ||
                                                 contraction_dtype(context.precision).has_value());
    if (const auto found = find_attention(graph, node, {graph, uses, whole}))
      rewriter.map(node.results[0], Builder(rewriter, *found, node.origin).result(node));
    else
      rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace aicf
