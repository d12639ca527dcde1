// How convolutions on matrix units are cut into tiles.
#pragma once

#include "kernels/matmul/cuda/matmul_ways.h"

namespace aicf {

// Tiles and splits for a contraction of these sizes whose operands are gathered, the best first; of f32, in
// tf32, on mma alone.
std::vector<PricedMatmul> gathered_ways(const MatmulSizes& sizes, int arch);
// Those of conv_tma.cuh.
std::vector<PricedMatmul> tma_ways(const MatmulSizes& sizes, int arch);

}  // namespace aicf
