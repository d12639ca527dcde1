// Gradients of attention of half types with wgmma on Hopper (sm_90a), for scores that are a positive scale times the product
// (no mask but the causal one, no softcap). Both launches are persistent: a block takes one tile after another. One warpgroup
// lets the copy engine bring tiles into rings in shared memory, running ahead into the next tile; two multiply in turns. Each
// issues the products of the next scores before it waits for what the last slopes add, so that the matrix units have work
// while it computes weights. Weights and slopes go from accumulators to left operands in registers; the arrangement of
// products follows FlashAttention-3 (Shah et al. 2024), but dq has a launch of its own: it needs no atomics.
//
// Order: of dq, for every row alone, blocks of 128 keys from the last that the tile sees to the first, those of the row's level
// likewise; of dk and dv, for every key alone, blocks of kStep rows from the first that sees the tile, head by head of the
// group. Inside a block steps of 16. `along`: eight columns a lane in order, lanes combined pairwise.
#pragma once

#include "attention/cuda/backward_dkv.cuh"
#include "attention/cuda/backward_dq.cuh"
