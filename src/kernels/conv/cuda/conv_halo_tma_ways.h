// How conv_halo_tma.cuh cuts a convolution: boxes of results, maps of a tile; and what that takes.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/cuda_machine.h"
#include "kernels/conv/cuda/conv_way.h"

namespace aicf {

// What is multiplied; of two axes the first is that of rows. Of three the first is depth: its planes count as
// images, and each of its taps brings boxes of its own.
struct HaloTmaSizes {
  int64_t images = 1, depth = 1, height = 1, width = 1;  // of the result
  int64_t groups = 1, channels = 1, maps = 1;            // channels and maps of a group
  int64_t depth_taps = 1;
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1};
  int64_t element_bytes = 2;  // of x and the weights: 4 in tf32
  bool by_parts = false;      // f32 as three products in tf32
  int64_t tile_bytes = 2;     // of a result as the epilogue takes it
  bool pixel_rows = true;     // neighbours in the result are maps, else pixels
  double result_bytes = 2;    // of each result: itself and what the epilogue reads beside it
  int64_t scattered = 0;      // outputs of pixels that store a sector for each result
  CudaMachine machine;
};

// As Shape and ConvHaloTma in conv_halo_tma.cuh are told.
struct HaloTmaPlan {
  int64_t rows = 1, columns = 1, images = 1;  // of a box
  bool patches = false;                       // columns of the product are eight results of each row
  int64_t maps = 64;                          // of a tile
  int64_t pixels = 8;                         // columns of the product
  int64_t width = 1, height = 1;              // of a phase of a box with its halo
  int64_t phases = 1;                         // of both axes' strides
  int64_t slices = 1, last_instructions = 4;  // of 128 bytes of channels; of each tap of the last
  int64_t buffers = 2, stages = 1;
  bool keeps_weights = false;
  int64_t shared_bytes = 0;
  double microseconds = 0;
};

// The fastest first; none where no box has room or, but by parts, windows do not overlap.
std::vector<HaloTmaPlan> halo_tma_plans(const HaloTmaSizes& sizes);
HaloTmaWay halo_tma_way(const HaloTmaPlan& plan);

}  // namespace aicf
