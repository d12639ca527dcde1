// How convolutions on matrix units are cut into tiles.
#pragma once

#include "kernels/matmul/cuda/matmul_cuda_config.h"

namespace aicf {

// The tile and split for a contraction of these sizes.
MatmulConfig choose_conv(const MatmulSizes& sizes, int arch);

}  // namespace aicf
