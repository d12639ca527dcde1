// Steps of the CPU that run an op of the user's: the registered function is called with dense windows.
#pragma once

#include "kernels/common/abi.h"
#include "kernels/common/custom_kernel.h"

namespace aicf {

// As Kernel::prepare, for the kernel of this name. bad_artifact for windows that are not dense,
// missing_custom_op. The call has one tile, which may throw, unlike those of other kernels: it runs in the
// thread that runs the sequence.
void prepare_custom(std::string_view kernel, BoundCall& call);

}  // namespace aicf
