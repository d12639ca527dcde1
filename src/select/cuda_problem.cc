#include "select/cuda_problem.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {

Way way_of(const RowCall& row) {
  const std::optional<Way> way = parse_way(row.way);
  AICF_CHECK(way.has_value(), "a call runs in no way of its row: " + row.row + "/" + row.way);
  return *way;
}

CudaProblem cuda_problem(const KernelCall& call, int arch, const SymbolRanges& ranges) {
  CudaProblem problem;
  const auto to_cuda = [](const Window& w) { return CudaWindow{w.dtype, w.offset, w.sizes, w.strides}; };
  for (const Window& w : call.inputs) problem.inputs.push_back(to_cuda(w));
  for (const Window& w : call.outputs) problem.outputs.push_back(to_cuda(w));
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (std::find(call.outputs.begin(), call.outputs.end(), call.inputs[i]) != call.outputs.end())
      problem.replaced.push_back(static_cast<int32_t>(i));
  problem.ranges = &ranges;
  problem.arch = arch;
  if (const RowCall* row = own_row(call)) {
    problem.params = row->params;
    problem.fparams = row->fparams;
    problem.way = way_of(*row);
  }
  return problem;
}

}  // namespace aicf
