// Sums of a scatter of many lines with indices of their own that have one result in whatever order updates
// come (indexing/scatter_exact.cuh).
#pragma once

#include "kernels/indexing/scatter_buckets_cuda.h"

namespace aicf {

// None where updates are too few, or too many for one place, or places too many. The dtype is f16, bf16 or
// f32.
std::optional<BucketScatter> exact_sums(const CudaProblem& problem, size_t axis);

CudaCode exact_sums_code(const CudaProblem& problem, size_t axis, const BucketScatter& scatter);

}  // namespace aicf
