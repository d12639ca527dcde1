// A chain of f32 operations over rows, each of one running value and at most one operand: what most epilogues
// are (scale, shift, residual, activation). The running values stay in vector registers from the first
// operation to the store. Compiled once per ISA level; the bits are those of the single operations in
// tile_functions.h.
#pragma once

#include <stdint.h>

#include "kernels/common/isa.h"

namespace aicf {

// From kChainExp on without an operand.
enum TileChainOp : int32_t {
  kChainAdd,
  kChainSub,
  kChainMul,
  kChainMax,
  kChainMin,
  kChainDiv,
  kChainExp,
  kChainLog,
  kChainTanh,
  kChainSigmoid,
  kChainGelu,
  kChainGeluTanh,
  kChainSqrt,
  kChainRsqrt,
  kChainNeg
};

constexpr int kMaxChainSteps = 8;

struct TileChainStep {
  TileChainOp op;
  int32_t reversed;  // operand op value instead of value op operand
  const float* operand;
  int64_t row_stride;  // of the operand, in elements
};

struct TileChain {
  const float* x;
  float* out;
  int64_t x_stride, out_stride;  // between rows, in elements
  int32_t count;
  TileChainStep steps[kMaxChainSteps];
};

// out[row][i] = the chain over x[row][i], i < n; x, operands and out may be the same memory.
using TileChainFunction = void (*)(const TileChain& chain, int64_t rows, int64_t n);

AICF_DECLARE_PER_ISA(TileChainFunction tile_chain_function())

}  // namespace aicf
