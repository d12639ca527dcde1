// The program of a product that does in its epilogue what a region does with its results.
#pragma once

#include <vector>

#include "kernels/tile_program.h"

namespace aicf {

// One program for `second`, whose input `middle` is output `from` of `first`: the inputs of `first`, then the
// others of `second`; the outputs of `first` that are kept, then those of `second`. `first` has one stage.
TileProgram joined_program(const TileProgram& first, size_t from, const std::vector<bool>& kept,
                           const TileProgram& second, size_t middle);

}  // namespace aicf
