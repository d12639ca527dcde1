// Which sums over all rows of a product's results, the gradients of biases, are taken by the product's
// epilogue on a GPU. Takes the selected calls of a graph and the programs of their regions; where one call
// does nothing but add up the columns of what a product stores, the product's call stores the sums too, and
// its program, with the sums as a further result, stands at the end of `programs`. Graph and regions stay as
// they are.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "kernels/tile_program.h"
#include "select/kernel_call.h"
#include "select/target.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinSums[] = "join_sums";

void join_sums(KernelCalls& calls, std::vector<TileProgram>& programs, const Target& target,
               const SymbolRanges& ranges);

// `product` of one stage, with the sum over all rows of what it stores to output `from` as its last output.
TileProgram program_with_sums(const TileProgram& product, size_t from, DType sum);

}  // namespace aicf
