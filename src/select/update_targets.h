// Which results are written straight into the variable that an update gives them to, so that the update costs
// nothing: every read of the old value comes before the result is made, or the kernel that makes it reads an
// element only before it writes the same one.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "target/target.h"

namespace aicf {

// By value: the param or state whose storage it takes, kNoValue for all others.
std::vector<ValueId> update_targets(const Graph& graph, const Target& target);

}  // namespace aicf
