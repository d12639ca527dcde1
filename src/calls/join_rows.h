// Which regions over rows become the end of the product before them, on a GPU with clusters. Takes the
// selected calls of a graph and the programs of their regions; where a product and a region that reduces rows
// of its results take less time as one kernel (matmul_rows), one call takes the place of both, and their
// joined program stands at the end of `programs`. Graph and regions stay as they are.
#pragma once

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinRows[] = "join_rows";

// A choice of `options` that names a product decides over it: one of its own kernels keeps it apart,
// matmul_rows joins it whatever the estimates say.
void join_rows(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
