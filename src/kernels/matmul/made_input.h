// A product of few rows that takes in the call that makes its x (made_x.cuh): what the text of the product
// needs to know of that call. build/region_product.h makes these.
#pragma once

#include "kernels/matmul/matmul_cuda.h"

namespace aicf {

inline constexpr int kMadeThreads = 128;  // of a block that make it

struct MadeInput {
  std::string text;             // includes, then the member's functions in a namespace
  std::string function;         // by its whole name
  CudaLaunch launch;            // of the member, were it alone
  int64_t block_elements = 0;   // see CudaCode
  std::vector<int32_t> inputs;  // of the member, by their number among `kernel_inputs`
  // Of the whole kernel: those of the product come first, x itself included.
  std::vector<CudaWindow> kernel_inputs, kernel_outputs;
};

// Whether a way of matmul_tensor_core can take in such a call, and the problem lets it.
bool takes_made_input(const CudaProblem& problem, const std::string& variant);

}  // namespace aicf
