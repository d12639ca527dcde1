// Which updates of variables are the end of the product that makes their gradient, on a GPU. Takes the calls
// after group_products and the programs of their regions; where one region of single elements alone reads a
// product's results, and writes variables (a param and its moments), the product's epilogue does what that
// region does: the gradient is rounded as it would be stored, but neither stored nor read. One call of kernel
// matmul_group takes the place of a group, or of one product, and of the updates of all its members; their
// joined program stands at the end of `programs`. Graph and regions stay as they are.
#pragma once

#include <vector>

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinUpdates[] = "join_updates";

void join_updates(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
