// Whether every size of the declared ranges fits: reshapes keep the number of their elements, slices stay
// inside their operand, windows fit into what they move over, groups divide their channels, padding cuts no
// more than there is, top_k and argmax find what they pick, indices of elements address rows that there are.
// The shape rule of one node knows no ranges and lets pass what depends on rounding or on several sizes; a
// program that only some of its sizes fit would read other elements than it means, so it is refused.
#pragma once

#include "ir/graph.h"

namespace aicf {

// bad_shape, naming the node and sizes at which it does not fit. What does not hold as it is written is tried
// at the ends of the ranges and at points between.
void check_range_fit(const Program& program);

}  // namespace aicf
