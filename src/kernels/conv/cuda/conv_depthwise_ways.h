// What a depthwise convolution takes (conv_depthwise.cuh, conv_simt.cuh): an estimate in clock cycles from
// what one thread does and how many threads there are. Pure, needs no GPU.
#pragma once

#include <cstdint>

#include "kernels/common/cuda_machine.h"

namespace aicf {

// Of a thread, which makes `rows` × `columns` × `vector` results.
struct DepthwiseWork {
  int64_t threads = 0, block = 0;  // in all, and of a block
  int64_t taps = 1;                // of a window
  int64_t rows = 1, columns = 1, vector = 1;
  // A tile: rows of x under it, elements of each, and loads that bring these; no loads: it takes tap after
  // tap.
  int64_t x_rows = 0, x_columns = 0, x_loads = 0;
  int64_t weights = 0;  // that it reads, for a tile
  double bytes = 0;     // of x and of the result
  double sectors = 0;   // that stores write, each as often as a store writes a part of it; 0: whole ones
  CudaMachine machine = {};
};

double depthwise_microseconds(const DepthwiseWork& work);

}  // namespace aicf
