// Delta debugging of a model that fails validation: the fewest nodes found that still fail in the same way.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/array.h"

namespace aicf::cli {

struct Reduction {
  std::string model;                    // ONNX bytes
  std::map<std::string, Array> inputs;  // with which it fails
  size_t nodes = 0, nodes_before = 0;
  std::string outcome;  // how it fails
};

// "" if the model passes, else how it fails: "mismatch" or an error's code.
using Judge =
    std::function<std::string(const std::string& model, const std::map<std::string, Array>& inputs)>;

// `inputs`: of the whole model. bad_option if the whole model does not fail. `progress` gets the nodes left.
Reduction reduce_model(const std::string& path, const std::map<std::string, Array>& inputs,
                       const Judge& judge, const std::function<void(size_t left, size_t of)>& progress);

}  // namespace aicf::cli
