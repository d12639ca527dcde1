// The kernels beside the bodies of a step of control flow (kernels/control/control.cuh), the same for all.
// The runtime launches them with arguments of its own, so they take the order and not the form of other
// launches.
#pragma once

#include "kernels/common/control_launches.h"
#include "kernels/common/cuda_kernel.h"

namespace aicf {

CudaCode control_code();

}  // namespace aicf
