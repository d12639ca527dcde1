// The tile program that a CUDA convolution runs over its result: the epilogue it was given, or a plain store,
// with the bias in front if there is one.
#pragma once

#include "kernels/common/tile_program.h"

namespace aicf {

// `epilogue` may be null. Operand 0 is the sum; a bias becomes operand 1, and the epilogue's own operands
// follow.
TileProgram conv_program(const TileProgram* epilogue, DType type, DType result, bool has_bias);

}  // namespace aicf
