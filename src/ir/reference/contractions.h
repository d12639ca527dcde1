// Pieces of products of the reference evaluator that more than one op means: matmul, linear, convolutions,
// attention.
#pragma once

#include "ir/reference/ref_op.h"

namespace aicf::reference {

// out[m, n] += x[m, k] y[k, n], all row-major and contiguous; each element sums in the order of k.
void multiply(const double* x, const double* y, double* out, int64_t m, int64_t k, int64_t n);
void multiply(const int64_t* x, const int64_t* y, int64_t* out, int64_t m, int64_t k, int64_t n);

// What op round_tf32 makes of an element of the dtype.
double round_tf32(double x, DType dtype);

// Operand `k` as it is multiplied: rounded where attribute tf32 says so.
RefTensor multiplied_operand(const RefContext& c, size_t k);

RefTensor swap_last_axes(const RefTensor& x);

}  // namespace aicf::reference
