// Convolution on matrix units with a given configuration, for the tuner; the row conv_mma chooses one itself.
#pragma once

#include <optional>
#include <vector>

#include "kernels/cuda_kernel.h"
#include "kernels/matmul/cuda/matmul_cuda_config.h"

namespace aicf {

// Tiles that convolutions have on an architecture, unsplit.
std::vector<MatmulConfig> conv_tiles(int arch);
// The tile and split for a contraction of these sizes.
MatmulConfig choose_conv(const MatmulSizes& sizes, int arch);

// `config`: one of conv_tiles, perhaps split; none: the cheapest by estimate.
CudaCode conv_mma_code(const CudaProblem& problem, const std::optional<MatmulConfig>& config);

}  // namespace aicf
