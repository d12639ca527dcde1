// The matrix instruction of wgmma.cuh as text: its operand list depends on the number of columns.
#pragma once

#include <string>

#include "base/dtype.h"

namespace aicf {

// Defines `struct Multiply` with run(float (&d)[columns / 2], uint64_t a, uint64_t b): d += a · b for 64 rows
// and 16 steps of k. The flags say whether the matrices' rows in shared memory run along k.
std::string wgmma_multiply_text(DType dtype, int columns, bool x_along_k, bool y_along_k);

}  // namespace aicf
