// Convolutions of which the copy engine of sm_90 brings boxes with their halo, once for all taps
// (conv_halo_tma.cuh).
#pragma once

#include "kernels/common/cuda_kernel.h"
#include "kernels/conv/cuda/conv_problem_cuda.h"

namespace aicf {

// Whether it can: as copies_boxes() in conv_tma_cuda.h says, of f32 as fills_stages(), and planes of windows
// of several taps, without strides or without dilation; of f32 by parts, where no tf32 is asked for, any
// taps. Groups have channels of whole instructions, and whole vectors of maps.
bool conv_halo_tma_fits(const CudaProblem& problem, const ConvProblem& conv);
// Its ways, the fastest first, of a convolution whose epilogue has its program.
std::vector<KernelVariant> conv_halo_tma_variants(const CudaProblem& problem, const ConvProblem& conv);
CudaCode conv_halo_tma_code(const CudaProblem& problem, const ConvProblem& conv);

}  // namespace aicf
