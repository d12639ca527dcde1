// Chooses a kernel for every node of an optimised entry graph and works out which window of which value each
// one reads and writes. Takes a graph whose composites the target claims and whose reductions keep their
// axes; gives its calls with the reason of each choice, and a tile program for every region.
#pragma once

#include "select/call_program.h"
#include "select/choose.h"
#include "target/target.h"

namespace aicf {

// Without the graphs that calls of control flow run.
CallGraph select_kernels(const Graph& graph, const Target& target, const SelectOptions& options = {});

// Adds the calls of a graph for the program's target behind those of its bodies; gives its number.
size_t select_graph(CallProgram& program, const Graph& graph, const SelectOptions& options,
                    bool is_body = false);

}  // namespace aicf
