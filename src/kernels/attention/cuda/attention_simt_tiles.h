// What the ways of both directions of attention on the general-purpose units share: how lanes and warps
// divide a tile, cycles of warps, and how blocks that share a multiprocessor take them together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/attention/cuda/attention_way.h"
#include "kernels/common/cuda_kernel.h"
#include "kernels/common/cuda_machine.h"

namespace aicf {

inline constexpr int kMostSimtWarps = 8;  // of a block

inline int64_t sum_bytes(const CudaProblem& problem) { return problem.inputs[0].dtype == DType::f64 ? 8 : 4; }

inline int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int warps_of(const AttentionWay& way) { return way.row_warps * way.key_warps; }

inline bool has_whole_tiles(const AttentionWay& way, int vector) {
  const int keys = way.key_warps * (32 / way.row_lanes) * vector;
  return way.rows % (way.row_warps * way.row_lanes) == 0 && way.keys % keys == 0;
}

// Cycles of a warp: what it issues, and what it takes of the multiprocessor's shared memory.
struct WarpCycles {
  double issued = 0, shared = 0;

  WarpCycles& operator+=(const WarpCycles& other) {
    issued += other.issued;
    shared += other.shared;
    return *this;
  }
};

inline WarpCycles operator*(double times, const WarpCycles& work) {
  return {times * work.issued, times * work.shared};
}

// Of shared memory, by a read or write of 16 bytes by a warp whose lanes share addresses: four if they did
// not.
inline constexpr double kSharedRead = 2.7;
inline constexpr double kLoneWarp = 0.63;  // of the time, what a scheduler's only warp keeps it busy
inline constexpr double kMergedUnit =
    34;  // of a warp's vectors, which each warp of a row writes and one reads

// Blocks of a multiprocessor, by shared memory and by registers.
inline int resident_attention_blocks(int arch, int warps, int64_t shared_bytes, int registers) {
  constexpr int64_t kReserved = 1024, kRegisters = 65536, kMostBlocks = 16;
  const int64_t by_memory = (shared_limit(arch) + kReserved) / (shared_bytes + kReserved);
  const int64_t by_registers = kRegisters / (32 * warps * registers);
  return static_cast<int>(std::min({by_memory, by_registers, kMostBlocks}));
}

// Of `blocks` that share a multiprocessor from their start to their end, of work of one of their warps; the
// busiest warp has `longest`. A warp keeps to one of four schedulers, which warps keep the busier the more it
// has, and one warp alone kLoneWarp of the time. kOverlap of the time of the units that have less to do is
// not hidden behind the others.
inline double round_cycles(const WarpCycles& work, double longest, double blocks, int warps, double merge) {
  constexpr double kStart = 3300, kOverlap = 0.47;
  const double held = std::ceil(blocks * warps / 4);
  const double issued = held * work.issued / (1 - std::pow(1 - kLoneWarp, held));
  const double shared = blocks * warps * work.shared;
  const double both = std::max(issued, shared) + kOverlap * std::min(issued, shared);
  return kStart + std::max(both, longest / kLoneWarp) + blocks * merge;
}

// Of as many blocks for each multiprocessor, `resident` of them at a time.
inline double rounds_cycles(const WarpCycles& work, double longest, double blocks, int resident, int warps,
                            double merge) {
  const double rounds = std::floor(blocks / resident), rest = blocks - rounds * resident;
  double cycles = rounds * round_cycles(work, longest, resident, warps, merge);
  if (rest > 0) cycles += round_cycles(work, longest, rest, warps, merge);
  return cycles;
}

}  // namespace aicf
