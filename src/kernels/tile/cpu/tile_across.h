// A program with values per row, run for several rows at a time, in one of two ways. The bits are those of
// rows walked one by one.
//
// Across: a register holds one inner element of up to kTileAcross rows, a row scalar one value for each,
// every virtual lane of a reduction is an array over the rows. For rows that are short, because a step then
// costs its call for many rows at once, and for rows that lie side by side in memory, because their elements
// then need no gathering.
//
// Linked: the elementwise part of a stage is a chain of links over four longer rows (tile_links.h).
#pragma once

#include <optional>
#include <vector>

#include "kernels/tile/cpu/tile_links.h"
#include "kernels/tile/cpu/tile_state.h"

namespace aicf {

constexpr int64_t kTileAcross = 128;

inline int64_t tile_lanes(const TileState& state) {
  return state.inner_count > kTileBlock ? 2 * kTileLanes : kTileLanes;
}
inline int64_t tile_row_stride(const TileState& state, int32_t operand) {
  return state.operands[operand].outer_strides[state.outer_rank - 1];
}
// Elements between the rows of a register that links keep: whole lines, and not the same cache sets.
inline int64_t tile_link_pitch(const TileState& state) { return state.inner_count / 16 * 16 + 48; }

// None if neither way is the faster one. `state` has domain and operands; fills the rest of it, and tiles,
// scratch_bytes and run of the call. The kinds of the steps speak of rows where those of tile_run.cc speak of
// inner elements.
std::optional<std::vector<TileStep>> prepare_across(BoundCall& call, TileState& state);

void run_tile_across(const BoundCall& call, int64_t tile, std::byte* scratch);

}  // namespace aicf
