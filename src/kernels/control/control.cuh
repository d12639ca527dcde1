// What control flow needs beside its bodies, inside one graph: its conditional nodes are told whether to run, and rows
// are copied to and from where the bodies read and write them. The runtime fills the arguments in
// (runtime/cuda/control_flow.cc has the same structs).
#pragma once

#include "prelude.cuh"

// Known to the assembler and to the driver that compiles PTX; CUDA 12.3 or later.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

namespace aicf {

struct Branches {
  const bool* condition;
  uint64_t taken[2];  // conditional handles: where it holds, and where not
  int32_t count;      // 1 of a loop, which runs on while it holds; 2 of a branch
  // Of a loop: when it began, and what it took in all if that was more than `limit`, where it then ends;
  // nanoseconds. `began` is written where `begins`.
  uint64_t* began;
  uint64_t* late;
  uint64_t limit;
  bool begins;
};

__device__ __forceinline__ void choose_branch(const Branches& branches) {
  bool holds = *branches.condition;
  if (branches.count == 1) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (branches.begins) *branches.began = now;
    const uint64_t taken = now - *branches.began;
    if (holds && taken > branches.limit) {
      *branches.late = taken;
      holds = false;
    }
  }
  cudaGraphSetConditional(branches.taken[0], holds);
  if (branches.count == 2) cudaGraphSetConditional(branches.taken[1], !holds);
}

struct Trips {
  int64_t* trip;  // the number of the one that runs
  uint64_t handle;
  int64_t length;  // at least 1
  bool begins;
};

__device__ __forceinline__ void next_trip(const Trips& trips) {
  const int64_t trip = trips.begins ? 0 : *trips.trip + 1;
  *trips.trip = trip;
  cudaGraphSetConditional(trips.handle, trip < trips.length);
}

struct Move {
  char* to;
  const char* from;
  int64_t bytes, to_step, from_step;  // of a row; from one row to the next
};

struct Moves {
  static constexpr int kMost = 16;
  Move moves[kMost];
  const int64_t* trip;  // the row is its number, or `last` less it where `last` >= 0; 0 if null
  int64_t last;
};

// Blocks along y are moves; those along x share the bytes of one.
__device__ __forceinline__ void move_rows(const Moves& moves) {
  const Move& move = moves.moves[blockIdx.y];
  int64_t row = moves.trip == nullptr ? 0 : *moves.trip;
  if (moves.last >= 0) row = moves.last - row;
  char* to = move.to + row * move.to_step;
  const char* from = move.from + row * move.from_step;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = int64_t(gridDim.x) * blockDim.x;
  if ((uint64_t(to) | uint64_t(from) | uint64_t(move.bytes)) % 16 == 0) {
    for (int64_t i = first; i < move.bytes / 16; i += step)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
    for (int64_t i = first; i < move.bytes; i += step) to[i] = from[i];
  }
}

}  // namespace aicf
