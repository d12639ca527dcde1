// Which products of one shape share a launch on a GPU (kernels/matmul/cuda/grouped.cuh). Takes the selected
// calls of a graph and the programs of their regions. A product's tiles rarely fill the last round of the
// multiprocessors; several products of the same sizes, strides and plain results, the gradients of the
// weights of equal layers for one, fill all rounds but one, and none has to split its K. One call with them
// as members stands where the last of them stood, unless values that then wait for it take more memory.
#pragma once

#include "calls/call_code.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kGroupProducts[] = "group_products";

void group_products(CallGraph& calls, const Target& target, const SelectOptions& options);

// Whether join_sums has given a member the sums of its x, as its last result; and its problem without them.
bool has_sums(const KernelCall& member, const std::vector<TileProgram>& programs);
CudaProblem product_of(const KernelCall& member, const CodeContext& context);

// Whether the arguments of a call of so many products, with so many operands more, are as few as a kernel
// takes.
bool arguments_fit(const KernelCall& group, size_t products, size_t more = 0);

}  // namespace aicf
