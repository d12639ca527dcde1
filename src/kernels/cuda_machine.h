// What CUDA kernels know of machines. Their choices were measured on an H100; smaller ones run more rounds of
// the same tiles.
#pragma once

#include <cstdint>

namespace aicf {

inline constexpr int64_t kMultiprocessors = 132;
inline constexpr int64_t kMachineBlocks = 4 * kMultiprocessors;  // of a region that keeps it busy
inline constexpr double kCyclesPerMicrosecond = 1700;            // under load

// Bytes of shared memory that a block may have.
constexpr int64_t shared_limit(int arch) {
  if (arch >= 90) return 227 * 1024;
  return arch == 80 ? 163 * 1024 : 99 * 1024;
}

}  // namespace aicf
