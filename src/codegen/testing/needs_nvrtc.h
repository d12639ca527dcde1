// For tests that compile CUDA text: it takes NVRTC, but no GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "codegen/nvrtc.h"

namespace aicf::cuda_testing {

// Throws where AICF_REQUIRE_NVRTC says that NVRTC is there and it is not.
inline bool has_nvrtc() {
  try {
    nvrtc_version();
    return true;
  } catch (const EnvironmentError&) {
    if (std::getenv("AICF_REQUIRE_NVRTC") != nullptr) throw;
    return false;
  }
}

}  // namespace aicf::cuda_testing

// The test's body from here on compiles CUDA text: without NVRTC it is skipped, or fails with
// AICF_REQUIRE_NVRTC.
#define AICF_NEEDS_NVRTC()                                                            \
  do {                                                                                \
    if (!::aicf::cuda_testing::has_nvrtc()) GTEST_SKIP() << "NVRTC is not installed"; \
  } while (false)
