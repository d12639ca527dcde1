// A coarse estimate of a call's time from its bytes, its arithmetic and the edge of its node, for candidates
// whose rows have no estimate of their own. It ranks nothing across rows; it lets people compare.
#pragma once

#include <vector>

#include "kernels/common/cuda_kernel.h"
#include "kernels/common/work.h"
#include "select/kernel_call.h"
#include "target/target.h"

namespace aicf {

// Of a kernel, beside the edge of its node, its bytes and its arithmetic.
inline constexpr double kStartMicroseconds = 1;

// At the upper ends of the ranges.
std::vector<TensorArg> args_of(const std::vector<Window>& windows, const SymbolRanges& ranges);
// Of the call by this kernel, at the upper ends of the ranges.
Work largest_work(const KernelCall& call, std::string_view kernel, const SymbolRanges& ranges);
// At the upper ends of the ranges.
double estimate_microseconds(const KernelCall& call, std::string_view kernel, const Target& target,
                             const SymbolRanges& ranges);

// The ways of a CUDA row (cuda_variants) with estimates for the target. A row counts the cycles of the
// machine that its choice was fitted to; of what another machine can do at most, the row is taken to reach
// the same part.
std::vector<KernelVariant> estimated_ways(const CudaKernel& kernel, const CudaProblem& problem,
                                          const KernelCall& call, const Target& target,
                                          const SymbolRanges& ranges);

// What a kernel on these units cannot take less than for the work, on the machine that the facts are of: its
// bytes at the memory's rate, or its arithmetic at the rate of the units for the dtype of its first operand.
// Products of f32 on matrix units are those of tf32, at half the rate of halves.
double least_microseconds(const Work& work, Units units, DType x, const TargetFacts& facts);

}  // namespace aicf
