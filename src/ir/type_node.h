// What the op table makes of a node before it stands in a graph: Graph::add_node appends what is typed here,
// the verifier compares it with what is stored.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf {

// Fills in absent optional operands and the attributes' defaults, normalises attributes and gives the types
// of the results. `node` is without results and bodies; the values of `graph` below `defined` may be
// operands. UserError naming the op if the op table refuses.
std::vector<TensorType> type_node(const Graph& graph, Node& node, const std::vector<Graph>& bodies,
                                  ValueId defined);

// UserError if a size known when compiling is negative, or the bytes do not fit in 63 bits.
void check_type(const TensorType& type);

}  // namespace aicf
