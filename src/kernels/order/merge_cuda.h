// Launches that merge sorted tiles of items (order/sort.cuh) into sorted rows, shared by sort and scatter.
#pragma once

#include "kernels/common/cuda_walk.h"

namespace aicf {

// Whether keys and indices of these upper bounds fit a NarrowItem.
bool is_narrow_item(int64_t largest_key, int64_t largest_index);
// Bytes of the two buffers of items, for `rows` rows of `size`; at least one item, so that there is a
// workspace.
Dim sort_buffer_bytes(const Dim& rows, const Dim& size, bool narrow);

// Appends the merge passes: the workspace begins with two buffers of rows · size items, of which the first
// holds rows of sorted tiles of `tile` items. After the last pass the result lies in buffer
// merge_passes(size, tile) % 2. Passes that a smaller size does not need are launches of no blocks.
void add_merges(CudaCode& code, const CudaProblem& problem, const Dim& rows, const Dim& size, int64_t tile,
                bool narrow);

}  // namespace aicf
