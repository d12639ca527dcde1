#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

// The constant without the axes along which it repeats itself; those become 1.
Array without_repeats(const Array& full) {
  std::vector<int64_t> sizes = full.sizes();
  const auto element = static_cast<size_t>(dtype_bytes(full.dtype()));
  std::vector<std::byte> data(static_cast<size_t>(full.count()) * element);
  if (!data.empty()) std::memcpy(data.data(), full.data(), data.size());
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const auto count = static_cast<size_t>(sizes[axis]);
    if (count < 2 || data.empty()) continue;
    const size_t inner = std::accumulate(sizes.begin() + static_cast<int64_t>(axis) + 1, sizes.end(), element,
                                         [](size_t x, int64_t y) { return x * static_cast<size_t>(y); });
    const size_t rows = data.size() / (inner * count);
    bool repeats = true;
    for (size_t row = 0; row < rows && repeats; ++row) {
      const std::byte* const first = data.data() + row * count * inner;
      for (size_t i = 1; i < count && repeats; ++i)
        repeats = std::memcmp(first, first + i * inner, inner) == 0;
    }
    if (!repeats) continue;
    for (size_t row = 0; row < rows; ++row)
      std::memmove(data.data() + row * inner, data.data() + row * count * inner, inner);
    data.resize(rows * inner);
    sizes[axis] = 1;
  }
  Array narrow(full.dtype(), sizes);
  if (!data.empty()) std::memcpy(narrow.mutable_data(), data.data(), data.size());
  return narrow;
}

// Which keys a row sees, as attention's attributes say it.
struct Band {
  bool causal = false;
  int64_t window = 0;  // 0: none

  bool sees(int64_t ahead) const {
    return !(causal && ahead > 0) && (window == 0 || std::abs(ahead) < window);
  }
};

// What a constant mask keeps, if it does nothing but keep and hide.
std::optional<std::vector<bool>> kept_by(const Array& mask) {
  std::vector<bool> kept;
  for (int64_t i = 0; i < mask.count(); ++i) {
    const bool added = is_float(mask.dtype());
    const double value = mask.get_f64(i);
    if (added && value != 0 && !(std::isinf(value) && value < 0)) return std::nullopt;
    kept.push_back((value == 0) == added);
  }
  return kept;
}

// Of a constant over all queries and keys, if it hides just what a band hides.
std::optional<Band> band_of(const Array& mask, int64_t queries, int64_t keys) {
  if (mask.count() != queries * keys || keys < queries) return std::nullopt;
  const auto kept = kept_by(mask);
  if (!kept) return std::nullopt;
  const auto keeps = [&](int64_t i, int64_t j) { return (*kept)[static_cast<size_t>(i * keys + j)]; };
  int64_t first = 0;  // that the last row keeps
  while (first < keys && !keeps(queries - 1, first)) ++first;
  for (const bool causal : {true, false}) {
    const Band band{causal, first == 0 ? 0 : keys - first};
    bool equal = true;
    for (int64_t i = 0; i < queries && equal; ++i)
      for (int64_t j = 0; j < keys && equal; ++j) equal = keeps(i, j) == band.sees(j - (i + keys - queries));
    if (equal) return band;
  }
  return std::nullopt;
}

class Masks {
 public:
  explicit Masks(Graph& graph) : graph_(graph) {}

  // A value that broadcasts to the mask and is no larger than it must be.
  ValueId narrow(ValueId id) {
    const auto [at, fresh] = narrow_.try_emplace(id, id);
    if (fresh) at->second = narrowed(id);
    return narrow_.at(id);
  }
  // All of its elements, if they are equal and known.
  std::optional<double> only_value(ValueId id) const { return scalar_constant(graph_, id); }

  const Array* constant(ValueId id) const {
    return graph_.value(id).role == Role::kConstant ? &graph_.value(id).constant : nullptr;
  }

 private:
  ValueId narrowed(ValueId id) {
    if (const Array* full = constant(id)) {
      const Array narrow = without_repeats(*full);
      return narrow.sizes() == full->sizes() ? id : graph_.add_constant(narrow);
    }
    const Node* producer = graph_.producer(id);
    if (producer == nullptr) return id;
    const Node node = *producer;  // the graph grows
    if (node.op == Op::broadcast_to) return narrow(node.operands[0]);
    if (!op_info(node.op).has(kPointwise) || node.results.size() != 1) return id;
    std::vector<ValueId> operands;
    for (const ValueId operand : node.operands)
      operands.push_back(operand == kNoValue ? operand : narrow(operand));
    if (node.op == Op::select)
      if (const auto chosen = only_value(operands[0])) return operands[*chosen != 0 ? 1 : 2];
    // A mask has no use for the sign of a zero.
    if (node.op == Op::add)
      for (size_t i = 0; i < 2; ++i)
        if (only_value(operands[i]) == 0.0) return operands[1 - i];
    if (operands == node.operands) return id;
    const ValueId smaller = graph_.add(node.op, operands, node.attrs, node.origin);
    return graph_.shape(smaller) == graph_.shape(id) ? id : smaller;
  }

  Graph& graph_;
  std::map<ValueId, ValueId> narrow_;
};

size_t mask_operand(Op op) { return op == Op::attention_backward ? 5 : 3; }

bool is_attention(Op op) {
  return op == Op::attention || op == Op::attention_lse || op == Op::attention_backward;
}

// Takes the mask of `node`, whose operands are of the graph that is built, as small as it can be; what is
// causal or a window becomes that.
void narrow_mask(Masks& masks, const Graph& graph, Node& node) {
  ValueId& mask = node.operands[mask_operand(node.op)];
  mask = masks.narrow(mask);
  const bool added = is_float(graph.dtype(mask));
  if (const auto only = masks.only_value(mask); only && *only == (added ? 0.0 : 1.0)) {
    mask = kNoValue;
    return;
  }
  const auto queries = graph.shape(node.operands[0])[2].constant(),
             keys = graph.shape(node.operands[1])[2].constant();
  const Array* constant = masks.constant(mask);
  if (constant == nullptr || !queries || !keys || *queries < 1) return;
  const auto band = band_of(*constant, *queries, *keys);
  if (!band || (band->window > 0 && node.attrs.get_int("window") > 0)) return;
  if (band->causal) node.attrs.set("causal", true);
  if (band->window > 0) {
    // A window counts ahead, too, where nothing is causal.
    if (!band->causal && node.attrs.get_bool("causal")) return;
    node.attrs.set("window", band->window);
  }
  mask = kNoValue;
}

}  // namespace

// attention(q, k, v, mask) reads a mask that is repeated over the batch or over heads once; a constant one
// that is causal or a window is not read at all, and keys that it hides are left out.
Graph narrow_attention_masks(const Graph& graph, const PassContext&) {
  GraphRewriter rewriter(graph);
  Masks masks(rewriter.graph());
  for (const Node& node : graph.nodes()) {
    if (!is_attention(node.op) || node.operands[mask_operand(node.op)] == kNoValue) {
      rewriter.copy(node);
      continue;
    }
    Node narrow = node;
    narrow.operands = rewriter.values(node.operands);
    narrow_mask(masks, rewriter.graph(), narrow);
    const NodeId id = rewriter.graph().add_node(node.op, narrow.operands, narrow.attrs, {}, node.origin);
    for (size_t i = 0; i < node.results.size(); ++i)
      rewriter.map(node.results[i], rewriter.graph().node(id).results[i]);
  }
  return rewriter.finish();
}

}  // namespace aicf
