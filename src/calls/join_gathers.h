// Which regions over rows read rows of a table where a gather would put them first (an embedding before its
// norm), on a GPU. Takes the selected calls of a graph and the programs of their regions, which stay as they
// are; one call of the kernel tile_gathered takes the place of two, with the same bits and errors.
#pragma once

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinGathers[] = "join_gathers";

void join_gathers(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
