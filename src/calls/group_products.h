// What others know of the calls that group_products makes: several products as members of one.
#pragma once

#include "calls/call_code.h"
#include "select/call_program.h"

namespace aicf {

// Whether join_sums has given a member the sums of its x, as its last result; and its problem without them.
bool has_sums(const KernelCall& member, const std::vector<TileProgram>& programs);
CudaProblem product_of(const KernelCall& member, const CodeContext& context);

// Whether the arguments of a call of so many products, with so many operands more, are as few as a kernel
// takes.
bool arguments_fit(const KernelCall& group, size_t products, size_t more = 0);

}  // namespace aicf
