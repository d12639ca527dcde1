// Packing of the right operand of a matmul into panels (gemm_types.h), done once when parameters are loaded.
// The layout depends on the ISA level and is never stored; its size does not.
#pragma once

#include <cstdint>

namespace aicf {

// Bytes of the packed form of an f32 y [K, N] at any ISA level; size_overflow beyond 63 bits.
int64_t packed_matmul_y_bytes(int64_t k, int64_t n);

}  // namespace aicf
