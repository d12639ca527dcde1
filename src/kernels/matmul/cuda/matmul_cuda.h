// Contractions on CUDA: from a problem with symbolic windows to text and launches. The rows of
// cuda_kernels.def choose the way by matmul_ways.h; tests and the tuner may ask for a given one.
#pragma once

#include "kernels/common/cuda_kernel.h"
#include "kernels/matmul/cuda/matmul_ways.h"
#include "kernels/matmul/cuda/wgmma_text.h"

namespace aicf {

inline constexpr size_t kProductInputs = 2;  // of a contraction, before those of its epilogue
inline size_t product_inputs(const CudaProblem& problem) {
  return kProductInputs + (is_dual_gemm(problem) ? 1 : 0);
}
// Columns of the result that a block has.
inline int tile_columns(const CudaProblem& problem, const MatmulWay& way) {
  return is_dual_gemm(problem) ? way.block_n / 2 : way.block_n;
}

// Of the type in which operands of this one are multiplied and added.
int accumulator_bytes(DType dtype);
// Whether a family can run the problem: its types, and for wgmma strides and architecture.
bool matmul_family_fits(const CudaProblem& problem, MatmulFamily family);
// Sizes to choose by: symbolic ones count with the upper end of their range.
MatmulSizes matmul_sizes(const CudaProblem& problem);
CudaCode matmul_code(const CudaProblem& problem, const MatmulWay& way);
// Of the epilogue's operands, of a wgmma tile with so many columns.
ChunkRegisters chunk_registers(const CudaProblem& problem, size_t own_inputs, bool half_tile, int columns);
// Of the epilogue's operands that differ by row, for one result.
int own_operand_bytes(const CudaProblem& problem);

}  // namespace aicf
