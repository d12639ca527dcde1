// `struct Operands` of a CUDA contraction: its pointers, sizes and strides, and how a tile of each operand is
// found and loaded. And the tensor maps that the loads use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/cuda_text.h"
#include "kernels/matmul/cuda/matmul_view.h"
#include "kernels/matmul/cuda/matmul_ways.h"

namespace aicf {

inline constexpr int64_t kStageBytes = 128;   // of K in a stage of mma.cuh and wgmma.cuh
inline constexpr int64_t kEpilogueGroup = 8;  // columns that an epilogue takes at a time
inline constexpr int kColumnsWithSums = 3;    // of tiles, that sum x (row_sums.cuh)

// K as wgmma.cuh counts it: by two bytes.
inline Dim counted_depth(const Dim& k, DType dtype) { return k * Dim(dtype_bytes(dtype) / 2); }

struct MatmulOperandsText {
  std::string text;  // defines `struct Operands`
  std::string make;  // an expression for it: in0, in1, p0…
};
MatmulOperandsText matmul_operands_text(const CudaProblem& problem, const MatmulView& view,
                                        const MatmulWay& way, CudaParams& params);

// What sliced.cuh reads before the launch before has ended: y, the operands of the epilogue; and x, where
// both are, so that all that waits are the stores.
struct EarlyOperands {
  bool x = false, y = false, others = false;
  std::vector<int32_t> early_inputs(size_t inputs) const;  // of so many, see CudaLaunch
};
EarlyOperands early_operands(const CudaProblem& problem, const MatmulWay& way);

// Of operand 0 (x) or 1 (y): boxes of a stage's depth of K by `block` rows or columns, or, where these run in
// memory, by as many as K.
TensorMapSpec matmul_map(const CudaProblem& problem, const MatmulView& view, int operand, int block,
                         int sharers = 1);

}  // namespace aicf
