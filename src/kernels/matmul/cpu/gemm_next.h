// What micro-kernels fetch ahead of its use: the weights that a worker reads after a tile of packed
// contractions and convolutions, be they of its next tile or of a later call of the sequence.
#pragma once

#include "kernels/common/abi.h"
#include "kernels/matmul/cpu/gemm_types.h"

namespace aicf {

// Of a worker that ends with this tile or goes on to the next one; no pieces: it reads none, or which is
// unknown.
FirstWeights weights_after(const BoundCall& call, int64_t tile);

// Lets the block fetch them, in panels of `nr` columns as its own are.
void fetch_next(const FirstWeights& next, int64_t nr, GemmBlock<float>& block);

}  // namespace aicf
