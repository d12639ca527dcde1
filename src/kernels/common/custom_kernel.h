// What selection and building know of an op of the user's: the kernel's name is "custom:" and the op's, and
// for a GPU the model brings the text of a kernel.
#pragma once

#include <string>
#include <string_view>

#include "kernels/common/cuda_kernel.h"

namespace aicf {

inline constexpr std::string_view kCustomPrefix = "custom:";

inline bool is_custom_kernel(std::string_view kernel) { return kernel.starts_with(kCustomPrefix); }
// "my::op" of "custom:my::op".
inline std::string_view custom_op_of(std::string_view kernel) { return kernel.substr(kCustomPrefix.size()); }

struct CustomCuda {
  // Holds `extern "C" __global__ void function(…)` with the launch ABI (cuda_launch.h), or is PTX of its
  // entry.
  std::string text;
  std::string function;
  int operands = 0;   // inputs and outputs, each an address
  CudaLaunch launch;  // all but the function's name
};

// The text as the other kernels' code comes. bad_attribute if the function is not in it, or does not wait for
// its inputs (aicf::wait_for_inputs): runtimes before this one let it begin before they are written. PTX gets
// the wait here, where architectures have one (sm_90 on), as the first instruction of the entry.
CudaCode custom_cuda_code(const CustomCuda& custom, int arch);

// PTX begins with its version; Triton's puts comments before it.
bool is_ptx(const std::string& text);

// The entry of PTX as code for an architecture. It may take 8-byte parameters beyond those of the ABI: they
// get zero (addresses of scratch memory that a kernel does not use). bad_attribute if there is no such entry,
// if it was made for a later architecture, or takes fewer parameters than `launch` gives beside `operands`
// addresses.
CudaCode custom_ptx_code(const CustomCuda& custom, int arch);

}  // namespace aicf
