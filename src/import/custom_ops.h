// ONNX nodes of a domain of the user's own. Who registers an op says which attributes it has and gives the
// attributes of our op `custom` for the types of a node's inputs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace aicf {

struct OnnxCustomOp {
  struct Attribute {
    std::string name;
    bool whole = false;  // an integer
    double absent = 0;   // its value where a node has none
  };
  std::vector<Attribute> attributes;
  // `values` in the order of `attributes`.
  std::function<Attrs(const std::vector<TensorType>& inputs, const std::vector<double>& values)> convert;
};

// For the life of the process; "domain::op_type". The last registration of a name counts.
void register_onnx_op(const std::string& name, OnnxCustomOp op);
const OnnxCustomOp* find_onnx_op(std::string_view domain, std::string_view op_type);

}  // namespace aicf
