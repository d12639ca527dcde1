// Gradient of a convolution's weights on wgmma (sm_90a) where windows overlap: of a box of positions of dy, eight wide, the
// copy engine brings dy, and of x 64 channels with the halo of the window, once for all taps that a block has. The matrix
// instructions read every tap's positions from that copy, a tap being another first address. Rows of the product are the
// channels, 64 of a tap, columns maps, and K runs over a box's positions, two rows of eight in a step. A part is the sum
// over its boxes in ascending order, steps of 16 positions each.
// Positions of a box that dy lacks come as zeros. Where they meet a number of x that is not finite the sum becomes NaN: it
// is then computed anew by multiply-adds.
// Few parts are blocks of a cluster, which add each other's from shared memory, in order, and store the result.
#pragma once

#include "conv/cuda/conv_halo_tma.cuh"
#include "conv/cuda/weight_gradient_wgmma.cuh"

namespace aicf {

// Shape: see SwizzledBox, of slices kSlices; kKernelH: rows of the window of a block, kTapRows: all. A block has kMaps maps and its taps: kUnits of each of
// kWarpgroups warpgroups, in row-major order. kCluster: blocks that add their parts; none: parts go to the workspace. kTapsLast: of
// the result's axes taps lie innermost, else channels do.
template <class T, class Multiply, class Shape, int kMaps, int kUnits, int kWarpgroups, int kStages, int kCluster, bool kTapsLast>
struct WeightGradientHalo {
  using Box = SwizzledBox<Shape>;
  static constexpr int kTaps = Shape::kKernelW * Shape::kKernelH, kConsumers = kWarpgroups * 128;
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kPanel = Shape::kRows * 8 * 128, kPanels = kMaps / 64;  // of dy: 64 maps of a box, in bytes
  static constexpr int kStageBytes = Box::kBytes + kPanels * kPanel;
  static constexpr int kLoadedBytes = Box::kPhases * Box::kPositions * 128 + kPanels * kPanel;
  static constexpr int kSteps = Shape::kRows / 2;
  // Of a panel's sums: from a channel to the next, from a tap to the next. Pairs of maps of four channels lie in different
  // banks, and so do four maps of most neighbouring taps and channels.
  static constexpr int kSumRow = 72, kSumTap = 64 * kSumRow + 4, kSumBytes = kTaps * kSumTap * 4;
  static constexpr int kPipelineBytes = kStages * (kStageBytes + 16);
  static constexpr int kBytes = kCluster > 0 && kSumBytes > kPipelineBytes ? kSumBytes : kPipelineBytes;
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

  // Maps kFirst … kFirst + kCount - 1 of the block's, in rows: row(unit, channel) is that of these maps, of the block's taps
  // and of its channels; `columns` of it exist.
  template <int kFirst, int kCount, class O, class Row>
  static __device__ __forceinline__ void store(const O& o, const Work& work, int warpgroup, const Row& row, int64_t columns,
                                               const float (&acc)[kUnits][kMaps / 2]) {
    const int lane = int(threadIdx.x) % 32, first_channel = int(threadIdx.x) / 32 % 4 * 16 + lane / 4,
              first_column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int unit = warpgroup * kUnits + i, tap = work.first_row * Shape::kKernelW + unit;
      if (unit >= kTaps) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int channel = work.channel + first_channel + half * 8;
        if (channel >= o.channels) continue;
        float* to = row(unit, first_channel + half * 8) + first_column;
        float zero = 0;
#pragma unroll
        for (int j = 0; j < kCount / 8; ++j) {
          const int at = (kFirst / 8 + j) * 4 + half * 2;
          const float2 pair = {acc[i][at], acc[i][at + 1]};
          if (first_column + j * 8 < columns) *reinterpret_cast<float2*>(to + j * 8) = pair;
          if (kRagged) zero = __fmaf_rn(pair.x, 0.0f, __fmaf_rn(pair.y, 0.0f, zero));
        }
        if constexpr (kRagged) {
          if (zero == 0) continue;
#pragma unroll 1
          for (int j = 0; j < kCount / 4; ++j) {  // its own, from memory
            const int column = j / 2 * 8 + j % 2, map = work.map + kFirst + first_column + column;
            if (map < o.maps && to[column] != to[column]) to[column] = position_sum(o, work, tap, channel, map);
          }
        }
      }
    }
  }

  // All threads of the blocks that add each other's parts.
  static __device__ __forceinline__ void wait_for_cluster() {
    __syncwarp();
    if constexpr (kCluster > 1)
      cluster_barrier();
    else
      __syncthreads();
  }
  // Four maps of block `rank`.
  static __device__ __forceinline__ void load_part(const float* sums, uint32_t rank, float (&values)[4]) {
    *reinterpret_cast<uint4*>(values) = kCluster == 1 ? *reinterpret_cast<const uint4*>(sums)
                                                      : load_cluster_shared(shared_address(sums), rank);
  }

  // The result of the 64 maps from `map` on: of a cluster each block has as many fours of them. A warp has all places of four
  // maps, or every kWarpsOfQuad-th 32 of them, and lanes are neighbours in the result.
  template <class R>
  static __device__ __forceinline__ void store_result(const R& result, const Work& work, int map, const float* sums) {
    using I = typename R::Index;
    constexpr int kParts = kCluster > 1 ? kCluster : 1, kOwn = (16 + kParts - 1) / kParts * 4, kQuads = kOwn / 4;
    constexpr int kWarps = kThreads / 32, kAcross = kWarps < kQuads ? kWarps : kQuads, kWarpsOfQuad = kWarps / kAcross;
    constexpr int kPlaces = 64 * kTaps;
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int first = kCluster > 1 ? int(cluster_rank()) * kOwn : 0, left = int(result.maps) - map - first;
    const int quads = min(kQuads, (64 - first) / 4);
    if (warp >= kAcross * kWarpsOfQuad) return;
    for (int place = warp / kAcross * 32 + lane; place < kPlaces; place += kWarpsOfQuad * 32) {
      const int unit = kTapsLast ? place % kTaps : place / 64, channel = kTapsLast ? place / kTaps : place % 64;
      if (work.channel + channel >= result.channels) continue;
      const int kh = work.first_row + unit / Shape::kKernelW, kw = unit % Shape::kKernelW;
      auto* to = result.out + I(work.channel + channel) * result.out_channel + I(kh) * result.out_tap[1] +
                 I(kw) * result.out_tap[2] + int64_t(map + first) * result.out_map;
      const float* from = sums + unit * kSumTap + channel * kSumRow + first;
#pragma unroll 1
      for (int quad = warp % kAcross; quad < quads; quad += kAcross) {
        float parts[kParts][4];
#pragma unroll
        for (int p = 0; p < kParts; ++p) load_part(from + quad * 4, uint32_t(p), parts[p]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float sum = parts[0][i];
#pragma unroll
          for (int p = 1; p < kParts; ++p) sum += parts[p][i];
          const int m = quad * 4 + i;
          if (m < left) to[int64_t(m) * result.out_map] = Element<typename R::Stored>::store(sum);
        }
      }
    }
  }

  // By panels of 64 maps.
  template <int kPanel64, class O, class R>
  static __device__ __forceinline__ void finish(const O& o, const R& result, const Work& work, int warpgroup, float* sums,
                                                const float (&acc)[kUnits][kMaps / 2]) {
    if constexpr (kPanel64 < kPanels) {
      const int map = work.map + kPanel64 * 64;
      const auto row = [&](int unit, int channel) { return sums + unit * kSumTap + channel * kSumRow; };
      wait_for_cluster();  // what lies there has been read
      if (warpgroup < kWarpgroups) store<kPanel64 * 64, 64>(o, work, warpgroup, row, 64, acc);
      wait_for_cluster();
      store_result(result, work, map, sums);
      finish<kPanel64 + 1>(o, result, work, warpgroup, sums, acc);
    } else {
      wait_for_cluster();  // shared memory of a block that ends is gone
    }
  }

  // `results`: the parts, rows and parts so far apart. `result`: where the blocks add them, WeightGradientResult.
  template <class O, class R>
  static __device__ void run(const CUtensorMap* x_map, const CUtensorMap* y_map, const O& o, uint32_t parts, float* results,
                             typename O::Index row_distance, typename O::Index part_distance, const R& result) {
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
    float acc[kUnits][kMaps / 2];
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
#pragma unroll
      for (int j = 0; j < kMaps / 2; ++j) acc[i][j] = 0.0f;
    if (warpgroup < kWarpgroups)
      accumulate(shared, work, warpgroup, acc);
    else if (threadIdx.x == kConsumers)
      load(x_map, y_map, shared, work);
    if constexpr (kCluster > 0) {
      finish<0>(o, result, work, warpgroup, reinterpret_cast<float*>(memory), acc);
    } else if (warpgroup < kWarpgroups) {
      float* own = results + (blockIdx.x % parts) * part_distance;
      const auto row = [&](int unit, int channel) {
        const int tap = work.first_row * Shape::kKernelW + unit;
        return own + (int64_t(tap) * o.channels + work.channel + channel) * row_distance + work.map;
      };
      store<0, kMaps>(o, work, warpgroup, row, int64_t(row_distance) - work.map, acc);
    }
  }
};

}  // namespace aicf
