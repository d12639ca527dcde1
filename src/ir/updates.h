// Which variables a program writes.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"

namespace aicf {

// Params and states that some entry updates. What was computed from such a param at load would go stale.
std::set<std::string> updated_variables(const Program& program);

}  // namespace aicf
