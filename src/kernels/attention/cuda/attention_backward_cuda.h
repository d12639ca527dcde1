// Choosing and writing the CUDA kernels of attention's gradients. The rows of cuda_kernels.def go through
// attention_backward_code; tests may ask for a unit of their own.
#pragma once

#include "kernels/common/cuda_kernel.h"

namespace aicf {

enum class BackwardUnit : uint8_t {
  kSimt,   // any float type, strides, mask
  kWgmma,  // f16, bf16 on sm_90, scores that are a positive scale times the product
};

// The best unit for the problem.
BackwardUnit attention_backward_unit(const CudaProblem& problem);
CudaCode attention_backward_code(const CudaProblem& problem, BackwardUnit unit);

}  // namespace aicf
