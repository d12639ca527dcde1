// What an op does with values that a wider type carries (import/onnx_types.h).
#pragma once

#include "import/onnx_ops/node_context.h"
#include "import/onnx_types.h"

namespace aicf::onnx {

// Integers of the carrier, or wider, brought into the range: modulo the number of values, as hardware wraps.
ValueId wrapped(NodeContext& n, ValueId x, const CarriedType& type);
// `x` of any type converted to `type`; floats are cut toward zero first.
ValueId cast_to_carried(NodeContext& n, ValueId x, const CarriedType& type);
// Of the bits of u64: x >= y, x / y, and the number as a float.
ValueId unsigned_at_least(NodeContext& n, ValueId x, ValueId y);
ValueId unsigned_quotient(NodeContext& n, ValueId x, ValueId y);
ValueId unsigned_number(NodeContext& n, ValueId x, DType dtype);
// Result i, whose values `type` says.
void out_carried(NodeContext& n, size_t i, ValueId id, const CarriedType& type);

// Refuses a node that would take carried values for those of the wider type; true if it has any.
bool check_carried(NodeContext& n);
// Gives the results of such a node their types, wrapped where the op leaves the range.
void finish_carried(NodeContext& n);

}  // namespace aicf::onnx
