// A kernel with the call that produces its first input as its prologue (prologue fusion): what its text needs
// to know of that call, which every block recomputes. Products of few rows run a region over x
// (matmul/cuda/wgmma_rs.cuh); attention over a cache rotates its queries and appends the step's row
// (attention/cuda/split.cuh). codegen/ makes these.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_kernel.h"

namespace aicf {

inline constexpr int kPrologueThreads = 128;  // of a product's block that compute its x

struct Prologue {
  const CudaProblem* problem = nullptr;  // of the call by itself
  const CudaProblem* kernel = nullptr;   // operands of the whole: first those of the consumer
  std::vector<int32_t> inputs, outputs;  // of the call, by their numbers among the whole's
  // A region is a member: its code, and the same as includes and a namespace in which `function` is.
  CudaCode code;
  std::string text, function;
};

// Whether the way of matmul_tensor_core that the problem names can run a region as prologue, and the problem
// lets it.
bool takes_prologue(const CudaProblem& problem);
// Whether attention_wgmma would run the problem as a kernel that can run this step of rope_append as
// prologue.
bool takes_rope(const CudaProblem& attention, const CudaProblem& rope);

}  // namespace aicf
