// A kernel that takes in the call that makes its first input, for itself alone: what its text needs to know
// of that call. Products of few rows run a region over x in every block (matmul/cuda/made_x.cuh); attention
// over a cache rotates its queries and appends the step's row (attention/cuda/split.cuh). codegen/ makes
// these.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda_kernel.h"

namespace aicf {

inline constexpr int kMadeThreads = 128;  // of a product's block that make its x

struct MadeInput {
  const CudaProblem* problem = nullptr;  // of the call by itself
  const CudaProblem* kernel = nullptr;   // operands of the whole: first those of the kernel that takes it in
  std::vector<int32_t> inputs, outputs;  // of the call, by their numbers among the whole's
  // A region is a member: its code, and the same as includes and a namespace in which `function` is.
  CudaCode code;
  std::string text, function;
};

// Whether the way of matmul_tensor_core that the problem names can take in a region, and the problem lets it.
bool takes_made_input(const CudaProblem& problem);
// Whether attention_wgmma would run the problem as a kernel that can take in this step of rope_append.
bool takes_rope(const CudaProblem& attention, const CudaProblem& rope);

}  // namespace aicf
