// CUDA text to machine code through NVRTC, which is loaded at run time. Takes text that includes only
// cuda_headers(); gives a cubin for a concrete architecture ("sm_90a") or PTX for a virtual one
// ("compute_80"). Needs no GPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/array.h"

namespace aicf {

struct CudaModuleImage {
  std::string target;            // "sm_90a", "compute_80"
  std::vector<std::byte> bytes;  // ELF cubin or PTX text
};

// EnvironmentError device_missing without NVRTC; InternalError check_failed with the compiler's log and the
// numbered text if it does not compile, because all text is ours.
CudaModuleImage compile_cuda(const std::string& source, const std::string& target);
// Compiles all, in parallel on the machine's cores, results in order.
std::vector<CudaModuleImage> compile_cuda(const std::vector<std::string>& sources, const std::string& target);

// "13.0", part of what fixes the bits of a build.
std::string nvrtc_version();

}  // namespace aicf
