// The building blocks of the tile interpreter, one function per (operation, type), compiled once per ISA
// level. Operations and types are passed as the numbers of TileOp, TileType and DType. All arrays of a call
// are at most kTileChunk elements long, need no alignment and may be written in place (dst == a, b or c), but
// not overlap otherwise.
#pragma once

#include <stdint.h>

#include "kernels/common/isa.h"

namespace aicf {

struct TileArgs {
  const void* a;
  const void* b;
  const void* c;
  void* dst;
  int64_t n;
  int64_t imm;  // constant: the value's bits; inner_index: first index; reductions: index of a[0] in the row
};
using TileFunction = void (*)(const TileArgs& args);

// Accumulators of a reduction: lanes of the current block, then lanes of the finished ones. A sum over a long
// row would lose digits in 16 running sums, so every kTileBlock elements the lanes are added to the totals;
// still only the length matters.
constexpr int64_t kTileBlock = 4096;
constexpr int64_t kTileAccumulatorBytes = 2 * 16 * 8;

struct TileReduction {
  TileFunction begin;    // fills the accumulators dst with the neutral element
  TileFunction step;     // accumulators dst take n elements of a; imm is a multiple of 16
  TileFunction end;      // dst[0] = the accumulators a combined
  TileFunction combine;  // dst[i] = dst[i] combined with a[i], for n elements
  int64_t neutral;       // the bits of the neutral element
};

// Null where the operation does not exist for the type.
AICF_DECLARE_PER_ISA(TileFunction tile_float_function(int op, int type))
AICF_DECLARE_PER_ISA(TileFunction tile_integer_function(int op, int type))
AICF_DECLARE_PER_ISA(TileFunction tile_cast_function(int op, int type))
AICF_DECLARE_PER_ISA(TileReduction tile_reduction(int op, int type))
// Contiguous memory elements to register elements and back; *identical where the two have the same
// representation.
AICF_DECLARE_PER_ISA(TileFunction tile_load_function(int dtype, int type, bool* identical))
AICF_DECLARE_PER_ISA(TileFunction tile_store_function(int type, int dtype, bool* identical))

}  // namespace aicf
