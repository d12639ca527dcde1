// A program with values per row, run for many rows at a time: a register holds one inner element of up to
// kTileAcross rows, a row scalar one value for each of them. The right way where rows are short, because a
// step then costs its call for many rows at once, and where rows lie side by side in memory, because their
// elements then need no gathering. Every virtual lane of a reduction is an array over the rows, so the bits
// are those of rows walked one by one.
#pragma once

#include <vector>

#include "kernels/tile/tile_state.h"

namespace aicf {

constexpr int64_t kTileAcross = 128;

// Whether this way is the faster one; `state` has domain and operands.
bool runs_across(const BoundCall& call, const TileState& state);
// Fills begin, slots, tile_rows and stages of `state`, and tiles, scratch_bytes and run of the call; gives
// the steps, whose kinds speak of rows where those of tile_run.cc speak of inner elements.
std::vector<TileStep> prepare_across(BoundCall& call, TileState& state);

}  // namespace aicf
