// What CUDA kernels know of machines. Their choices were measured on an H100; smaller ones run more rounds of
// the same tiles.
#pragma once

#include <cstdint>

namespace aicf {

inline constexpr int64_t kMultiprocessors = 132;       // of that H100
inline constexpr double kCyclesPerMicrosecond = 1700;  // under load

// The machine that text is for: by its size choices count rounds and decide how far work is split.
struct CudaMachine {
  int64_t multiprocessors = kMultiprocessors;

  int64_t filling_blocks() const { return 4 * multiprocessors; }  // of a region that keeps it busy

  // Into how many parts each of `blocks` pieces of work is split, so that rounds of one block on each
  // multiprocessor are nearly full: the fewest, since what follows reads what every part leaves.
  int64_t balanced_splits(int64_t blocks) const {
    int64_t splits = 1;
    for (int64_t round = multiprocessors; round <= filling_blocks(); round += multiprocessors) {
      splits = round / blocks > 1 ? round / blocks : 1;
      if (splits * blocks <= round && splits * blocks * 10 >= round * 9) break;
    }
    return splits;
  }
};

// Bytes of shared memory that a block may have.
constexpr int64_t shared_limit(int arch) {
  if (arch >= 90) return 227 * 1024;
  return arch == 80 ? 163 * 1024 : 99 * 1024;
}

}  // namespace aicf
