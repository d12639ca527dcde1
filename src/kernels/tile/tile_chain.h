// A chain of f32 operations over a row, each of one running value and one operand: what most epilogues are
// (scale, shift, residual, activation). The running values stay in vector registers from the first operation
// to the store. Compiled once per ISA level; the bits are those of the single operations in tile_functions.h.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"

namespace aicf {

enum TileChainOp : int32_t { kChainAdd, kChainSub, kChainMul, kChainMax, kChainMin };

struct TileChainStep {
  TileChainOp op;
  int32_t reversed;  // operand op value instead of value op operand
  const float* operand;
};

// out[i] = the chain over x[i]; x, operands and out may be the same memory.
using TileChainFunction = void (*)(const float* x, float* out, int64_t n, const TileChainStep* steps,
                                   int32_t count);

AICF_DECLARE_PER_ISA(TileChainFunction tile_chain_function())

}  // namespace aicf
