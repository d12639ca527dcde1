// Some nodes of an ONNX model as a model of their own: what delta debugging of a failing model needs. Only
// nodes of the main graph can be chosen; those inside bodies and functions come along with their owner.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/array.h"

namespace aicf {

class OnnxCut {
 public:
  // `folder`: of external data, which is put into the cut. bad_model_file.
  OnnxCut(std::string model, std::string folder);
  ~OnnxCut();

  size_t node_count() const;
  std::vector<std::string> input_names() const;  // of the model; initialisers are none
  // Names that nobody but the caller reads: model outputs, and what no node of the choice reads.
  std::vector<std::string> sinks(const std::vector<size_t>& nodes) const;
  std::vector<std::string> made_by(const std::vector<size_t>& nodes) const;

  // The model of these nodes. What they read and do not make comes from `values`: floats become inputs with
  // fixed sizes, the rest becomes constants, because it may decide shapes; names without a value must be
  // initialisers. `outputs` must be made by the nodes. `inputs` gets the names that became inputs.
  std::string make(const std::vector<size_t>& nodes, const std::vector<std::string>& outputs,
                   const std::map<std::string, Array>& values,
                   std::vector<std::string>* inputs = nullptr) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace aicf
