// A graph in ops of which each is computed by itself: the bodies of regions and calls stand in their place,
// and composites as their decompositions, in the bodies of control flow too.
#pragma once

#include "ir/graph.h"

namespace aicf {

Graph primitives(const Graph& graph);

}  // namespace aicf
