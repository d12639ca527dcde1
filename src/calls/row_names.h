// Rows of the kernel tables whose calls the passes join. tile's is select/kernel_call.h's kRegionRow.
#pragma once

#include <string_view>

namespace aicf {

inline constexpr std::string_view kTensorCoreProduct = "matmul_tensor_core";
inline constexpr std::string_view kAttention = "attention_wgmma", kRopeAppend = "rope_append";
inline constexpr std::string_view kGather = "gather", kScatter = "scatter_nd";

}  // namespace aicf
