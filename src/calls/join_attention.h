// Which attentions take in the product that makes their queries, keys and values, on a GPU whose kernels can
// do so (matmul_attention). Takes the selected calls of a graph and the programs of their regions; where both
// take less time as one kernel, one call takes the place of both.
#pragma once

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinAttention[] = "join_attention";

// A choice of `options` that names the product or the attention decides over it: one of their own kernels
// keeps them apart, matmul_attention joins them whatever the estimates say.
void join_attention(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
