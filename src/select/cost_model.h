// A coarse estimate of a call's time from its bytes, its arithmetic and the edge of its node, for candidates
// whose rows have no estimate of their own. It ranks nothing across rows; it lets people compare.
#pragma once

#include "kernels/common/work.h"
#include "select/kernel_call.h"
#include "target/target.h"

namespace aicf {

// Of a kernel, beside the edge of its node, its bytes and its arithmetic.
inline constexpr double kStartMicroseconds = 1;

// Of the call by this kernel, at the upper ends of the ranges.
Work largest_work(const KernelCall& call, std::string_view kernel, const SymbolRanges& ranges);
// At the upper ends of the ranges.
double estimate_microseconds(const KernelCall& call, std::string_view kernel, const Target& target,
                             const SymbolRanges& ranges);

// What a kernel on these units cannot take less than for the work, on the machine that the facts are of: its
// bytes at the memory's rate, or its arithmetic at the rate of the units for the dtype of its first operand.
// Products of f32 on matrix units are those of tf32, at half the rate of halves.
double least_microseconds(const Work& work, Units units, DType x, const TargetFacts& facts);

}  // namespace aicf
