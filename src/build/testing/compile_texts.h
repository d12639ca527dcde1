// For tests that compile CUDA text: it takes NVRTC, but no GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "build/nvrtc.h"
#include "kernels/testing/cuda_texts.h"

namespace aicf::cuda_testing {

inline bool no_nvrtc() {
  try {
    nvrtc_version();
    return false;
  } catch (const EnvironmentError&) {
    return true;
  }
}

// Every text becomes machine code of its architecture.
inline void compile_all(const RowTexts& texts) {
  texts.compile([](const std::vector<std::string>& sources, const char* target) {
    for (const std::string& image : compile_cuda(sources, target)) EXPECT_FALSE(image.empty());
  });
}

}  // namespace aicf::cuda_testing
