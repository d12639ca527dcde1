// Which ops the tile machine computes, by instructions on the CPU and as text on a GPU: the mapping from IR
// ops and dtypes to instructions of tile_ops.def, by name. Selection asks it for claims and code.
#pragma once

#include <string_view>

#include "ir/graph.h"
#include "kernels/common/tile_program.h"

namespace aicf {

// Integers held in a wider register: results of arithmetic must be wrapped.
bool is_narrow_integer(DType dtype);
// The instruction an op maps to by name; gelu has two forms.
std::string_view instruction_name(const Node& node);
// Whether the tile machine has an instruction sequence for this op on these dtypes.
bool tile_claims(const Graph& graph, const Node& node);

}  // namespace aicf
