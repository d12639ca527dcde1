// Contractions on CUDA: from a problem with symbolic windows to text and launches. The rows of
// cuda_kernels.def choose the configuration by matmul_cuda_config.h; tests and the tuner may ask for a given
// one.
#pragma once

#include "kernels/cuda_kernel.h"
#include "kernels/matmul/matmul_cuda_config.h"

namespace aicf {

inline constexpr size_t kProductInputs = 2;            // of a contraction, before those of its epilogue
inline constexpr double kCyclesPerMicrosecond = 1700;  // of an H100 under load

// Whether a family can run the problem: its types, and for wgmma strides and architecture.
bool matmul_family_fits(const CudaProblem& problem, MatmulFamily family);
// Sizes to choose by: symbolic ones count with the upper end of their range.
MatmulSizes matmul_sizes(const CudaProblem& problem);
CudaCode matmul_code(const CudaProblem& problem, const MatmulConfig& config);

}  // namespace aicf
