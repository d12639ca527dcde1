// Which calls become the beginning of the one call that reads what they make, on a GPU with clusters. Takes
// the selected calls of a graph and the programs of their regions. Where a region makes the few rows of a
// product (a norm, a gate), every block of the product makes them itself (kernels/matmul/cuda/made_x.cuh);
// where rope_append makes the one query of attention to its cache, every block of attention rotates its heads
// (kernels/attention/cuda/roped.cuh). One call with both as members takes the place of two; graph, regions
// and programs stay as they are.
#pragma once

#include "calls/call_code.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinInputs[] = "join_inputs";

void join_inputs(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
