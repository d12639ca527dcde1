// What a CUDA contraction takes, in clock cycles of an H100: the estimate that orders the configurations of
// matmul_ways.h.
#pragma once

#include "kernels/matmul/cuda/matmul_ways.h"

namespace aicf {

// Those that have blocks of such clusters: of three and more some of a processing cluster stay idle, one of
// three takes the places of four.
int64_t used_multiprocessors(const MatmulWay& way, const CudaMachine& machine);
// Blocks that the machine runs at a time.
int64_t concurrent_blocks(const MatmulWay& way, const CudaMachine& machine);

// Of one multiprocessor.
double matmul_cycles(const MatmulSizes& sizes, const MatmulWay& way);
// And of an epilogue that moves so many bytes for each result, beyond the result itself: it is behind the
// next tile's products where other warps store than multiply, as far as these take as long.
double matmul_epilogue_cycles(const MatmulSizes& sizes, const MatmulWay& way, int bytes);
// And of warps that wait so often in each tile for what the epilogue reads (wgmma_operand_waits): of
// warpgroups in ping-pong behind the other's products, as far as these take as long.
double matmul_operand_cycles(const MatmulSizes& sizes, const MatmulWay& way, double waits);
// With an epilogue that reduces whole rows so often (row_epilogue.cuh).
double matmul_row_cycles(const MatmulSizes& sizes, const MatmulWay& way, int reductions);

}  // namespace aicf
