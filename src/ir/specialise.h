// A graph for some values of its sizes: what was symbolic becomes a number wherever the size stands. The
// graph must be legal at these values, which every value in the declared ranges is.
#pragma once

#include "ir/graph.h"

namespace aicf {

Graph specialise(const Graph& graph, const SymbolValues& sizes);

}  // namespace aicf
