// Convolutions whose windows the copy engine of sm_90 reads by itself (conv_tma.cuh).
#pragma once

#include "kernels/common/cuda_kernel.h"
#include "kernels/conv/cuda/windows_cuda.h"

namespace aicf {

// Whether it can: channels last in x and in the weights, about a multiple of 128 bytes of them, one group,
// one or two spatial axes of constant sizes; in tf32 weights that lie rounded.
bool conv_tma_fits(const CudaProblem& problem, const CudaWindowAxes& axes);
// Its ways, the fastest first. `epilogue`: as the problem, with the windows from operand 2 on as [N,
// spatial…, M], and with its program.
std::vector<KernelVariant> conv_tma_variants(const CudaProblem& problem, const CudaWindowAxes& axes,
                                             const CudaProblem& epilogue);
CudaCode conv_tma_code(const CudaProblem& problem, const CudaWindowAxes& axes, const CudaProblem& epilogue);

}  // namespace aicf
