// The one kernel of a bundle: its members' functions, called stage by stage for the blocks they would have as
// kernels of their own.
#pragma once

#include "calls/call_code.h"

namespace aicf {

// Of one stage, the grid holds a block for each of the members' blocks. Of several, it is one cluster or one
// block, to whose blocks those of every stage are distributed in turn; what a stage wrote is visible to the
// next when all have met. If members report data errors, so does the launch, which is given one error for
// each member. Members must be such that joins_bundle() of their code.
CudaCode bundle_code(const KernelCall& bundle, const CodeContext& context);

}  // namespace aicf
