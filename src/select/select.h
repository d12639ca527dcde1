// Chooses a kernel for every node of an optimised entry graph and works out which window of which value each
// one reads and writes. Takes a graph whose composites the target claims and whose reductions keep their
// axes; gives KernelCalls with the reason of each choice.
#pragma once

#include <set>
#include <string>

#include "select/kernel_call.h"
#include "select/target.h"

namespace aicf {

// `updated`: variables that some entry of the program writes; their packed forms would go stale, so kernels
// read them as they are stored.
KernelCalls select_kernels(const Graph& graph, const Target& target,
                           const std::set<std::string>& updated = {});

}  // namespace aicf
