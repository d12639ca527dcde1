// Scatters whose updates meet by atomic operations, in any order, with one result.
#pragma once

#include "kernels/indexing/scatter_cuda.h"

namespace aicf {

// By atomic operations on a copy of x.
CudaCode any_order_code(const CudaProblem& problem, ScatterProblem s, ScatterReduction reduction);

}  // namespace aicf
