// Linear quantisation in pieces that converters of quantised ops share: q = saturate(round(x / scale) +
// zero), x = (q - zero) scale. Scales and zero points are scalars, or vectors that meet an axis.
#pragma once

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

// Rounds to a quantised type. Sums stay in a float wide enough that nothing rounds twice; the cast saturates.
ValueId quantized(NodeContext& n, ValueId scaled, ValueId zero_point, DType dtype);

// Each element of x along `axis`, one per block, as often as the block is long; `size` of them in all.
ValueId repeat_blocks(NodeContext& n, ValueId x, size_t axis, int64_t block, const Dim& size);

struct DynamicallyQuantized {
  ValueId values, scale, zero;  // values and zero are u8
};
// By the range of all of x, widened so that 0 is exact.
DynamicallyQuantized quantize_dynamically(NodeContext& n, ValueId x);

// numpy matmul: a vector on the left is a row, on the right a column, and its axis goes away afterwards.
ValueId numpy_matmul(NodeContext& n, ValueId x, ValueId y);
// The same of 8-bit operands less their zero points (kNoValue: none; a vector: one per row of x, per column
// of y), exactly, in i32.
ValueId integer_matmul(NodeContext& n, ValueId x, ValueId x_zero, ValueId y, ValueId y_zero);

}  // namespace aicf::onnx
