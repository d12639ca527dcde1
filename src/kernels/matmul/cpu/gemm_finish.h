// Which epilogues the micro-kernels of contractions do themselves.
#pragma once

#include <optional>

#include "kernels/matmul/cpu/gemm_types.h"
#include "kernels/tile/cpu/tile_chain.h"

namespace aicf {

// The chain over finished sums of `columns` columns as a GemmFinish: its operations are among scale, shift,
// residual, lower and upper bound, each at most once and in this order. `bias`, null or of each column, is
// added before them.
std::optional<GemmFinish> gemm_finish_of(const TileChain& chain, const float* bias, int64_t columns);

}  // namespace aicf
