// Attention with the product that makes its queries, keys and values in one kernel (projected.cuh): which
// calls can run so, and for how long.
#pragma once

#include "kernels/common/cuda_kernel.h"

namespace aicf {

// Params of the row matmul_attention, in order.
enum class ProjectedParam { causal, has_mask, has_bias, q_column, k_column, v_column };

// Whether the row can run the problem: x [batch · 128, K], y [K, N] with rows along N, a bias [N] or none, a
// mask as attention's or none; the result [batch, heads, 128, depth], depth 32 or 64, an even number of heads
// for 32. Columns are those where q, k and v of head 0 begin; each head's follow the ones of the head before.
bool fits_projected_attention(const CudaProblem& problem);
// On an H100.
double projected_attention_microseconds(const CudaProblem& problem);

}  // namespace aicf
