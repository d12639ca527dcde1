// The code of a fused region: a small register program that the CPU runs over tiles in the L1 cache and that
// the text of CUDA kernels is written from. select/ makes it from a region, the artifact carries it.
// Untrusted when read from a file: check_tile_program must have accepted it before it runs.
//
// Iteration domain: outer × inner. The inner space is walked in chunks of at most kTileChunk elements;
// instructions of a stage run in order on every chunk. A stage's reductions are complete when its last chunk
// is done, and later stages read them as row scalars. A region without reductions has one stage. An
// instruction whose dst is a row scalar and which is not a reduction (epsilon added to a variance, its rsqrt)
// has only row scalars as operands, or is a constant or a load of the outer index, and runs once per row, in
// order, before the first chunk of its stage.
//
// Register classes (TileType): f32, f64, i32, i64, and mask (int32 0 or 1). f16 and bf16 are loaded to f32,
// i16, i8, u8 to i32; a `round_*` (or the store), a `wrap_*` instruction follows arithmetic
// that may leave their values. Accumulation: reductions put element i of the flattened inner space in virtual
// lane i mod kTileLanes and combine lanes pairwise (lane l with l + n/2, n = kTileLanes, …, 2) at the end of
// the row, so the bits depend only on length and type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace aicf {

inline constexpr int64_t kTileChunk =
    512;  // elements: at 4 bytes and 8 live registers half of a 32 KiB L1 cache
inline constexpr int kTileLanes = 16;
inline constexpr int kMaxTileRegisters = 64;
inline constexpr int kMaxTileOperands = 24;

enum class TileType : uint8_t { f32, f64, i32, i64, mask };

// Names equal those of ops.def where an op is meant, so that select/ maps them by name.
enum class TileOp : uint16_t {
#define AICF_TILE_OP(name, arity, types) name,
#include "kernels/common/tile_ops.def"
#undef AICF_TILE_OP
};

// A row of tile_ops.def.
struct TileOpInfo {
  std::string_view name;
  int arity;
  std::string_view types;  // letters of the TileTypes it computes in
};
const TileOpInfo& tile_op_info(TileOp op);
std::optional<TileOp> find_tile_op(std::string_view name);
// More than a few instructions for each result.
inline bool is_tile_function(TileOp op) {
  return (op >= TileOp::exp && op <= TileOp::erf) || op == TileOp::pow || op == TileOp::sigmoid ||
         op == TileOp::gelu || op == TileOp::gelu_tanh;
}

std::string_view tile_type_name(TileType type);  // "f32", "mask"
std::optional<TileType> tile_type_from_name(std::string_view name);
char tile_type_letter(TileType type);  // as in tile_ops.def
// The type that elements of a dtype have in registers.
TileType tile_register_type(DType dtype);

struct TileInstr {
  TileOp op;
  TileType type;  // class in which the operation computes (for comparisons and casts: that of operand a)
  int16_t dst =
      -1;  // register; >= kTileScalarBase: row scalar (reductions, and scalar instructions as above)
  int16_t a = -1, b = -1, c = -1;  // registers; >= kTileScalarBase: row scalar number (x - kTileScalarBase)
  int16_t operand = -1;            // load, store: tensor operand number
  double imm_f = 0;                // constants of float type
  int64_t imm_i = 0;  // constants of integer type; flags of is_inf (bit 0 positive, bit 1 negative)
  bool operator==(const TileInstr&) const = default;
};
inline constexpr int16_t kTileScalarBase = 1024;

// A register whose value is read in a later stage than it is written keeps the whole row; others keep one
// chunk.
struct TileRegister {
  TileType type;
  bool row = false;
  bool operator==(const TileRegister&) const = default;
};

struct TileProgram {
  std::vector<DType> inputs, outputs;  // element types in memory; operand numbers count inputs first
  std::vector<TileRegister> registers;
  std::vector<TileType> scalars;  // row scalars
  std::vector<std::vector<TileInstr>> stages;
  bool operator==(const TileProgram&) const = default;
};

// Whether some result is a sum over all rows.
bool sums_rows(const TileProgram& program);

std::string to_string(const TileProgram& program);
// bad_artifact if any register, scalar, operand, type or stage order is out of bounds or read before it is
// written.
void check_tile_program(const TileProgram& program);

}  // namespace aicf
