// Which two products of one x become one launch, on a GPU. Takes the selected calls of a graph and the
// programs of their regions; where the results of two products by matrices of one form meet element by
// element, in a region or in the epilogue of one of them (a gate and what it weighs), and one kernel takes
// less time (matmul_pair), one call takes their place, which never stores what nobody else reads. The
// matrices may be columns of one, of a product that was merged. The joined program stands at the end of
// `programs`. Graph and regions stay as they are.
#pragma once

#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The name that leaves them apart (CompileOptions::skip_passes).
inline constexpr char kJoinPairs[] = "join_pairs";

// A choice of `options` that names a product decides over it: one of its own kernels keeps it apart,
// matmul_pair joins it whatever the estimates say.
void join_pairs(CallGraph& calls, const Target& target, const SelectOptions& options);

}  // namespace aicf
