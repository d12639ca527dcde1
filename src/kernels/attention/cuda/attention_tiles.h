// What the choice of a tile (attention_tiles.cc) and the text for it (attention_cuda.cc) both know of shared
// memory, as the .cuh lay it out.
#pragma once

#include "kernels/attention/cuda/attention_cuda.h"
#include "kernels/attention/cuda/attention_text.h"

namespace aicf {

// Whether all rows of a tile have the same mask; with split keys they are rows of several heads.
bool mask_is_per_key(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way);
// Columns of a row of short.cuh.
int64_t short_width(const AttentionSizes& sizes);
// Columns of a row that units of 16 work on.
int64_t padded_columns(int64_t columns);
// Of a block; `stages`: of kSplit.
int64_t attention_shared_bytes(const CudaProblem& problem, const AttentionSizes& sizes,
                               const AttentionWay& way, int stages = 1);

}  // namespace aicf
