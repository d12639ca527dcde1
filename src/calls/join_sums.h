// Which sums over all rows, the gradients of biases, are taken along by products on a GPU. Takes the selected
// calls of a graph, groups of products among them, and the programs of their regions. A call that does
// nothing but add up the columns of a tensor disappears into the group that reads the tensor as the x of a
// member (kernels/matmul/cuda/row_sums.cuh), or else into the epilogue of the product that stores it, whose
// program, with the sums as a further result, then stands at the end of `programs`. Graph and regions stay as
// they are.
#pragma once

#include <vector>

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinSums[] = "join_sums";

void join_sums(CallGraph& calls, const Target& target, const SelectOptions& options);

// `product` of one stage, with the sum over all rows of what it stores to output `from` as its last output.
TileProgram program_with_sums(const TileProgram& product, size_t from, DType sum);

}  // namespace aicf
