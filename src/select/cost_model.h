// A coarse estimate of a call's time from its bytes, its arithmetic and the edge of its node, for candidates
// whose rows have no estimate of their own. It ranks nothing across rows; it lets people compare.
#pragma once

#include "kernels/work.h"
#include "select/kernel_call.h"
#include "target/target.h"

namespace aicf {

// Of the call by this kernel, at the upper ends of the ranges.
Work largest_work(const KernelCall& call, std::string_view kernel, const SymbolRanges& ranges);
// At the upper ends of the ranges.
double estimate_microseconds(const KernelCall& call, std::string_view kernel, const Target& target,
                             const SymbolRanges& ranges);

}  // namespace aicf
