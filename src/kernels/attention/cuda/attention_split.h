// Few rows whose keys are split among blocks (split.cuh): how, by an estimate of cycles.
#pragma once

#include "kernels/attention/cuda/attention_cuda.h"
#include "kernels/attention/cuda/attention_text.h"

namespace aicf {

// Of a block with few rows: keys that it holds at once.
int most_split_keys(const AttentionSizes& sizes);
// Keys that blocks of split rows see, from the tile on in which the first begins: tiles begin where they
// would without a window.
double split_keys(const AttentionSizes& sizes);
// Whether one tile of a block holds all keys.
bool is_single_tile(const AttentionSizes& sizes, const AttentionWay& way);
// The quickest by the estimate.
AttentionWay split_way(const CudaProblem& problem, const AttentionSizes& sizes);
double split_cycles(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way);
// Blocks that share the keys of a tile of rows.
double split_blocks(const AttentionSizes& sizes, const AttentionPlan& plan);
// Blocks of a multiprocessor that the estimate counts on, up to as many as there are.
int split_blocks_held(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionPlan& plan);
// Tiles of each part in the workspace, and as many in flight as fit.
void set_split(AttentionPlan& plan, const CudaProblem& problem, const AttentionSizes& sizes);

}  // namespace aicf
