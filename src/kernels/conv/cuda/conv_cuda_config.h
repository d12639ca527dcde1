// How convolutions on matrix units are cut into tiles.
#pragma once

#include "kernels/matmul/cuda/matmul_cuda_config.h"

namespace aicf {

struct ConvConfig {
  MatmulConfig config;
  double microseconds = 0;  // estimated for an H100
};
// Tiles and splits for a contraction of these sizes whose operands are gathered, the best first.
std::vector<ConvConfig> gathered_configs(const MatmulSizes& sizes, int arch);
// Those of conv_tma.cuh.
std::vector<ConvConfig> boxed_configs(const MatmulSizes& sizes, int arch);

}  // namespace aicf
