#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "passes/pass.h"
#include "select/update_targets.h"

namespace aicf {
namespace {

// x @ w [+ bias]: `result` is the value that others read.
struct Product {
  const Node* matmul;
  ValueId bias;  // kNoValue: none
  ValueId result;
};

// Products with one key can be computed together: what they read, how both operands lie, whether they have a
// bias.
using Key = std::tuple<ValueId, bool, bool, bool>;

class Merger {
 public:
  Merger(const Graph& graph, const PassContext& context)
      : graph_(graph),
        context_(context),
        readers_(static_cast<size_t>(graph.value_count())),
        updated_(updated_variables(context.program)) {
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
          done.insert(graph_.producer(product.result));
        }
      } else if (!done.contains(&node)) {
        rewriter.copy(node);
      }
    }
    return rewriter.finish();
  }

 private:
  // Written only when weights are loaded, so that the joined copy made then stays right.
  bool is_weight(ValueId id) const {
    const Value& value = graph_.value(id);
    const bool fixed =
        value.role == Role::kConstant || (value.role == Role::kParam && !updated_.contains(value.name));
    return fixed && std::all_of(value.type.shape.begin(), value.type.shape.end(),
                                [](const Dim& size) { return size.is_constant(); });
  }

  std::optional<Product> match(const Node& node) const {
    if (node.op != Op::matmul || !is_weight(node.operands[1]) || graph_.type(node.operands[1]).rank() != 2)
      return std::nullopt;
    Product product{&node, kNoValue, node.results[0]};
    if (const Node* sum = bias_of(product.result, product.bias)) product.result = sum->results[0];
    // An epilogue that joins its own contraction is worth more than a merged one.
    const auto& readers = readers_[static_cast<size_t>(product.result)];
    const bool fuses = std::any_of(readers.begin(), readers.end(), [&](const Node* reader) {
      return context_.target.fuses(graph_, *reader);
    });
    return fuses || readers.empty() || kept_.contains(product.result) ? std::nullopt : std::optional(product);
  }

  // The node that adds a weight [N] to the product and is its only reader, or null.
  const Node* bias_of(ValueId product, ValueId& bias) const {
    const auto& readers = readers_[static_cast<size_t>(product)];
    if (readers.size() != 1 || readers[0]->op != Op::add || kept_.contains(product)) return nullptr;
    const Node& sum = *readers[0];
    for (size_t i = 0; i < 2; ++i) {
      const ValueId other = sum.operands[1 - i];
      if (sum.operands[i] != product || !is_weight(other) || graph_.type(other).rank() != 1) continue;
      if (!(graph_.shape(other)[0] == graph_.shape(product).back())) continue;
      bias = other;
      return &sum;
    }
    return nullptr;
  }

  Key key_of(const Product& product) const {
    const Node& matmul = *product.matmul;
    return {matmul.operands[0], matmul.attrs.get_bool("transpose_x"), matmul.attrs.get_bool("transpose_y"),
            product.bias != kNoValue};
  }

  // The group in which a node is the contraction, or null if it is computed alone.
  const std::vector<Product>* group_of(const Node& node) const {
    const auto product = match(node);
    if (!product) return nullptr;
    const std::vector<Product>& group = groups_.at(key_of(*product));
    return group.size() > 1 ? &group : nullptr;
  }

  static ValueId join(const std::vector<ValueId>& parts, int64_t axis, GraphRewriter& rewriter) {
    return rewriter.graph().add(Op::concat, rewriter.values(parts), {{"axis", axis}});
  }

  void emit(const std::vector<Product>& group, GraphRewriter& rewriter) const {
    const Node& first = *group[0].matmul;
    std::vector<ValueId> weights, biases;
    for (const Product& product : group) {
      weights.push_back(product.matmul->operands[1]);
      biases.push_back(product.bias);
    }
    Graph& built = rewriter.graph();
    const int64_t columns_axis = first.attrs.get_bool("transpose_y") ? 0 : 1;
    ValueId all =
        built.add(Op::matmul, {rewriter.value(first.operands[0]), join(weights, columns_axis, rewriter)},
                  first.attrs, first.origin);
    if (biases[0] != kNoValue) all = built.add(Op::add, {all, join(biases, 0, rewriter)}, {}, first.origin);
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
  return Merger(graph, context).run();
}

}  // namespace aicf
