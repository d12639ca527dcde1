// The decisions of one matmul step, made at bind: merged axes, tile shape, which operands are copied, scratch
// layout.
#pragma once

#include <cstdint>

#include "kernels/common/abi.h"
#include "kernels/common/kernel.h"

namespace aicf {

struct GemmView {
  int64_t batch[kMaxRank];
  int64_t row, column;
};

// Only int64_t inside: it lives in BoundCall::state. Strides are in elements, scratch offsets in bytes, -1
// where not used.
struct GemmPlan {
  int64_t m, n, k;
  int64_t batch_rank, batch_count;
  int64_t batch[kMaxRank];
  GemmView x, y;  // y: row is k, column is n
  int64_t operands;
  // Of the epilogue, then the outputs; without epilogue the result alone.
  GemmView operand[kMaxTileOperands];
  int64_t row_tile, column_tile, row_tiles, column_tiles;
  int64_t packed;    // y is in panels already
  int64_t direct_y;  // y is read where it lies
  int64_t x_offset, y_offset, c_offset, program_offset;
};

// Fills everything but the tile shape and the scratch; throws bad_artifact if shapes do not fit. The params
// of a packed y, whose tensor has no such shape, are its K and N.
GemmPlan plan_matmul_views(const BoundCall& call, const char* kernel, bool packed);

// The result does not depend on it. Small problems get tiles for a few threads, large ones tiles that keep
// their block of y in the L2 cache.
void choose_matmul_tiles(GemmPlan& plan, int64_t mr, int64_t nr, int element_bytes);

// Part of the result, the work of one call of run.
struct GemmTile {
  int64_t batch[kMaxRank];
  int64_t row, rows, column, columns;
};
// Columns run fastest: the tiles that one worker takes in a row share their rows of x, and two workers halve
// the rows of every step of a model in the same way, so that a worker reads what it wrote.
GemmTile tile_at(const GemmPlan& plan, int64_t index);
// Of element (row, column) of a view at the tile's place in the batch.
int64_t offset_of(const GemmPlan& plan, const GemmView& view, const GemmTile& tile, int64_t row,
                  int64_t column);

// What a kernel for x and y of one dtype can run, by dtypes and ranks.
bool has_matrices(const Problem& problem);
void check_same_dtypes(const BoundCall& call, const char* kernel);

}  // namespace aicf
