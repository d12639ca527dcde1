// ai.onnx.ml: ensembles of decision trees. All rows go down all trees at once, a level at a time: the number
// of the node that a row has reached in a tree picks its feature, its split and its children from tables. A
// leaf is its own child, so that rows wait there until the deepest tree is done.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "import/onnx_ops/ml_forest.h"
#include "import/onnx_ops/ml_scores.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

constexpr int64_t kDeepestTree = 512;

// The longest way from a root to a leaf, a level at a time. What is not reached in time is a circle or too
// deep.
int64_t depth_of(NodeContext& n, const Forest& forest) {
  std::vector<int64_t> level = forest.roots;
  for (int64_t depth = 0; depth <= kDeepestTree; ++depth) {
    std::vector<int64_t> next;
    for (const int64_t i : level) {
      const TreeNode& node = forest.nodes[static_cast<size_t>(i)];
      if (node.mode != kLeaf) next.insert(next.end(), {node.yes, node.no});
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    if (next.empty()) return depth;
    level = std::move(next);
  }
  n.unsupported("trees of more than " + std::to_string(kDeepestTree) + " levels");
}

class TreeWalk {
 public:
  TreeWalk(NodeContext& n, const Forest& forest, ValueId x) : n_(n), forest_(forest), x_(x) {
    if (forest.roots.empty()) n.bad("tree_roots", "at least one tree", "none");
    const int64_t width = n.shape_of(x)[1].require_constant("the features of node '" + n.origin() + "'");
    for (const TreeNode& node : forest.nodes)
      if (node.mode != kLeaf && (node.feature < 0 || node.feature >= width))
        n.bad("nodes_featureids", "0 to " + std::to_string(width - 1), std::to_string(node.feature));
    for (const TreeNode& node : forest.nodes)
      if (node.mode != kLeaf) modes_.insert(node.mode);
  }

  // The leaf that each row reaches in each tree: [rows, trees].
  ValueId leaves() {
    const auto trees = static_cast<int64_t>(forest_.roots.size());
    const int64_t depth = depth_of(n_, forest_);
    make_tables();
    ValueId node = n_.broadcast(n_.constant_of(Array::from(DType::i32, {1, trees}, forest_.roots)),
                                {n_.shape_of(x_)[0], Dim(trees)});
    for (int64_t level = 0; level < depth; ++level) {
      const ValueId twice = n_.add(Op::add, {node, node});
      node = look_up(children_, n_.add(Op::add, {twice, n_.cast(answer(node), DType::i32)}));
    }
    return node;
  }

 private:
  ValueId look_up(ValueId table, ValueId node) {
    return n_.add(Op::gather, {table, node}, {{"axis", int64_t{0}}});
  }

  template <typename F>
  ValueId table(DType dtype, const F& value_of) {
    std::vector<double> values;
    for (const TreeNode& node : forest_.nodes) values.push_back(static_cast<double>(value_of(node)));
    return n_.constant_of(Array::from(dtype, {static_cast<int64_t>(values.size())}, values));
  }

  void make_tables() {
    const DType dtype = n_.dtype_of(x_);
    features_ = table(DType::i32, [](const TreeNode& node) { return node.mode == kLeaf ? 0 : node.feature; });
    splits_ = table(dtype, [](const TreeNode& node) { return node.split; });
    Ints children;
    for (const TreeNode& node : forest_.nodes) children.insert(children.end(), {node.no, node.yes});
    children_ = n_.constant_of(Array::from(DType::i32, {static_cast<int64_t>(children.size())}, children));
    if (modes_.size() > 1) mode_table_ = table(DType::i32, [](const TreeNode& node) { return node.mode; });
    if (std::any_of(forest_.nodes.begin(), forest_.nodes.end(),
                    [](const TreeNode& n) { return n.nan_is_yes; }))
      tracks_ = table(DType::i32, [](const TreeNode& node) { return node.nan_is_yes ? 1 : 0; });
    if (modes_.count(kMember)) make_member_table();
  }

  // [nodes, most members], filled up with NaN, which nothing equals.
  void make_member_table() {
    size_t most = 1;
    for (const TreeNode& node : forest_.nodes) most = std::max(most, node.members.size());
    Array sets = n_.generated(n_.dtype_of(x_),
                              {static_cast<int64_t>(forest_.nodes.size()), static_cast<int64_t>(most)});
    for (size_t i = 0; i < forest_.nodes.size(); ++i)
      for (size_t k = 0; k < most; ++k) {
        const std::vector<double>& own = forest_.nodes[i].members;
        sets.set_f64(static_cast<int64_t>(i * most + k),
                     k < own.size() ? own[k] : std::numeric_limits<double>::quiet_NaN());
      }
    members_ = n_.constant_of(sets);
  }

  ValueId compared(int64_t mode, ValueId node, ValueId value) {
    if (mode == kMember) {
      Shape thin = n_.shape_of(value);
      thin.emplace_back(1);
      const ValueId same = n_.add(Op::eq, {n_.reshape(value, thin), look_up(members_, node)});
      return n_.add(Op::reduce_max, {same}, {{"axes", Ints{2}}});
    }
    constexpr Op ops[] = {Op::le, Op::lt, Op::ge, Op::gt, Op::eq, Op::ne};
    return n_.add(ops[mode], {value, look_up(splits_, node)});
  }

  // Whether each row takes the first child of its node, in each tree.
  ValueId answer(ValueId node) {
    const ValueId value = n_.add(Op::gather_elements, {x_, look_up(features_, node)}, {{"axis", int64_t{1}}});
    ValueId yes = kNoValue;
    for (const int64_t mode : modes_) {
      const ValueId here = compared(mode, node, value);
      if (yes == kNoValue) {
        yes = here;
        continue;
      }
      const ValueId is_mode = n_.add(Op::eq, {look_up(mode_table_, node), n_.iscalar(DType::i32, mode)});
      yes = n_.add(Op::select, {is_mode, here, yes});
    }
    if (tracks_ == kNoValue) return yes;
    const ValueId tracked = n_.cast(look_up(tracks_, node), DType::boolean);
    return n_.add(Op::bit_or, {yes, n_.add(Op::bit_and, {tracked, n_.add(Op::is_nan, {value})})});
  }

  NodeContext& n_;
  const Forest& forest_;
  const ValueId x_;
  std::set<int64_t> modes_;
  ValueId features_ = kNoValue, splits_ = kNoValue, children_ = kNoValue, mode_table_ = kNoValue,
          tracks_ = kNoValue, members_ = kNoValue;
};

// --- adding up
// ------------------------------------------------------------------------------------------------------------

enum class Aggregate { kAverage, kSum, kMin, kMax };  // as TreeEnsemble numbers them

// Whether each row gets a weight for each target from all trees (or at least from one).
bool covers(const Forest& forest, bool all_trees) {
  std::vector<Ints> lacking;  // of each tree: leaves without the target, by target
  for (const int64_t root : forest.roots) {
    Ints& missing = lacking.emplace_back(static_cast<size_t>(forest.targets), 0);
    std::set<int64_t> seen;
    std::vector<int64_t> open = {root};
    while (!open.empty()) {
      const int64_t i = open.back();
      open.pop_back();
      if (!seen.insert(i).second) continue;
      const TreeNode& node = forest.nodes[static_cast<size_t>(i)];
      if (node.mode != kLeaf) {
        open.insert(open.end(), {node.yes, node.no});
        continue;
      }
      std::set<int64_t> given;
      for (const auto& [target, weight] : node.weights) given.insert(target);
      for (int64_t t = 0; t < forest.targets; ++t) missing[static_cast<size_t>(t)] += given.count(t) == 0;
    }
  }
  for (size_t t = 0; t < static_cast<size_t>(forest.targets); ++t) {
    const auto covered =
        std::count_if(lacking.begin(), lacking.end(), [&](const Ints& missing) { return missing[t] == 0; });
    if (covered < (all_trees ? static_cast<std::ptrdiff_t>(lacking.size()) : 1)) return false;
  }
  return true;
}

// [rows, targets]: what the trees say, without base values.
ValueId aggregated(NodeContext& n, const Forest& forest, ValueId x, Aggregate how) {
  const DType dtype = n.dtype_of(x);
  const auto nodes = static_cast<int64_t>(forest.nodes.size());
  Array weights = n.generated(dtype, {nodes, forest.targets});
  for (int64_t i = 0; i < nodes; ++i)
    for (const auto& [target, weight] : forest.nodes[static_cast<size_t>(i)].weights) {
      const int64_t place = i * forest.targets + target;
      weights.set_f64(place, weights.get_f64(place) + weight);
    }
  const bool sums = how == Aggregate::kSum || how == Aggregate::kAverage;
  if (!sums && !covers(forest, true))
    n.unsupported("the least or greatest of trees whose leaves leave out targets");
  const ValueId leaves = TreeWalk(n, forest, x).leaves();
  const ValueId said = n.add(Op::gather, {n.constant_of(weights), leaves}, {{"axis", int64_t{0}}});
  const Op op = sums ? Op::reduce_sum : how == Aggregate::kMin ? Op::reduce_min : Op::reduce_max;
  const ValueId y = n.add(op, {said}, {{"axes", Ints{1}}});
  if (how != Aggregate::kAverage) return y;
  return n.add(Op::div, {y, n.scalar(dtype, static_cast<double>(forest.roots.size()))});
}

ValueId with_base(NodeContext& n, ValueId y, const std::vector<double>& base) {
  if (base.empty()) return y;
  const Array values = Array::from(n.dtype_of(y), {static_cast<int64_t>(base.size())}, base);
  return n.add(Op::add, {y, n.constant_of(values)});
}

int64_t checked_targets(NodeContext& n, int64_t count) {
  if (count < 1 || count > 1 << 16) n.bad("the number of targets", "1 to 2^16", std::to_string(count));
  return count;
}

void tree_regressor(NodeContext& n) {
  static const std::map<std::string, Aggregate> names = {{"AVERAGE", Aggregate::kAverage},
                                                         {"SUM", Aggregate::kSum},
                                                         {"MIN", Aggregate::kMin},
                                                         {"MAX", Aggregate::kMax}};
  const auto how = names.find(n.attr_str("aggregate_function", "SUM"));
  if (how == names.end()) n.bad("aggregate_function", "AVERAGE, SUM, MIN or MAX", "else");
  const std::string transform = n.attr_str("post_transform", "NONE");
  const Forest forest = read_forest(n, "target", checked_targets(n, n.attr_int("n_targets", 1)));
  const std::vector<double> base = ml_numbers(n, "base_values");
  if (!base.empty() && static_cast<int64_t>(base.size()) != forest.targets)
    n.bad("base_values", "one for each target", std::to_string(base.size()));
  if (!base.empty() && !covers(forest, false)) n.unsupported("base_values of targets that leaves leave out");
  const ValueId y = with_base(n, aggregated(n, forest, feature_rows(n), how->second), base);
  n.out(0, transformed_scores(n, y, transform));
}

void tree_ensemble(NodeContext& n) {
  constexpr const char* kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const int64_t how = n.attr_int("aggregate_function", 1), transform = n.attr_int("post_transform", 0);
  if (how < 0 || how > 3) n.bad("aggregate_function", "0 to 3", std::to_string(how));
  if (transform < 0 || transform > 4) n.bad("post_transform", "0 to 4", std::to_string(transform));
  checked_targets(n, n.attr_int("n_targets", 1));
  const ValueId y = aggregated(n, read_tree_ensemble(n), feature_rows(n), static_cast<Aggregate>(how));
  n.out(0, n.cast(transformed_scores(n, y, kTransforms[transform]), n.dtype(0)));
}

bool no_weight_is_below_zero(const Forest& forest) {
  for (const TreeNode& node : forest.nodes)
    for (const auto& [target, weight] : node.weights)
      if (weight < 0) return false;
  return true;
}

void tree_classifier(NodeContext& n) {
  const std::string transform = n.attr_str("post_transform", "NONE");
  const Ints labels = class_labels(n, "classlabels_int64s", "classlabels_strings");
  Forest forest = read_forest(n, "class", checked_targets(n, static_cast<int64_t>(labels.size())));
  const std::vector<double> base = ml_numbers(n, "base_values");
  std::set<int64_t> spoken;
  for (const TreeNode& node : forest.nodes)
    for (const auto& [target, weight] : node.weights) spoken.insert(target);
  const bool positive = no_weight_is_below_zero(forest);
  const ValueId x = feature_rows(n);
  if (labels.size() == 2 && spoken == std::set<int64_t>{0} && base.size() < 2) {
    forest.targets = 1;
    const ValueId y = with_base(n, aggregated(n, forest, x, Aggregate::kSum), base);
    out_labels(n, is_second(n, y, positive ? 0.5 : 0), labels);
    return n.out(1, scores_of_two(n, y, transform, positive));
  }
  if (!base.empty() && base.size() != labels.size())
    n.bad("base_values", "one for each class", std::to_string(base.size()));
  if (!covers(forest, false) && (!positive || !base.empty()))
    n.unsupported("classes that some rows get no score for, beside scores below zero or base_values");
  const ValueId scores = with_base(n, aggregated(n, forest, x, Aggregate::kSum), base);
  out_labels(n, n.add(Op::argmax, {scores}, {{"axis", int64_t{1}}}), labels);
  n.out(1, transformed_scores(n, scores, transform));
}

}  // namespace

std::vector<OpRule> ml_tree_rules() {
  return {{"TreeEnsembleRegressor", tree_regressor, 1, kMl},
          {"TreeEnsembleClassifier", tree_classifier, 1, kMl},
          {"TreeEnsemble", tree_ensemble, 5, kMl}};
}

}  // namespace aicf::onnx
