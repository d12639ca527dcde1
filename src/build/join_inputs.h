// Which regions become the beginning of the product after them, on a GPU with clusters. Takes the selected
// calls of a graph and the programs of their regions; where a region makes the few rows that only one product
// reads (a norm, a gate), every block of the product makes them itself (kernels/matmul/made_x.cuh), and one
// call with both as members takes the place of two. Graph, regions and programs stay as they are.
#pragma once

#include "build/call_code.h"
#include "ir/graph.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinInputs[] = "join_inputs";
inline constexpr char kRegionProduct[] = "region_product";  // KernelCall::kernel

void join_inputs(KernelCalls& calls, const Graph& graph, const std::vector<TileProgram>& programs,
                 const Target& target, const SymbolRanges& ranges);

}  // namespace aicf
