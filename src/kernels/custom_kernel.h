// What selection and building know of an op of the user's: the kernel's name is "custom:" and the op's, and
// for a GPU the model brings the text of a kernel.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda_kernel.h"

namespace aicf {

inline constexpr std::string_view kCustomPrefix = "custom:";

inline bool is_custom_kernel(std::string_view kernel) { return kernel.starts_with(kCustomPrefix); }
// "my::op" of "custom:my::op".
inline std::string_view custom_op_of(std::string_view kernel) { return kernel.substr(kCustomPrefix.size()); }

struct CustomCuda {
  std::string text;  // holds `extern "C" __global__ void function(…)` with the launch ABI (cuda_launch.h)
  std::string function;
  CudaLaunch launch;  // all but the function's name
};

// The text as the other kernels' code comes. bad_attribute if the function is not in it, or does not wait for
// its inputs (aicf::wait_for_inputs), without which it would run before they are written.
CudaCode custom_cuda_code(const CustomCuda& custom);

}  // namespace aicf
