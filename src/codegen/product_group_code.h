// The CUDA text of products that share a launch: a call of calls/group_products.cc.
#pragma once

#include "calls/call_code.h"

namespace aicf {

CudaCode product_group_code(const KernelCall& call, const CodeContext& context);

}  // namespace aicf
