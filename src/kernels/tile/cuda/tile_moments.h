// Mean and squared differences from it in one walk. A program that adds up x, divides by the length of the
// rows and adds up the squares of what x differs by from that would go over the rows twice.
#pragma once

#include "kernels/tile/cuda/tile_values.h"

namespace aicf {

// Finds the moments of rows of `length` elements: sum = reduce_sum(x), mean = sum / length and squares =
// reduce_sum(d * d) of d = x - mean, all in one float type. Then both sums are there when a walk over x ends,
// and the stages of what reads them move forward.
void join_moments(TileValues& program, const Dim& length);

}  // namespace aicf
