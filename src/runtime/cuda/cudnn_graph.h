// A step's call of cuDNN as the library's operation graph: tensors by number, operations between them, of
// which the library makes one kernel or a few. Takes what kernels/common/cudnn_call.h found that it can take.
#pragma once

#include <map>
#include <vector>

#include "kernels/common/cudnn_call.h"
#include "runtime/cuda/cudnn_api.h"

namespace aicf::cuda::cudnn {

// Where the address of a tensor of the graph comes from when it runs.
struct GraphOperand {
  enum class Kind { kInput, kOutput, kValue } kind;
  int number = 0;   // of the input or output
  float value = 0;  // kValue: a number that the host hands over
};

struct OperationGraph {
  Descriptor graph;
  std::map<int64_t, GraphOperand> operands;  // by the tensor's number
  // What the graph is made of; the library keeps no copies.
  std::vector<Descriptor> parts, operations;
};

// In the current context. EnvironmentError if the library refuses the graph; nothing if it cannot take the
// step.
std::optional<OperationGraph> operation_graph(const CudnnCall& call, const BoundCall& step);

}  // namespace aicf::cuda::cudnn
