// The machine that the choices of CUDA kernels were measured on, an H100. Smaller ones run more rounds of the
// same tiles.
#pragma once

#include <cstdint>

namespace aicf {

inline constexpr int64_t kMultiprocessors = 132;
inline constexpr double kCyclesPerMicrosecond = 1700;  // under load

}  // namespace aicf
