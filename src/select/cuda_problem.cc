#include "select/cuda_problem.h"

#include <algorithm>

namespace aicf {

CudaProblem cuda_problem(const KernelCall& call, const Target& target, const SymbolRanges& ranges) {
  CudaProblem problem;
  const auto to_cuda = [](const Window& w) { return CudaWindow{{w}}; };
  for (const Window& w : call.inputs) problem.inputs.push_back(to_cuda(w));
  for (const Window& w : call.outputs) problem.outputs.push_back(to_cuda(w));
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (std::find(call.outputs.begin(), call.outputs.end(), call.inputs[i]) != call.outputs.end())
      problem.replaced.push_back(static_cast<int32_t>(i));
  problem.ranges = &ranges;
  problem.arch = target.arch;
  problem.machine.multiprocessors = target.facts().multiprocessors;
  if (const RowCall* row = own_row(call)) {
    problem.params = row->params;
    problem.fparams = row->fparams;
    problem.way = row->way;
    problem.indexed = row->indexed;
  }
  return problem;
}

}  // namespace aicf
