// The CUDA text of a kernel that makes its first input itself: a call of calls/join_inputs.cc,
// whose members are the call that made it and the one that takes it in.
#pragma once

#include "calls/call_code.h"
#include "kernels/made_input.h"

namespace aicf {

CudaCode made_input_code(const KernelCall& call, const CodeContext& context);

}  // namespace aicf
