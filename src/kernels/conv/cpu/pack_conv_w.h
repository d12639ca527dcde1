// Packing of the weights of a convolution into panels of output channels (gemm_types.h), done once when
// parameters are loaded. The layout depends on the ISA level and is never stored; its size does not.
#pragma once

#include <cstdint>

namespace aicf {

// Bytes of the packed form of f32 weights with `maps` output channels in `groups` groups and `k` weights for
// each, at any ISA level; size_overflow beyond 63 bits.
int64_t packed_conv_w_bytes(int64_t groups, int64_t maps, int64_t k);
// Where the panels of a group begin, in elements.
int64_t packed_conv_group(int64_t group, int64_t group_maps, int64_t k);

}  // namespace aicf
