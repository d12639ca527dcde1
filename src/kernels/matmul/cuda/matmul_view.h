// A contraction as the CUDA families see it: one product of matrices per index of the batch, and how the rows
// of each operand lie in memory.
#pragma once

#include <vector>

#include "kernels/common/cuda_kernel.h"

namespace aicf {

struct MatmulOperand {
  std::vector<Dim> batch;  // strides over the batch axes of the result
  Dim row, column;
  bool along_k = true, vector = false;  // its rows in memory run along K; they can be read 16 bytes at a time
  bool panels = false;                  // of y: has_panels; its strides are those inside a panel
};

struct MatmulView {
  Shape batch;  // of the result, without axes of size 1
  Dim m, n, k;
  MatmulOperand x, y;
  int64_t products = 1;  // of the launch: those of a group (product_group.h)
  Dim batches() const;
};

// Whether y is stored in panels of K (kPanelDepth): it has an axis more than the result, and no other batch.
bool has_panels(const CudaProblem& problem);

// Of a problem whose first inputs are x [.., M, K] and y [.., K, N], or y in panels, and whose first output
// is [.., M, N].
MatmulView matmul_view(const CudaProblem& problem);
// Whether every offset inside one matrix, up to a tile beyond its end, fits 32 bits.
bool fits_int32(const MatmulView& view, const SymbolRanges& ranges);
// Whether all products have this operand.
bool is_shared(const MatmulOperand& operand);
// Whether the matrices of neighbouring products follow one another in memory, without gaps, or are one; x:
// that of x. And whether two elements of even k lie in one word.
bool is_contiguous(const MatmulView& view, bool x);
bool has_pairs(const CudaProblem& problem, const MatmulView& view, bool x);
// Whether the copy engine can read both operands by tensor maps.
bool maps_fit(const CudaProblem& problem, const MatmulView& view);

// The largest magnitude of a symbolic size or stride.
int64_t largest(const Dim& dim, const SymbolRanges& ranges);
bool divides(const Dim& dim, int64_t divisor);
inline bool is_one(const Dim& size) { return size == Dim(1); }
// Elements in so many bytes.
inline int64_t per(int64_t bytes, DType dtype) { return bytes / dtype_bytes(dtype); }

}  // namespace aicf
