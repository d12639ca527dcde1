// The decisions of one matmul step, made at bind: merged axes, tile shape, which operands are copied, scratch
// layout.
#pragma once

#include <cstdint>

#include "kernels/abi.h"

namespace aicf {

struct MatmulView {
  int64_t batch[kMaxRank];
  int64_t row, column;
};

// Only int64_t inside: it lives in BoundCall::state. Strides are in elements, scratch offsets in bytes, -1
// where not used.
struct MatmulPlan {
  int64_t m, n, k;
  int64_t batch_rank, batch_count;
  int64_t batch[kMaxRank];
  MatmulView x, y;  // y: row is k, column is n
  int64_t operands;
  MatmulView
      operand[kMaxTileOperands];  // of the epilogue, then the outputs; without epilogue the result alone
  int64_t row_tile, column_tile, row_tiles, column_tiles;
  int64_t packed;    // y is in panels already
  int64_t direct_y;  // y is read where it lies
  int64_t x_offset, y_offset, c_offset, program_offset;
};

// Fills everything but the tile shape and the scratch; throws bad_artifact if shapes do not fit. `y_rank2`
// gives K and N of a packed y, whose tensor has no such shape.
MatmulPlan plan_matmul_views(const BoundCall& call, const char* kernel, bool packed);

// The result does not depend on it. Small problems get tiles for a few threads, large ones tiles that keep
// their block of y in the L2 cache.
void choose_matmul_tiles(MatmulPlan& plan, int64_t mr, int64_t nr, int element_bytes);

}  // namespace aicf
