// Chooses a kernel for every node of an optimised entry graph and works out which window of which value each
// one reads and writes. Takes a graph whose composites the target claims and whose reductions keep their
// axes; gives KernelCalls with the reason of each choice.
#pragma once

#include "select/choose.h"
#include "select/kernel_call.h"
#include "target/target.h"

namespace aicf {

KernelCalls select_kernels(const Graph& graph, const Target& target, const SelectOptions& options = {});

}  // namespace aicf
