// Sums of gradients of the parts of one value. The gradient of a slice is a pad of zeros around what comes
// back; where two such gradients lie side by side along one axis, their sum is a concat of what they
// surround, and no zero is added.
#pragma once

#include "ir/graph.h"

namespace aicf {

// a + b as one value if both are pads with zeros along the same single axis that touch and do not overlap;
// else kNoValue.
ValueId join_parts(Graph& graph, ValueId a, ValueId b, const std::string& origin);

}  // namespace aicf
