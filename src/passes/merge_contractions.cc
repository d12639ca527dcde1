#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "ir/updates.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace aicf {
namespace {

// x @ w and the casts and sums with a bias [N] behind it, each the only reader of the one before.
struct Product {
  const Node* matmul;
  std::vector<const Node*> tail;
  ValueId result;  // what others read
};

// Products with one key can be computed together: what they read, how both operands lie, what follows.
using Key = std::tuple<ValueId, bool, bool, bool, std::vector<std::pair<Op, DType>>>;

class ContractionMerger {
 public:
  ContractionMerger(const Graph& graph, const PassContext& context)
      : graph_(graph),
        context_(context),
        readers_(static_cast<size_t>(graph.value_count())),
        updated_(updated_variables(context.program)) {
    if (context.updated_elsewhere != nullptr)
      updated_.insert(context.updated_elsewhere->begin(), context.updated_elsewhere->end());
    for (const Node& node : graph.nodes())
      for (ValueId id : node.operands)
        if (id != kNoValue) readers_[static_cast<size_t>(id)].push_back(&node);
    for (ValueId id : graph.outputs()) kept_.insert(id);
    for (const Update& update : graph.updates()) kept_.insert(update.value);
  }

  Graph run() {
    for (const Node& node : graph_.nodes())
      if (const auto product = match(node)) groups_[key_of(*product)].push_back(*product);
    GraphRewriter rewriter(graph_);
    std::set<const Node*> done;
    for (const Node& node : graph_.nodes()) {
      if (const std::vector<Product>* group = group_of(node)) {
        if (done.contains(&node)) continue;
        emit(*group, rewriter);
        for (const Product& product : *group) {
          done.insert(product.matmul);
          done.insert(product.tail.begin(), product.tail.end());
        }
      } else if (!done.contains(&node)) {
        rewriter.copy(node);
      }
    }
    return rewriter.finish();
  }

 private:
  ValueId before_cast(ValueId id) const {
    const Node* cast = producer_with_op(graph_, id, Op::cast);
    return cast == nullptr ? id : cast->operands[0];
  }

  // Written only when weights are loaded, so that the joined copy made then stays right.
  bool is_weight(ValueId id) const {
    const Value& value = graph_.value(before_cast(id));
    const bool fixed =
        value.role == Role::kConstant || (value.role == Role::kParam && !updated_.contains(value.name));
    return fixed && std::all_of(value.type.shape.begin(), value.type.shape.end(),
                                [](const Dim& size) { return size.is_constant(); });
  }

  std::optional<Product> match(const Node& node) const {
    if (node.op != Op::matmul || !is_weight(node.operands[1]) || graph_.type(node.operands[1]).rank() != 2)
      return std::nullopt;
    Product product{&node, {}, node.results[0]};
    while (const Node* next = next_in_tail(product.result)) {
      product.tail.push_back(next);
      product.result = next->results[0];
    }
    // An epilogue that joins its own contraction is worth more than a merged one.
    const auto& readers = readers_[static_cast<size_t>(product.result)];
    const bool fuses = std::any_of(readers.begin(), readers.end(), [&](const Node* reader) {
      return context_.target.fuses(graph_, *reader);
    });
    return fuses || readers.empty() || kept_.contains(product.result) ? std::nullopt : std::optional(product);
  }

  // The cast or the sum with a weight [N] that is the only reader of the value, or null.
  const Node* next_in_tail(ValueId id) const {
    const auto& readers = readers_[static_cast<size_t>(id)];
    if (readers.size() != 1 || kept_.contains(id)) return nullptr;
    const Node& reader = *readers[0];
    if (reader.op == Op::cast) return &reader;
    if (reader.op != Op::add || reader.operands[0] == reader.operands[1]) return nullptr;
    const ValueId bias = bias_of(reader, id);
    const bool is_row = is_weight(bias) && graph_.type(bias).rank() == 1;
    return is_row && graph_.shape(bias)[0] == graph_.shape(id).back() ? &reader : nullptr;
  }

  static ValueId bias_of(const Node& sum, ValueId product) {
    return sum.operands[sum.operands[0] == product ? 1 : 0];
  }

  Key key_of(const Product& product) const {
    const Node& matmul = *product.matmul;
    std::vector<std::pair<Op, DType>> tail;
    for (const Node* node : product.tail) tail.emplace_back(node->op, graph_.dtype(node->results[0]));
    return {matmul.operands[0], matmul.attrs.get_bool("transpose_x"), matmul.attrs.get_bool("transpose_y"),
            matmul.attrs.get_bool("tf32"), tail};
  }

  // The group in which a node is the contraction, or null if it is computed alone.
  const std::vector<Product>* group_of(const Node& node) const {
    const auto product = match(node);
    if (!product) return nullptr;
    const std::vector<Product>& group = groups_.at(key_of(*product));
    return group.size() > 1 ? &group : nullptr;
  }

  // In the new graph; a cast of a weight may come later in the old one than the first contraction of a group.
  ValueId weight(ValueId id, GraphRewriter& rewriter) const {
    const Node* cast = producer_with_op(graph_, id, Op::cast);
    if (cast == nullptr) return rewriter.value(id);
    return rewriter.graph().add(Op::cast, {rewriter.value(cast->operands[0])}, cast->attrs, cast->origin);
  }

  ValueId join(const std::vector<ValueId>& parts, int64_t axis, GraphRewriter& rewriter) const {
    std::vector<ValueId> weights;
    for (const ValueId part : parts) weights.push_back(weight(part, rewriter));
    return rewriter.graph().add(Op::concat, weights, {{"axis", axis}});
  }

  void emit(const std::vector<Product>& group, GraphRewriter& rewriter) const {
    const Node& first = *group[0].matmul;
    std::vector<ValueId> weights;
    for (const Product& product : group) weights.push_back(product.matmul->operands[1]);
    Graph& built = rewriter.graph();
    const int64_t columns_axis = first.attrs.get_bool("transpose_y") ? 0 : 1;
    ValueId all =
        built.add(Op::matmul, {rewriter.value(first.operands[0]), join(weights, columns_axis, rewriter)},
                  first.attrs, first.origin);
    for (size_t i = 0; i < group[0].tail.size(); ++i) {
      const Node& node = *group[0].tail[i];
      if (node.op == Op::cast) {
        all = built.add(Op::cast, {all}, node.attrs, first.origin);
        continue;
      }
      std::vector<ValueId> biases;
      for (const Product& product : group) {
        const ValueId sum_of = i == 0 ? product.matmul->results[0] : product.tail[i - 1]->results[0];
        biases.push_back(bias_of(*product.tail[i], sum_of));
      }
      all = built.add(Op::add, {all, join(biases, 0, rewriter)}, {}, first.origin);
    }
    Shape starts(built.shape(all).size(), Dim(0)), limits = built.shape(all);
    for (const Product& product : group) {
      limits.back() = starts.back() + graph_.shape(product.result).back();
      rewriter.map(product.result,
                   built.add(Op::slice, {all},
                             {{"starts", starts}, {"limits", limits}, {"steps", Ints(starts.size(), 1)}},
                             product.matmul->origin));
      starts.back() = limits.back();
    }
  }

  const Graph& graph_;
  const PassContext& context_;
  std::vector<std::vector<const Node*>> readers_;
  std::set<std::string> updated_;
  std::set<ValueId> kept_;  // outputs and new values of variables
  std::map<Key, std::vector<Product>> groups_;
};

}  // namespace

// x @ a + p, x @ b + q = parts of x @ [a b] + [p q], for weights a, b, p, q: one kernel with long rows
// instead of several with short ones, and x is read once. The parts are views. The weights are joined when
// they are loaded (select/). Serves every transformer: queries, keys and values of a layer (MiniLM, BERT,
// LLaMA).
Graph merge_contractions(const Graph& graph, const PassContext& context) {
  return ContractionMerger(graph, context).run();
}

}  // namespace aicf
