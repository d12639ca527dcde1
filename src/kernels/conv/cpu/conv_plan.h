// The decisions of one conv step, made at bind. As a contraction, rows are the output channels of a group, K
// runs over (kernel positions in row-major order, input channel of the group), and columns are output
// positions ("pixels") in row-major order; with packed weights rows and columns change places.
#pragma once

#include "kernels/conv/windows.h"

namespace aicf {

struct ConvView {
  int64_t batch, channel, spatial[kSpatialAxes];
  int64_t collapsed;  // pixels lie spatial[2] elements apart
};

// Only int64_t inside: it lives in BoundCall::state. Scratch offsets in bytes, -1 where not used.
struct ConvPlan {
  Windows windows;
  int64_t batch, groups, group_channels, group_maps;
  int64_t k, pixels;
  int64_t x_batch, x_channel;
  int64_t w_map, w_channel, w_kernel[kSpatialAxes], w_dense;  // dense: K is contiguous in a row of w
  int64_t has_bias, bias_stride;
  int64_t x_is_matrix;  // 1 × 1 windows: pixel p of channel c is x[c * x_channel + p * axis[2].in_stride]
  int64_t operands;
  ConvView operand[kMaxTileOperands];  // of the epilogue, then the outputs; without epilogue the result alone
  int64_t row_tile, column_tile, row_tiles, column_tiles;
  int64_t splits_pixels;  // packed weights only: tiles differ in pixels, not in output channels alone
  int64_t fetches_x, fetches_out;  // packed weights only: they are not near, so asked for ahead of their use
  int64_t w_offset, x_offset, c_offset, program_offset;
};

// Checks params, shapes and epilogue operands; fills all but tiles and scratch. Inputs: x, w, bias if
// has_bias, epilogue operands. Packed weights are bytes, which the caller checks; the kernel sizes are
// params.
ConvPlan plan_conv(const BoundCall& call, bool packed, const char* name);

struct ConvParams {
  enum Form { kPlain, kTransposed, kPacked };
  int64_t spatial, groups, has_bias;
  WindowParams windows;
  const int64_t* output_padding;  // kTransposed only
  const int64_t* kernel;          // kPacked only
};
ConvParams read_conv_params(const BoundCall& call, ConvParams::Form form, const char* name);
void check_bias(const BoundCall& call, const ConvParams& params, int64_t maps, const char* name);

}  // namespace aicf
