// Products that differ in their buffers alone and share a launch (kernels/matmul/cuda/grouped.cuh): what the
// text of the first needs to know of all. codegen/ makes these.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/common/cuda_kernel.h"

namespace aicf {

// A kernel's arguments are at most 4 KiB, of which a product takes two tensor maps and its pointers.
inline constexpr int kMostGrouped = 12;

struct ProductGroup {
  const CudaProblem* kernel = nullptr;  // operands of all, every one once
  struct Operands {
    std::vector<int32_t> inputs, outputs;  // of the product and its epilogue: numbers among the kernel's
    int32_t x_sums = -1;                   // where the sums over k of x's rows go; -1: nowhere
  };
  std::vector<Operands> products;  // the problem's own first
  std::optional<DType> x_sums;  // their type, where any product has them (kernels/matmul/cuda/row_sums.cuh)
};

// How so many products of this problem, with what its program does to the results, can share a launch, best
// first; none: not at all. With x_sums, beside the sums of x's rows.
std::vector<KernelVariant> grouped_variants(const CudaProblem& problem, int count,
                                            std::optional<DType> x_sums = std::nullopt);

}  // namespace aicf
