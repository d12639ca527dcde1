// What an ensemble of trees of ai.onnx.ml asks and answers, read from any of the forms that a file gives it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

// What a node asks.
enum Mode : int64_t { kLe, kLt, kGe, kGt, kEq, kNe, kMember, kLeaf };  // as TreeEnsemble numbers them

struct TreeNode {
  int64_t feature = 0, mode = kLeaf, yes = 0, no = 0;  // children by their index
  double split = 0;
  bool nan_is_yes = false;
  std::vector<double> members{};                      // of kMember
  std::vector<std::pair<int64_t, double>> weights{};  // of a leaf: target and what is added to it
};

struct Forest {
  std::vector<TreeNode> nodes;
  Ints roots;
  int64_t targets = 0;
};

// Numbers of an attribute, which newer versions may give as a tensor of another type.
std::vector<double> ml_numbers(NodeContext& n, const std::string& name);
// Of TreeEnsembleRegressor and TreeEnsembleClassifier: nodes are numbered within their tree, and `leaf`
// begins the names of the attributes that give leaves their weights ("target" or "class").
Forest read_forest(NodeContext& n, const std::string& leaf, int64_t targets);
// Of TreeEnsemble: inner nodes and leaves are lists of their own in the file.
Forest read_tree_ensemble(NodeContext& n);

}  // namespace aicf::onnx
