// From an instruction to the function that carries it out at an ISA level, and element copies between
// layouts: what the two ways to run a tile program (whole rows, small rectangles) share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/common/abi.h"
#include "kernels/common/tile_program.h"
#include "kernels/tile/cpu/tile_chain.h"
#include "kernels/tile/cpu/tile_functions.h"
#include "kernels/tile/cpu/tile_state.h"

namespace aicf {

// An arithmetic instruction, not a load, store or reduction. InternalError if it does not exist: the program
// was not checked.
TileFunction tile_compute(IsaLevel isa, const TileInstr& instr);
// TileArgs::imm for it.
int64_t tile_immediate(const TileInstr& instr);
// Of a reduction; InternalError as above.
TileReduction tile_reducer(IsaLevel isa, const TileInstr& instr);
// How many instructions write each register.
std::vector<int> register_writers(const TileProgram& program);
// The instruction's slots, operand and immediate as a step that computes; function and bytes are the
// caller's.
TileStep plain_step(const TileInstr& instr);
// Contiguous elements of memory to a register and back; *identical (may be null): same representation on both
// sides.
TileFunction tile_loader(IsaLevel isa, DType dtype, TileType type, bool* identical);
TileFunction tile_storer(IsaLevel isa, TileType type, DType dtype, bool* identical);

// The same operation as a link of a chain, if it is one.
std::optional<TileChainOp> chain_op(TileOp op);

// n elements of 1, 2, 4 or 8 bytes; strides in bytes, 0 on the source repeats.
void copy_elements(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride, int64_t n,
                   int bytes);

}  // namespace aicf
