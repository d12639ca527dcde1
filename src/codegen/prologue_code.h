// The CUDA text of a kernel that computes its first input in a prologue: a call of calls/join_inputs.cc,
// whose members are the producer and the consumer of that input.
#pragma once

#include "calls/call_code.h"
#include "kernels/common/prologue.h"

namespace aicf {

CudaCode prologue_code(const KernelCall& call, const CodeContext& context);

}  // namespace aicf
