// Gradient of a convolution's weights on wgmma (sm_90a) where windows overlap: of a box of positions of dy, eight wide, the
// copy engine brings dy, and of x 64 channels with the halo of the window, once for all taps that a block has. The matrix
// instructions read every tap's positions from that copy, a tap being another first address. Rows of the product are the
// channels, 64 of a tap, columns maps, and K runs over a box's positions, two rows of eight in a step. A part is the sum
// over its boxes in ascending order, steps of 16 positions each.
// Positions of a box that dy lacks come as zeros. Where they meet a number of x that is not finite the sum becomes NaN: it
// is then computed anew by multiply-adds.
#pragma once

#include "conv/cuda/conv_halo_tma.cuh"
#include "conv/cuda/weight_gradient_wgmma.cuh"

namespace aicf {

// Shape: see SwizzledBox, of slices kSlices; kKernelH: rows of the window of a block, kTapRows: all. A block has kMaps maps and its taps: kUnits of each of
// kWarpgroups warpgroups, in row-major order.
template <class T, class Multiply, class Shape, int kMaps, int kUnits, int kWarpgroups, int kStages>
struct WeightGradientHalo {
  using Box = SwizzledBox<Shape>;
  static constexpr int kTaps = Shape::kKernelW * Shape::kKernelH, kConsumers = kWarpgroups * 128;
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kPanel = Shape::kRows * 8 * 128, kPanels = kMaps / 64;  // of dy: 64 maps of a box, in bytes
  static constexpr int kStageBytes = Box::kBytes + kPanels * kPanel;
  static constexpr int kLoadedBytes = Box::kPhases * Box::kPositions * 128 + kPanels * kPanel;
  static constexpr int kSteps = Shape::kRows / 2;
  static constexpr int kBytes = kStages * (kStageBytes + 16);
  static constexpr bool kRagged = Shape::kOutW % 8 != 0 || Shape::kOutH % Shape::kRows != 0;
  static_assert(Shape::kRows % 2 == 0 && kMaps % 64 == 0 && kUnits * kWarpgroups >= kTaps, "whole steps and panels");

  struct Shared {
    uint32_t base;
    __device__ __forceinline__ uint32_t x(uint32_t slot) const { return base + slot * kStageBytes; }
    __device__ __forceinline__ uint32_t y(uint32_t slot) const { return x(slot) + Box::kBytes; }
    __device__ __forceinline__ uint32_t full(uint32_t slot) const { return base + kStages * kStageBytes + slot * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t slot) const { return full(kStages + slot); }
  };

  // Block `blockIdx.x` has part `blockIdx.x % parts` of the boxes of all images for tile `blockIdx.x / parts`; tiles of
  // rows of the window follow one another, then those of channels, then those of maps.
  struct Work {
    uint32_t begin, end;  // boxes
    int first_row, channel, map;
    __device__ __forceinline__ Work(int images, uint32_t parts) {
      const uint32_t tile = blockIdx.x / parts, part = blockIdx.x % parts;
      const uint64_t boxes = uint64_t(images) * (Box::kAcross * Box::kAlong);
      begin = uint32_t(boxes * part / parts);
      end = uint32_t(boxes * (part + 1) / parts);
      constexpr uint32_t kRowTiles = Shape::kTapRows / Shape::kKernelH;
      first_row = int(tile % kRowTiles) * Shape::kKernelH;
      channel = int(tile / kRowTiles % Shape::kSlices) * 64;
      map = int(tile / (kRowTiles * Shape::kSlices)) * kMaps;
    }
  };

  static __device__ __forceinline__ void set_up(const Shared& shared) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        barrier_init(shared.full(i), 1);
        barrier_init(shared.empty(i), kConsumers / 32);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }

  static __device__ void load(const CUtensorMap* x_map, const CUtensorMap* y_map, const Shared& shared, const Work& work) {
    RingPlace<kStages> place(0);
    for (uint32_t number = work.begin; number < work.end; ++number, place.next()) {
      const Box box(number);
      barrier_wait(shared.empty(place.slot), place.parity ^ 1);
      const uint32_t barrier = shared.full(place.slot);
      barrier_expect(barrier, kLoadedBytes);
#pragma unroll
      for (int phase = 0; phase < Box::kPhases; ++phase) {
        const int w = box.w * Shape::kStrideW - Shape::kLowW + phase % Box::kPhasesW,
                  h = box.h * Shape::kStrideH - Shape::kLowH + work.first_row * Shape::kDilationH + phase / Box::kPhasesW;
        load_box(x_map, shared.x(place.slot) + phase * Box::kPhaseBytes, barrier, work.channel, w, h, box.image);
      }
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        load_box(y_map, shared.y(place.slot) + panel * kPanel, barrier, work.map + panel * 64, box.w, box.h, box.image);
    }
  }

  // Panels of 64 maps, in which eight positions follow the eight before.
  static __device__ __forceinline__ uint64_t panel_descriptor(uint32_t address) {
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(kPanel >> 4) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
  }

  static __device__ __forceinline__ void accumulate(const Shared& shared, const Work& work, int warpgroup,
                                                    float (&acc)[kUnits][kMaps / 2]) {
    uint32_t taps[kUnits];  // where they begin; those of a last warpgroup beyond the last are the last
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int tap = min(warpgroup * kUnits + i, kTaps - 1);
      taps[i] = Box::tap_offset(tap / Shape::kKernelW, tap % Shape::kKernelW);
    }
    RingPlace<kStages> place(0);
    uint32_t before = 0;
    for (uint32_t number = work.begin; number < work.end; ++number, place.next()) {
      barrier_wait(shared.full(place.slot), place.parity);
      const uint64_t y = panel_descriptor(shared.y(place.slot));
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
#pragma unroll
        for (int i = 0; i < kUnits; ++i)
          Multiply::run(acc[i], row_descriptor(shared.x(place.slot) + taps[i], Box::kDown) + k * (2 * Box::kDown * 128 >> 4),
                        y + k * (2 * 1024 >> 4));
      wgmma_commit();
      wgmma_wait<1>();  // the products of the box before have read it
      if (number != work.begin && threadIdx.x % 32 == 0) barrier_arrive(shared.empty(before));
      before = place.slot;
    }
    wgmma_wait<0>();
  }

  // By multiply-adds, over the part's positions; those of x outside the image take part as zeros.
  template <class O>
  static __device__ float position_sum(const O& o, const Work& work, int tap, int channel, int map) {
    using I = typename O::Index;
    const int kh = tap / Shape::kKernelW, kw = tap % Shape::kKernelW;
    float sum = 0;
    for (uint32_t number = work.begin; number < work.end; ++number) {
      const Box box(number);
      for (int p = 0; p < Shape::kRows * 8; ++p) {
        const int r = box.h + p / 8, c = box.w + p % 8;
        if (r >= Shape::kOutH || c >= Shape::kOutW || sum != sum) continue;  // no more is added to NaN
        const I h = o.axis[1].position(I(r), I(kh)), w = o.axis[2].position(I(c), I(kw));
        const bool inside = h >= 0 && h < o.axis[1].in && w >= 0 && w < o.axis[2].in;
        const T* x = o.x + box.image * o.x_batch + h * o.axis[1].in_stride + w * o.axis[2].in_stride + channel;
        const T* y = o.y + box.image * o.y_batch + r * o.axis[1].out_stride + c * o.axis[2].out_stride + map;
        sum = __fmaf_rn(inside ? Element<T>::load(*x) : 0.0f, Element<T>::load(*y), sum);
      }
    }
    return sum;
  }

  template <class O>
  static __device__ __forceinline__ void store(const O& o, const Work& work, int warpgroup, float* results,
                                               typename O::Index row_distance, const float (&acc)[kUnits][kMaps / 2]) {
    const int lane = int(threadIdx.x) % 32, first_channel = work.channel + int(threadIdx.x) / 32 % 4 * 16 + lane / 4,
              first_map = work.map + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int unit = warpgroup * kUnits + i, tap = work.first_row * Shape::kKernelW + unit;
      if (unit >= kTaps) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int channel = first_channel + half * 8;
        if (channel >= o.channels) continue;
        float* to = results + (int64_t(tap) * o.channels + channel) * row_distance + first_map;
        float zero = 0;
#pragma unroll
        for (int j = 0; j < kMaps / 8; ++j) {
          const float2 pair = {acc[i][j * 4 + half * 2], acc[i][j * 4 + half * 2 + 1]};
          if (first_map + j * 8 < row_distance) *reinterpret_cast<float2*>(to + j * 8) = pair;
          if (kRagged) zero = __fmaf_rn(pair.x, 0.0f, __fmaf_rn(pair.y, 0.0f, zero));
        }
        if constexpr (kRagged) {
          if (zero == 0) continue;
#pragma unroll 1
          for (int j = 0; j < kMaps / 4; ++j) {  // its own, from memory
            const int column = j / 2 * 8 + j % 2, map = first_map + column;
            if (map < o.maps && to[column] != to[column]) to[column] = position_sum(o, work, tap, channel, map);
          }
        }
      }
    }
  }

  // `results`: the parts, rows and parts so far apart.
  template <class O>
  static __device__ void run(const CUtensorMap* x_map, const CUtensorMap* y_map, const O& o, uint32_t parts, float* results,
                             typename O::Index row_distance, typename O::Index part_distance) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    if (threadIdx.x == kConsumers) {
      prefetch_map(*x_map);
      prefetch_map(*y_map);
    }
    const Work work(int(o.images), parts);
    // From one lane, so that the compiler sees that a warp does not diverge.
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    set_up(shared);
    if (warpgroup == kWarpgroups) {
      if (threadIdx.x == kConsumers) load(x_map, y_map, shared, work);
    } else {
      float acc[kUnits][kMaps / 2];
#pragma unroll
      for (int i = 0; i < kUnits; ++i)
#pragma unroll
        for (int j = 0; j < kMaps / 2; ++j) acc[i][j] = 0.0f;
      accumulate(shared, work, warpgroup, acc);
      store(o, work, warpgroup, results + (blockIdx.x % parts) * part_distance, row_distance, acc);
    }
  }
};

}  // namespace aicf
