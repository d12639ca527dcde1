// A call as the rows of the CUDA table see it.
#pragma once

#include "kernels/common/cuda_kernel.h"
#include "select/kernel_call.h"
#include "target/target.h"

namespace aicf {

// Without its program; of several calls that share a launch, the windows alone. `ranges` must outlive the
// problem.
CudaProblem cuda_problem(const KernelCall& call, const Target& target, const SymbolRanges& ranges);

}  // namespace aicf
