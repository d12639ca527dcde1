// Facts about tile operations that the checker, the printer and prepare() share; all from tile_ops.def and
// the rules in tile_program.h.
#pragma once

#include <string_view>

#include "kernels/tile_program.h"

namespace aicf {

inline constexpr int kMaxTileScalars = 128;
inline constexpr int kMaxTileStages = 64;

struct TileOpInfo {
  std::string_view name;
  int arity;
  std::string_view types;  // letters of the TileTypes it computes in
};
const TileOpInfo& tile_op_info(TileOp op);

TileType tile_result_type(const TileInstr& instr);
// The type that elements of a dtype have in registers; loads give exactly this one.
TileType tile_register_type(DType dtype);
bool tile_type_loads(DType dtype, TileType type);
// As loads, and f64 is also stored to narrower floats with one rounding.
bool tile_type_stores(TileType type, DType dtype);

inline bool is_tile_reduction(TileOp op) { return op >= TileOp::reduce_sum && op <= TileOp::reduce_min; }
inline int tile_type_bytes(TileType type) { return type == TileType::f64 || type == TileType::i64 ? 8 : 4; }

}  // namespace aicf
