// Facts about tile operations that the checker, the printer and prepare() share; all from tile_ops.def and
// the rules in tile_program.h.
#pragma once

#include "kernels/common/tile_program.h"

namespace aicf {

inline constexpr int kMaxTileScalars = 128;
inline constexpr int kMaxTileStages = 64;

TileType tile_result_type(const TileInstr& instr);
// A load gives exactly the dtype's register type.
bool tile_type_loads(DType dtype, TileType type);
// As loads, and f64 is also stored to narrower floats with one rounding.
bool tile_type_stores(TileType type, DType dtype);

inline bool is_tile_reduction(TileOp op) { return op >= TileOp::reduce_sum && op <= TileOp::reduce_min; }
inline int tile_type_bytes(TileType type) { return type == TileType::f64 || type == TileType::i64 ? 8 : 4; }

}  // namespace aicf
