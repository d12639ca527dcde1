// Whether a library can run a contraction, and how it is asked to: reads the epilogue off the region.
#pragma once

#include <optional>

#include "kernels/matmul/cublaslt_call.h"
#include "select/kernel_call.h"

namespace aicf {

// What cuBLASLt would be asked for, without version and algorithm; nullopt if it cannot compute the call.
// Only calls whose sizes are all fixed: an algorithm is chosen for one size, and a size of a range must give
// what a compile for just that size gives.
std::optional<CublasLtCall> cublaslt_form(const KernelCall& call, const Region* region);

// The call's windows as plain numbers; nullopt if one is symbolic or has too many axes.
struct PlainOperands {
  std::vector<TensorArg> inputs, outputs;
};
std::optional<PlainOperands> plain_operands(const KernelCall& call);

}  // namespace aicf
