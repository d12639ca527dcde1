// Gradient of a convolution's weights with mma.sync, for few channels and maps: a block goes through boxes of positions of dy
// and copies them, and x under their windows, once for all taps; while one box is multiplied the next is on its way. Rows of
// a product are (tap, channel), columns maps, and K runs over a box's positions, 16 at a time; a warp has some rows and
// columns of a group. A part is the sum over the boxes of a block in ascending order.
#pragma once

#include "conv/cuda/weight_gradient.cuh"
#include "conv/cuda/window_box.cuh"

namespace aicf {

template <class T, class I>
struct GradientBoxOperands {
  using Element = T;
  using Index = I;
  const T* x;
  const T* y;
  WindowAxis<I> axis[3];  // in_stride, out_stride: of x and dy
  I images, groups, channels, maps;           // channels and maps of a group
  I x_batch, x_channel, y_batch, y_channel;  // strides
};

// Shape: that of WindowBox, and kGroups, kGroupChannels, kGroupMaps: a block has so many groups, whole ones whose channels
// and maps begin at multiples of 8, or of one so many channels and maps. kTileRows, kTileColumns: blocks of 16 rows and of 8 columns of a warp.
// kDepthWarps: so many warps have the same of them and share a box's positions. kXUnit, kYUnit: see WindowBox.
template <class T, class Shape, int kTileRows, int kTileColumns, int kDepthWarps, int kXUnit, int kYUnit>
struct WeightGradientMma {
  static constexpr int kC = Shape::kGroupChannels, kM = Shape::kGroupMaps, kGroups = Shape::kGroups;
  static constexpr int kTaps = Shape::kKernelH * Shape::kKernelW;
  static constexpr int kChunks = chunks_of_group(kC), kBlocks = chunks_of_group(kM);
  static constexpr int kRowSplits = (kTaps * kChunks + 2 * kTileRows - 1) / (2 * kTileRows);
  static constexpr int kColumnSplits = (kBlocks + kTileColumns - 1) / kTileColumns;
  static constexpr int kUnits = kGroups * kRowSplits * kColumnSplits, kThreads = kUnits * kDepthWarps * 32;
  struct Results {
    static constexpr int kRows = Shape::kRows, kColumns = Shape::kColumns, kKernelH = 1, kKernelW = 1, kStrideH = 1,
                         kStrideW = 1, kDilationH = 1, kDilationW = 1;
  };
  using XBox = WindowBox<T, Shape, chunk_offset(kGroups - 1, kC) + kChunks * 8, kXUnit, kThreads>;
  using YBox = WindowBox<T, Results, chunk_offset(kGroups - 1, kM) + kBlocks * 8, kYUnit, kThreads>;
  // Positions that fill the last step of K are zero in dy.
  static constexpr int kSteps = (YBox::kResults + 15) / 16, kYBytes = kSteps * 16 * YBox::kPitch;
  static constexpr int kBufferBytes = XBox::kBytes + kYBytes;

  struct Unit {
    int group, first_row, first_column, depth;  // in blocks of 16 rows and of 8 columns; depth: which of kDepthWarps
    __device__ __forceinline__ Unit() {
      const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0), tile = warp % kUnits;
      depth = warp / kUnits;
      group = tile / (kRowSplits * kColumnSplits);
      first_row = tile / kColumnSplits % kRowSplits * kTileRows;
      first_column = tile % kColumnSplits * kTileColumns;
    }
  };

  // Adds the products of a box. `taps`: from a result's first position to what the lane reads of x in each block of rows.
  static __device__ __forceinline__ void multiply(uint32_t x, uint32_t y, int depth, const int (&taps)[kTileRows],
                                                  float (&acc)[kTileRows][kTileColumns][4]) {
    const int lane = int(threadIdx.x) % 32;
    for (int step = depth; step < kSteps; step += kDepthWarps) {
      const int result = step * 16 + lane % 8 + lane / 16 * 8;
      const uint32_t from = x + XBox::result_offset(result < XBox::kResults ? result : 0);
      const uint32_t gradient = y + (step * 16 + lane % 16) * YBox::kPitch;
      uint32_t b[kTileColumns][2];
#pragma unroll
      for (int j = 0; j < kTileColumns; j += 2) {
        uint32_t two[4];
        load_matrices<true>(two, gradient + (j + (j + 1 < kTileColumns ? lane / 16 : 0)) * 16);
        b[j][0] = two[0], b[j][1] = two[1];
        if (j + 1 < kTileColumns) b[j + 1][0] = two[2], b[j + 1][1] = two[3];
      }
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) {
        uint32_t a[4];
        load_matrices<true>(a, from + taps[i]);
#pragma unroll
        for (int j = 0; j < kTileColumns; ++j) mma_16x8x16(T{}, acc[i][j], a, b[j][0], b[j][1]);
      }
    }
  }

  // Grid: x: parts / kDepthWarps blocks that share the boxes of all images, y: slices of groups, z: those of a group's
  // channels and maps, channels fastest. `results`: the parts, rows of a group's maps and groups and parts so far apart.
  template <class O>
  static __device__ void run(const O& o, float* results, typename O::Index group_distance, typename O::Index part_distance) {
    using I = typename O::Index;
    extern __shared__ __align__(128) char shared[];
    const int lane = int(threadIdx.x) % 32;
    const Unit unit;
    const I first_group = I(blockIdx.y) * kGroups, groups_left = o.groups - first_group;
    const I slices = tiles_of<I>(o.channels, kC), first_channel = I(blockIdx.z) % slices * kC,
            first_map = I(blockIdx.z) / slices * kM;
    const T* x = o.x + (first_group * o.channels + first_channel) * o.x_channel;
    const T* y = o.y + (first_group * o.maps + first_map) * o.y_channel;
    const I channels_left = kGroups > 1 ? groups_left * kC : o.channels - first_channel,
            maps_left = kGroups > 1 ? groups_left * kM : o.maps - first_map;
    WindowAxis<I> y_axis[3];
#pragma unroll
    for (int a = 0; a < 3; ++a) y_axis[a] = {o.axis[a].out, o.axis[a].out, 1, 1, 0, 0, 1, o.axis[a].out_stride, 0};
    const I boxes = o.images * tiles_of<I>(o.axis[1].out, Shape::kRows) * tiles_of<I>(o.axis[2].out, Shape::kColumns);
    const auto load = [&](I number, int buffer) {
      if (number < boxes) {
        const BoxPlace<Shape, I> at(o, number);
        const BoxPlace<Results, I> y_at(o, number);
        char* to = shared + buffer * kBufferBytes;
        XBox::load(o.axis, x + at.image * o.x_batch, o.x_channel, channels_left, at, to);
        YBox::load(y_axis, y + at.image * o.y_batch, o.y_channel, maps_left, y_at, to + XBox::kBytes);
      }
      commit_copies();
    };
    int taps[kTileRows];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      const int at = (unit.first_row + i) * 2 + lane / 8 % 2, row = at < kTaps * kChunks ? at : 0;
      taps[i] = XBox::tap_offset(row / kChunks) + (chunk_offset(unit.group, kC) + row % kChunks * 8) * 2;
    }
    constexpr int kPadding = kSteps * 16 - YBox::kResults;
    if constexpr (kPadding > 0)
      for (int i = int(threadIdx.x); i < 2 * kPadding * YBox::kPitch / 16; i += kThreads) {
        const int buffer = i / (kPadding * YBox::kPitch / 16), at = i % (kPadding * YBox::kPitch / 16);
        *reinterpret_cast<uint4*>(shared + buffer * kBufferBytes + XBox::kBytes + YBox::kBytes + at * 16) = uint4{};
      }
    float acc[kTileRows][kTileColumns][4] = {};
    load(I(blockIdx.x), 0);
    int buffer = 0;
    for (I number = I(blockIdx.x); number < boxes; number += I(gridDim.x), buffer ^= 1) {
      load(I(number + I(gridDim.x)), buffer ^ 1);
      wait_for_copies<1>();
      __syncthreads();
      const uint32_t at = shared_address(shared) + buffer * kBufferBytes;
      multiply(at, at + XBox::kBytes + (chunk_offset(unit.group, kM) + unit.first_column * 8) * 2, unit.depth, taps, acc);
      __syncthreads();
    }
    wait_for_copies<0>();
    if (unit.group >= groups_left) return;
    float* to = results + (I(blockIdx.x) * kDepthWarps + unit.depth) * part_distance +
                (first_group + unit.group) * group_distance;
#pragma unroll
    for (int i = 0; i < kTileRows; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (unit.first_row + i) * 2 + half, tap = row / kChunks;
        const int channel = chunk_offset(unit.group, kC) + row % kChunks * 8 + lane / 4 - unit.group * kC;
        if (tap >= kTaps || channel < 0 || channel >= kC || first_channel + channel >= o.channels) continue;
        float* row_at = to + (tap * o.channels + first_channel + channel) * o.maps + first_map;
#pragma unroll
        for (int j = 0; j < kTileColumns; ++j) {
          const int map = chunk_offset(unit.group, kM) + (unit.first_column + j) * 8 + lane % 4 * 2 - unit.group * kM;
          const auto exists = [&](int m) { return m >= 0 && m < kM && first_map + m < o.maps; };
          if (o.maps % 2 == 0 && kM % 2 == 0) {
            if (exists(map)) *reinterpret_cast<float2*>(row_at + map) = float2{acc[i][j][half * 2], acc[i][j][half * 2 + 1]};
          } else {
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (exists(map + e)) row_at[map + e] = acc[i][j][half * 2 + e];
          }
        }
      }
  }
};

}  // namespace aicf
