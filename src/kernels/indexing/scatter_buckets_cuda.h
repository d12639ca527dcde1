// A scatter of many lines with indices of their own, by buckets of targets (indexing/scatter_buckets.cuh).
#pragma once

#include <optional>
#include <string>

#include "kernels/common/cuda_walk.h"
#include "kernels/indexing/reduction.h"

namespace aicf {

// How the updates of scatter_elements reach their targets by way of buckets.
struct BucketScatter {
  CudaWalk lines{4};                                  // indices, updates, output, x
  Dim updates, targets;                               // of a line
  int64_t bits = 0;                                   // of a target within its bucket
  int64_t lines_per_block = 0, buckets_per_line = 0;  // that a block counts; the second at most
  int64_t tile = 0;                                   // updates of a line that a block places
  bool across = false;                                // neighbouring lines lie together in memory
  bool covers = false;                                // lines reach every element of the output

  Dim tiles() const { return ceildiv(updates, Dim(tile)); }
  Dim buckets() const { return ceildiv(targets, Dim(int64_t{1} << bits)); }
  Dim line_groups() const { return ceildiv(lines.count(), Dim(lines_per_block)); }
};

// Its lines, updates and targets alone.
BucketScatter bucket_lines(const CudaProblem& problem, size_t axis);
// Text that defines the type I and a BucketLines `s`, for kernels of so many threads. `from_out`: x is a copy
// in the output already.
std::string bucket_lines_text(const CudaProblem& problem, const BucketScatter& scatter, size_t axis,
                              bool from_out, const Dim& threads, CudaParams& params);

// None where lines or targets are too few or too many for it, or updates come to few targets of many.
std::optional<BucketScatter> bucket_scatter(const CudaProblem& problem, size_t axis);

CudaCode bucket_scatter_code(const CudaProblem& problem, size_t axis, const BucketScatter& scatter,
                             ScatterReduction reduction, const std::string& type);

}  // namespace aicf
