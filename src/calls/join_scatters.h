// Which pointwise regions add up rows themselves where a scatter would put their sums into memory first (the
// gradient of an embedding before its update), on a GPU. Takes the selected calls of a graph and the programs
// of their regions, which stay as they are; one call of the kernel tile_scattered takes the place of two,
// with the same bits and errors.
#pragma once

#include "kernels/tile_program.h"
#include "select/kernel_call.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinScatters[] = "join_scatters";

void join_scatters(KernelCalls& calls, const Graph& graph, const std::vector<TileProgram>& programs);

}  // namespace aicf
