// How convolutions on the plain arithmetic units (conv_simt.cuh) are cut into tiles and parts of K. Pure,
// needs no GPU: the order follows from an estimate in clock cycles.
#pragma once

#include "kernels/matmul/cuda/matmul_ways.h"

namespace aicf {

// Of one group and phase; `batch` counts these.
struct SimtSizes {
  int64_t batch = 1, maps = 0, pixels = 0, channels = 0, taps = 1;
  int64_t element_bytes = 4;   // of the accumulator
  bool copies = true;          // x and w are of its type
  bool channels_fast = false;  // neighbours in x are channels
  double lines = 2;            // of memory, in which 32 neighbouring places of x lie
  bool maps_last = true;       // neighbours in w are maps
  int64_t w_map_bytes = 4, w_channel_bytes = 4, w_tap_bytes = 4;  // in w from one to the next
  double w_bytes = 0;                                             // of all of w
  CudaMachine machine = {};
};

// Results of a thread, and threads of a block.
struct ConvSimtThread {
  int maps = 4, pixels = 4, threads = 0, min_blocks = 0;  // min_blocks: of a multiprocessor, 0: any
};
ConvSimtThread conv_simt_thread(const MatmulWay& way);

// Steps of K: of how many elements, and whether they run on from tap to tap.
struct SimtSteps {
  int depth = 8;
  bool flat = false;
  int64_t count = 0;
};
SimtSteps simt_steps(const SimtSizes& sizes, const MatmulWay& way);

int64_t simt_shared_bytes(const SimtSizes& sizes, const MatmulWay& way);

// Whether a launch of its own brings the weights into the order of maps first, which costs less than to read
// them as they lie.
bool simt_packs_weights(const SimtSizes& sizes, const MatmulWay& way);
// Whether neighbouring threads load neighbouring steps of K of weights as they lie, which are closer than
// maps.
bool simt_loads_steps(const SimtSizes& sizes);

// Tiles of block_m maps × block_n pixels, with their splits, cheapest first.
std::vector<PricedMatmul> simt_ways(const SimtSizes& sizes, int arch);

}  // namespace aicf
