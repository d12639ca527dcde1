// From a row program to links (tile_links.h): which value runs, where the others come from, what must be put
// aside because something later still reads it.
#pragma once

#include <optional>
#include <vector>

#include "kernels/tile/cpu/tile_state.h"

namespace aicf {

// A link before its addresses are known, as a step: kind kLink, dst the TileLinkKind, a the TileChainOp, b
// whether operands change places, c the slot of a register or row scalar where operand is -1.
struct TileStageLinks {
  std::vector<TileStep> steps;
  std::vector<bool> per_row;  // by instruction: what it gives is one value for the whole row
};

// For every stage; none if the program does what links cannot: other types than f32 and masks, but in values
// of the whole row, operands that stride along a row, more links than fit.
std::optional<std::vector<TileStageLinks>> build_links(const TileProgram& program, const TileState& state);

}  // namespace aicf
