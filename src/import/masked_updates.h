// Updates of the places that a mask picks, y[mask] = values, as exporters write them: the places listed by
// NonZero and written by ScatterND. The list has a length that depends on data, the update has not.
#pragma once

#include "import/onnx_wire.h"

namespace aicf::onnx {

// The domain of a ScatterND that takes the mask itself; its inputs are data, mask, values, and the mask
// before it was expanded or "". Its attributes: `values`, which are "spread", one for all places of
// a row of the mask; "ordered", taken by the places in order; or "whole", made of the whole data. `flat`:
// they were written to single elements.
inline constexpr const char* kMaskedDomain = "masked";

// Gives such updates in the main graph and in functions that form, and takes away what nothing reads then.
void match_masked_updates(ModelProto& model);

}  // namespace aicf::onnx
