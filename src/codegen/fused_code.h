// The CUDA text of calls that hold calls (select/kernel_call.h); that of any other is its row's
// (calls/call_code.h).
#pragma once

#include "calls/call_code.h"

namespace aicf {

// A bundle's one kernel calls its members' functions stage by stage for the blocks they would have as kernels
// of their own. Of one stage, the grid holds a block for each of the members' blocks. Of several, it is one
// cluster or one block, to whose blocks those of every stage are distributed in turn; what a stage wrote is
// visible to the next when all have met. If members report data errors, so does the launch, which is given
// one error for each member. Members of several launches, as rows that are split over blocks, all have as
// many and one stage: each launch of the bundle runs theirs of its number. Members must be such that
// joins_bundle() of their code.
CudaCode bundle_code(const KernelCall& bundle, const CodeContext& context);

// Products that share a launch: their row generates for all of them.
CudaCode product_group_code(const KernelCall& group, const CodeContext& context);

// A kernel that computes its first input in a prologue: the consumer's row generates with the producer.
CudaCode prologue_code(const KernelCall& fusion, const CodeContext& context);

}  // namespace aicf
