#include "import/onnx_ops/ml_forest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "import/onnx_wire.h"

namespace aicf::onnx {

std::vector<double> ml_numbers(NodeContext& n, const std::string& name) {
  if (const AttributeProto* a = n.attr(name + "_as_tensor"); a && a->t) {
    const Array array = to_array(*a->t, nullptr, "");
    std::vector<double> values;
    for (int64_t i = 0; i < array.count(); ++i) values.push_back(array.get_f64(i));
    return values;
  }
  const std::vector<float> values = n.attr_floats(name);
  return {values.begin(), values.end()};
}

namespace {

template <typename T>
const T& at(NodeContext& n, const std::vector<T>& list, int64_t i, const char* what) {
  if (i < 0 || i >= static_cast<int64_t>(list.size()))
    n.bad(what, "0 to " + std::to_string(static_cast<int64_t>(list.size()) - 1), std::to_string(i));
  return list[static_cast<size_t>(i)];
}

Mode mode_of(NodeContext& n, const std::string& name) {
  static const std::map<std::string, Mode> names = {
      {"BRANCH_LEQ", kLe}, {"BRANCH_LT", kLt},  {"BRANCH_GTE", kGe}, {"BRANCH_GT", kGt},
      {"BRANCH_EQ", kEq},  {"BRANCH_NEQ", kNe}, {"LEAF", kLeaf}};
  const auto found = names.find(name);
  if (found == names.end()) n.bad("nodes_modes", "BRANCH_LEQ and the like, or LEAF", name);
  return found->second;
}

class ForestReader {
 public:
  ForestReader(NodeContext& n, const std::string& leaf) : n_(n), leaf_(leaf) {}

  Forest read(int64_t targets) {
    forest_.targets = targets;
    read_nodes();
    read_weights();
    std::map<int64_t, int64_t> roots;  // by tree: its first node without a parent
    for (size_t i = forest_.nodes.size(); i-- > 0;)
      if (!children_.count(static_cast<int64_t>(i))) roots[trees_[i]] = static_cast<int64_t>(i);
    for (const int64_t tree : trees_)
      if (!roots.count(tree)) n_.bad("tree " + std::to_string(tree), "a root", "a circle");
    for (const auto& [tree, root] : roots) forest_.roots.push_back(root);
    return std::move(forest_);
  }

 private:
  int64_t place(int64_t tree, int64_t node) {
    const auto found = places_.find({tree, node});
    if (found == places_.end())
      n_.bad("a node of tree " + std::to_string(tree), "one of nodes_nodeids", std::to_string(node));
    return found->second;
  }

  int64_t child(int64_t tree, int64_t node) {
    const int64_t at = place(tree, node);
    if (!children_.insert(at).second)
      n_.bad("nodes of tree " + std::to_string(tree), "one parent each", "two of " + std::to_string(node));
    return at;
  }

  void read_nodes() {
    n_.ignore("nodes_hitrates");
    n_.ignore("nodes_hitrates_as_tensor");
    trees_ = n_.attr_ints("nodes_treeids");
    const Ints ids = n_.attr_ints("nodes_nodeids"), features = n_.attr_ints("nodes_featureids"),
               yes = n_.attr_ints("nodes_truenodeids"), no = n_.attr_ints("nodes_falsenodeids"),
               tracks = n_.attr_ints("nodes_missing_value_tracks_true");
    const std::vector<double> splits = ml_numbers(n_, "nodes_values");
    const AttributeProto* modes = n_.attr("nodes_modes");
    const size_t count = ids.size();
    for (const size_t size : {trees_.size(), features.size(), yes.size(), no.size(), splits.size(),
                              modes ? modes->strings.size() : 0, tracks.empty() ? count : tracks.size()})
      if (size != count || count == 0)
        n_.bad("the attributes nodes_…", "as many of each, and some", std::to_string(size));
    for (size_t i = 0; i < count; ++i)
      if (!places_.emplace(std::pair{trees_[i], ids[i]}, static_cast<int64_t>(i)).second)
        n_.bad("nodes_nodeids", "each once in a tree", std::to_string(ids[i]));
    for (size_t i = 0; i < count; ++i) {
      TreeNode node{features[i], mode_of(n_, modes->strings[i]), static_cast<int64_t>(i),
                    static_cast<int64_t>(i)};
      node.split = splits[i];
      node.nan_is_yes = !tracks.empty() && tracks[i] != 0;
      if (node.mode != kLeaf) {
        node.yes = child(trees_[i], yes[i]);
        node.no = child(trees_[i], no[i]);
      }
      forest_.nodes.push_back(std::move(node));
    }
  }

  void read_weights() {
    const Ints trees = n_.attr_ints(leaf_ + "_treeids"), ids = n_.attr_ints(leaf_ + "_nodeids"),
               targets = n_.attr_ints(leaf_ + "_ids");
    const std::vector<double> weights = ml_numbers(n_, leaf_ + "_weights");
    if (ids.size() != trees.size() || targets.size() != trees.size() || weights.size() != trees.size())
      n_.bad("the attributes " + leaf_ + "_…", "as many of each", "else");
    for (size_t i = 0; i < trees.size(); ++i) {
      if (targets[i] < 0 || targets[i] >= forest_.targets)
        n_.bad(leaf_ + "_ids", "0 to " + std::to_string(forest_.targets - 1), std::to_string(targets[i]));
      forest_.nodes[static_cast<size_t>(place(trees[i], ids[i]))].weights.emplace_back(targets[i],
                                                                                       weights[i]);
    }
  }

  NodeContext& n_;
  const std::string leaf_;
  Forest forest_;
  Ints trees_;                                             // of each node
  std::map<std::pair<int64_t, int64_t>, int64_t> places_;  // of (tree, node)
  std::set<int64_t> children_;
};

std::vector<double> tensor_numbers(NodeContext& n, const char* name) {
  const AttributeProto* a = n.attr(name);
  if (a == nullptr || !a->t) return {};
  const Array array = to_array(*a->t, nullptr, "");
  std::vector<double> values;
  for (int64_t i = 0; i < array.count(); ++i) values.push_back(array.get_f64(i));
  return values;
}

}  // namespace

Forest read_forest(NodeContext& n, const std::string& leaf, int64_t targets) {
  return ForestReader(n, leaf).read(targets);
}

Forest read_tree_ensemble(NodeContext& n) {
  Forest forest;
  forest.targets = n.attr_int("n_targets", 1);
  forest.roots = n.attr_ints("tree_roots");
  n.ignore("nodes_hitrates");
  const Ints features = n.attr_ints("nodes_featureids"), yes = n.attr_ints("nodes_truenodeids"),
             no = n.attr_ints("nodes_falsenodeids"), yes_leaf = n.attr_ints("nodes_trueleafs"),
             no_leaf = n.attr_ints("nodes_falseleafs"),
             tracks = n.attr_ints("nodes_missing_value_tracks_true"), targets = n.attr_ints("leaf_targetids");
  const std::vector<double> modes = tensor_numbers(n, "nodes_modes"),
                            splits = tensor_numbers(n, "nodes_splits"),
                            weights = tensor_numbers(n, "leaf_weights"),
                            members = tensor_numbers(n, "membership_values");
  const size_t inner = features.size();
  for (const size_t size : {yes.size(), no.size(), yes_leaf.size(), no_leaf.size(), modes.size(),
                            splits.size(), tracks.empty() ? inner : tracks.size()})
    if (size != inner)
      n.bad("the attributes nodes_…", std::to_string(inner) + " of each", std::to_string(size));
  if (targets.size() != weights.size())
    n.bad("leaf_weights", "one for each leaf", std::to_string(weights.size()));
  const auto child = [&](int64_t id, bool leaf) {
    const auto count = static_cast<int64_t>(leaf ? weights.size() : inner);
    if (id < 0 || id >= count) n.bad("a child", "0 to " + std::to_string(count - 1), std::to_string(id));
    return leaf ? id + static_cast<int64_t>(inner) : id;
  };
  auto member = members.begin();
  for (size_t i = 0; i < inner; ++i) {
    TreeNode node{features[i], static_cast<int64_t>(modes[i]), child(yes[i], yes_leaf[i] != 0),
                  child(no[i], no_leaf[i] != 0)};
    if (node.mode < kLe || node.mode > kMember) n.bad("nodes_modes", "0 to 6", std::to_string(node.mode));
    node.split = splits[i];
    node.nan_is_yes = !tracks.empty() && tracks[i] != 0;
    if (node.mode == kMember) {
      const auto end = std::find_if(member, members.end(), [](double v) { return std::isnan(v); });
      node.members.assign(member, end);
      member = end == members.end() ? end : end + 1;
    }
    forest.nodes.push_back(std::move(node));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto self = static_cast<int64_t>(inner + i);
    TreeNode leaf{0, kLeaf, self, self};
    if (targets[i] < 0 || targets[i] >= forest.targets)
      n.bad("leaf_targetids", "0 to " + std::to_string(forest.targets - 1), std::to_string(targets[i]));
    leaf.weights.emplace_back(targets[i], weights[i]);
    forest.nodes.push_back(std::move(leaf));
  }
  for (const int64_t root : forest.roots) at(n, forest.nodes, root, "tree_roots");
  return forest;
}

}  // namespace aicf::onnx
