// Sums of two halves that are rounded to their type: `round_f16(add(x, y))` where both are f16 from memory or
// such sums themselves. An epilogue computes them two at a time in halves, which gives the bits that an f32
// sum and its rounding would (add_halves in tile_memory.cuh), for a tenth of the instructions.
#pragma once

#include <optional>
#include <vector>

#include "kernels/tile/cuda/tile_values.h"

namespace aicf {

// For each addition the half type of which both operands are, if there is one: its sum may be had rounded to
// that type. `inputs`: element types of the program's operands in memory, none for one that is not there as
// halves.
std::vector<std::optional<DType>> half_sums(const TileValues& values,
                                            const std::vector<std::optional<DType>>& inputs);

// The addition of which the value is the rounded sum; -1: it is no such sum.
int half_sum_of(const TileValues& values, const std::vector<std::optional<DType>>& sums, int value);

}  // namespace aicf
