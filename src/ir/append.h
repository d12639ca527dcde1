// Copies a whole graph into another one: what the assembly of entries from parts needs.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf {

// Appends the leaves and nodes of `from` to `to` and gives the new id of every value. Inputs, params and
// states keep their names. Outputs and updates are not added: the caller decides what becomes of them.
std::vector<ValueId> append_graph(Graph& to, const Graph& from);

}  // namespace aicf
