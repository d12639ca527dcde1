// The decisions of one pooling step, made at bind, and the ways to run it.
#pragma once

#include <algorithm>

#include "kernels/conv/windows.h"

namespace aicf {

struct PoolPlan {
  Windows windows;
  int64_t batch, channels, flag;  // flag: count_include_pad or column_major
  int64_t x_batch, x_channel, out_batch, out_channel;
  int64_t rows, row_tile, row_tiles;  // output rows (all planes): one is the last axis of the result
};

// Kernel positions of the window at `o` inside the padded input.
inline int64_t padded_count(const WindowAxis& axis, int64_t o) {
  const int64_t first = axis.position(o, 0), room = axis.in + axis.high - 1 - first;
  return room < 0 ? 0 : std::min(axis.kernel, room / axis.dilation + 1);
}

// f32 with x and result channels-last: a tile is one row of the last axis, all channels at once. The values
// of a window are taken in the same order as plane by plane.
void max_channels_last(const BoundCall& call, int64_t tile, std::byte* scratch);
void average_channels_last(const BoundCall& call, int64_t tile, std::byte* scratch);

}  // namespace aicf
