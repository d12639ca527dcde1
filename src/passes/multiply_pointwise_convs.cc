// Convolutions of one tap in graphs whose values lie by rows, as products. Convolutions make what surrounds
// them lie channels-last, so that windows are read where they lie. A convolution of one tap has no windows:
// where its neighbours are products, or reduce along the last axis, all of them would go across memory.
#include <algorithm>
#include <numeric>

#include "ir/decompose/emitter.h"
#include "passes/pass.h"

namespace aicf {
namespace {

bool all_equal(const Ints& list, int64_t value) {
  return std::all_of(list.begin(), list.end(), [&](int64_t each) { return each == value; });
}

bool has_one_tap(const Graph& graph, const Node& conv) {
  const Shape& w = graph.shape(conv.operands[1]);
  return all_equal(conv.attrs.get_ints("strides"), 1) && all_equal(conv.attrs.get_ints("pads"), 0) &&
         conv.attrs.get_int("groups") == 1 && element_count(Shape(w.begin() + 2, w.end())) == Dim(1);
}

// Its bias would be added to a result that is rounded already.
bool adds_in_halves(const Graph& graph, const Node& conv) {
  return conv.operands[2] != kNoValue && is_half(graph.dtype(conv.operands[0]));
}

// Values that lie in one way in memory, because pointwise ops and convolutions connect them.
class Surroundings {
 public:
  explicit Surroundings(const Graph& graph)
      : graph_(graph),
        parents_(static_cast<size_t>(graph.value_count())),
        by_rows_(parents_.size()),
        channels_last_(parents_.size()) {
    std::iota(parents_.begin(), parents_.end(), 0);
    for (const Node& node : graph.nodes()) connect(node);
    for (const Node& node : graph.nodes()) ask(node);
  }

  // Some op wants rows of the last axis, and none the channels of a position together.
  bool lie_by_rows(ValueId id) { return by_rows_[root(id)] != 0 && channels_last_[root(id)] == 0; }

 private:
  // Not what many places share: parameters, constants and vectors made of them.
  bool is_map(ValueId id) const {
    return id != kNoValue && graph_.shape(id).size() >= 3 && graph_.value(id).role == Role::kTemp;
  }

  size_t root(ValueId id) {
    auto at = static_cast<size_t>(id);
    while (parents_[at] != at) at = parents_[at] = parents_[parents_[at]];
    return at;
  }

  void connect(const Node& node) {
    const OpInfo& info = op_info(node.op);
    const bool keeps = info.has(kPointwise) || node.op == Op::cast || node.op == Op::slice ||
                       node.op == Op::concat || node.op == Op::pad;
    if (!keeps && node.op != Op::conv) return;
    const ValueId result = node.results[0];
    for (size_t i = 0; i < (keeps ? node.operands.size() : 1); ++i)
      if (is_map(result) && is_map(node.operands[i])) parents_[root(node.operands[i])] = root(result);
  }

  void ask(const Node& node) {
    if (node.op == Op::conv) {
      if (!has_one_tap(graph_, node)) want(channels_last_, node);
    } else if (node.op == Op::transpose) {
      const Ints& perm = node.attrs.get_ints("perm");
      if (perm.back() != static_cast<int64_t>(perm.size()) - 1) want(channels_last_, node);
    } else if (node.op == Op::conv_transpose || node.op == Op::max_pool || node.op == Op::avg_pool) {
      want(channels_last_, node);
    } else if (node.op == Op::matmul || reduces_rows(node)) {
      want(by_rows_, node);
    }
  }

  bool reduces_rows(const Node& node) const {
    if (!op_info(node.op).has(kReduction) || node.attrs.find("axes") == nullptr) return false;
    const Ints& axes = node.attrs.get_ints("axes");
    const auto rank = static_cast<int64_t>(graph_.shape(node.operands[0]).size());
    return axes == Ints{rank - 1};
  }

  void want(std::vector<char>& which, const Node& node) {
    for (const auto* list : {&node.operands, &node.results})
      for (ValueId id : *list)
        if (is_map(id)) which[root(id)] = 1;
  }

  const Graph& graph_;
  std::vector<size_t> parents_;
  std::vector<char> by_rows_, channels_last_;  // by root
};

// w[M, C] @ x[N, C, positions] + bias[M, 1]
ValueId product(Emitter& e, const Node& conv, const Values& x, const Shape& result) {
  const Shape from = e.shape(x[0]), w = e.shape(x[1]);
  const Dim positions = element_count(Shape(from.begin() + 2, from.end()));
  ValueId y =
      e.op(Op::matmul, {e.reshape(x[1], {w[0], w[1]}), e.reshape(x[0], {from[0], from[1], positions})},
           {{"tf32", conv.attrs.get_bool("tf32")}});
  if (x[2] != kNoValue) y = e.add(y, e.reshape(x[2], {w[0], Dim(1)}));
  return e.reshape(y, result);
}

}  // namespace

Graph multiply_pointwise_convs(const Graph& graph, const PassContext&) {
  Surroundings surroundings(graph);
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const bool rewrites = node.op == Op::conv && has_one_tap(graph, node) && !adds_in_halves(graph, node) &&
                          surroundings.lie_by_rows(node.results[0]);
    if (!rewrites) {
      rewriter.copy(node);
      continue;
    }
    Emitter emitter(rewriter.graph(), node.origin);
    rewriter.map(node.results[0],
                 product(emitter, node, rewriter.values(node.operands), graph.shape(node.results[0])));
  }
  return rewriter.finish();
}

}  // namespace aicf
