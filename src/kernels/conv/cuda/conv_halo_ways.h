// How conv_halo.cuh cuts a convolution: boxes of results, slices of maps, warpgroups; and what that takes.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/cuda_machine.h"
#include "kernels/conv/cuda/window_boxes.h"
#include "kernels/conv/cuda/window_way.h"

namespace aicf {

// What is multiplied.
struct HaloSizes {
  BoxedWindows windows;                       // of one group
  int64_t images = 1, height = 1, width = 1;  // of the result
  bool by_elements = false;                   // x has no units of 8 channels
  bool weights_by_elements = false;           // nor have the weights
  int64_t scattered = 0;                      // outputs of pixels whose neighbours are maps
  double result_bytes = 2;                    // of each result: itself and what the epilogue reads beside it
  CudaMachine machine;
};

// As ConvHalo in conv_halo.cuh is told.
struct HaloPlan {
  ResultBox box;
  bool patches = false;  // rows of the product are 8 x 8 results each; else they are positions in order
  int64_t maps = 8;      // of a slice
  int64_t slices = 1, blocks = 1;  // blocks of a slice
  int64_t warpgroups = 1, buffers = 1, together = 1;
  int64_t shared_bytes = 0;
  double microseconds = 0;
};

// One for each box and slice, the fastest first; none where no box has room.
std::vector<HaloPlan> halo_plans(const HaloSizes& sizes);
// Whether the smallest box has room beside the weights of the narrowest slice.
bool has_halo_plan(const BoxedWindows& windows);

WindowWay halo_way(const HaloSizes& sizes, const HaloPlan& plan);

}  // namespace aicf
