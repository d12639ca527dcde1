// Floats of 8 and 4 bits. A u8 carries their bits (import/onnx_types.h): they are read by a table of all
// values and written by arithmetic that is exact, so that no op of the graph needs to know them.
#pragma once

#include "import/onnx_ops/node_context.h"
#include "import/onnx_types.h"

namespace aicf::onnx {

// The numbers, in f32, of bits `x`; a constant if x is one.
ValueId decoded(NodeContext& n, ValueId x, const CarriedType& type);
// The bits of numbers `x` of any type, rounded to nearest even. What lies above the largest finite one
// becomes that if `saturate`, else infinity, or NaN where there is none; infinities too.
ValueId encoded(NodeContext& n, ValueId x, const CarriedType& type, bool saturate);

}  // namespace aicf::onnx
