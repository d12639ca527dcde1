// Whether a library can run a contraction or an attention, and how it is asked to: reads the epilogue off the
// region.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/common/library_call.h"
#include "select/kernel_call.h"

namespace aicf {

// What a library would be asked for, without version, algorithm and engine; nullopt if none can compute the
// call. `op` is its family in the kernel table. Only calls whose sizes are all fixed: an algorithm is chosen
// for one size, and a size of a range must give what a compile for just that size gives.
std::optional<LibraryCall> library_form(const KernelCall& call, std::string_view op, const Region* region);

// The windows and params of a call of a row as plain numbers; nullopt if one is symbolic or has too many
// axes.
std::optional<BoundCall> plain_step(const KernelCall& call);

}  // namespace aicf
