// Whether a product and what runs behind it become one call, and by which variant.
#pragma once

#include <vector>

#include "kernels/cuda_kernel.h"
#include "select/call_program.h"
#include "select/choose.h"

namespace aicf {

// The cheapest variant, if it is cheaper than the calls apart, or the one that a record of the product's key
// or the caller wants: sets the call's way, choice and reason. `what`: "a product and its rows".
bool take_variant(KernelCall& joined, const std::vector<KernelVariant>& variants, double apart,
                  const char* what, const SelectOptions& options);

// A product that tensor cores can run and whose variant nobody has decided, with an epilogue of one stage: a
// record or the caller knows the product by itself.
bool is_open_product(const KernelCall& call, const CallGraph& calls);

}  // namespace aicf
