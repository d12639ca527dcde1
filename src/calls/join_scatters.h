// Which pointwise regions add up rows themselves where a scatter would put their sums into memory first (the
// gradient of an embedding before its update), on a GPU. Takes the selected calls of a graph and the programs
// of their regions, which stay as they are; one call of the kernel tile_scattered takes the place of two,
// with the same bits and errors.
#pragma once

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinScatters[] = "join_scatters";

void join_scatters(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
