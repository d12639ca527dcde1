// The CUDA text of a product that makes its x itself: a call of build/join_inputs.h, whose members are the
// region and the product.
#pragma once

#include "build/call_code.h"
#include "kernels/matmul/made_input.h"

namespace aicf {

// Whether the product could be such a one, as selection chose it.
bool takes_region(const KernelCall& product, const CodeContext& context);
CudaCode region_product_code(const KernelCall& call, const CodeContext& context);

}  // namespace aicf
