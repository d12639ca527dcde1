// A launch that copies an input to an output, shared by the CUDA rows that change a copy.
#pragma once

#include "kernels/common/cuda_walk.h"

namespace aicf {

// The code must include indexing/indexing.cuh.
void add_copy(CudaCode& code, const CudaProblem& problem, size_t input, const std::string& name,
              size_t output = 0);

}  // namespace aicf
