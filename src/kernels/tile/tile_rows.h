// Runs a region program over a small rectangle of its index space that is in cache: the epilogue of a
// contraction or a convolution. The program has one stage and no op that needs whole rows (reductions,
// store_scalar, inner_index), so rows and columns are independent; check_tile_program must have accepted it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/abi.h"
#include "kernels/tile_program.h"

namespace aicf {

// Operand of a rectangle: address of its element (0, 0) and strides in elements; 0 broadcasts. Inputs first,
// then outputs.
struct TileWindow {
  void* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;
};

// Bytes of scratch that run_tile_rows needs, at most; a multiple of 64.
int64_t tile_rows_scratch_bytes(const TileProgram& program);

void run_tile_rows(const TileProgram& program, IsaLevel isa, int64_t rows, int64_t columns,
                   const TileWindow* windows, std::byte* scratch);

}  // namespace aicf
