// Convolutions of which the copy engine of sm_90 brings boxes with their halo, once for all taps
// (conv_halo_tma.cuh).
#pragma once

#include "kernels/common/cuda_kernel.h"
#include "kernels/conv/cuda/windows_cuda.h"

namespace aicf {

// Whether it can: as copies_boxes() in conv_tma_cuda.h says, in tf32 as conv_tma_fits(), and windows of
// several taps, without strides or without dilation.
bool conv_halo_tma_fits(const CudaProblem& problem, const CudaWindowAxes& axes);
// As those of conv_tma_cuda.h.
std::vector<KernelVariant> conv_halo_tma_variants(const CudaProblem& problem, const CudaWindowAxes& axes,
                                                  const CudaProblem& epilogue);
CudaCode conv_halo_tma_code(const CudaProblem& problem, const CudaWindowAxes& axes,
                            const CudaProblem& epilogue);

}  // namespace aicf
