// Whether code for GPUs may be compiled where models are compiled and run.
#pragma once

namespace aicf {

// Not with AICF_JIT=0: then machine code comes from artifacts and from AICF_CACHE_DIR, NVRTC is not loaded,
// and PTX, which a driver would compile, is not run. bad_option for another value than 0 or 1.
bool jit_allowed();

}  // namespace aicf
