// The program of a product that does in its epilogue what a region does with its results.
#pragma once

#include <vector>

#include "calls/decision.h"
#include "kernels/tile_program.h"

namespace aicf {

// One program for `second`, whose input `middle` is output `from` of `first`: the inputs of `first`, then the
// others of `second`; the outputs of `first` that are kept, then those of `second`. `first` has one stage.
TileProgram joined_program(const TileProgram& first, size_t from, const std::vector<bool>& kept,
                           const TileProgram& second, size_t middle);

// Whether the programs of a product and of what reads its result `from`, a half, fit into one with so many
// operands.
Decision can_join(const TileProgram& first, size_t from, const TileProgram& second, size_t operands);

// Whether an element depends on nothing but the operands' elements, as epilogues see them.
bool has_elements_alone(const TileProgram& program);

// The program with input `from` as input `to`, before it; the others keep their order.
TileProgram with_input_at(TileProgram program, size_t from, size_t to);

}  // namespace aicf
