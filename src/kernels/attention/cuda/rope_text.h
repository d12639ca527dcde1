// Text of a call of rope_append.cuh, for its own kernel and for attention that takes it in.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_text.h"

namespace aicf {

inline constexpr size_t kRopePosition = 7;  // of the operands: where the step's row goes

// "<unit, pairs, depth, value depth, interleaved>"
std::string rope_sizes_text(const CudaProblem& problem);
// Defines `o`, a RopeAppend, from the names of its operands.
std::string rope_operands_text(const CudaProblem& problem, const std::vector<std::string>& in,
                               const std::vector<std::string>& out, CudaParams& params);

}  // namespace aicf
