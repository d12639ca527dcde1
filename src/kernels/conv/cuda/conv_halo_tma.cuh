// Convolution on wgmma (sm_90a) where windows overlap: of a box of pixels the copy engine brings each slice of 128 bytes of
// channels once, with the halo of the window, and the matrix instructions read every tap of the window from that copy, a tap
// being another first address. Rows of the product are maps, 64 of a warpgroup, and columns are pixels, up to 256: of few
// maps an instruction reads less shared memory so. Weights come in stages, one for each slice and tap, or stay in shared
// memory. A result is the sum over slices, over taps in row-major order, over steps of 16 channels, in tf32 of 8. Of three
// axes a tap of the first is as further slices are: a box of its own. Groups have tiles of their own.
// wgmma cuts the last 13 bits of f32: x is rounded to tf32 in shared memory, once for all taps; the weights lie rounded.
// Or f32 is multiplied by parts (tf32_parts.cuh): x is split in shared memory, once for all taps, and weights in the
// registers of the warps that multiply. The sums of a slice and tap are then added in f32, in the order above, and a
// result that is not finite is computed anew by multiply-adds.
#pragma once

#include "conv/cuda/conv.cuh"
#include "matmul/cuda/mma.cuh"
#include "matmul/cuda/tf32_parts.cuh"
#include "matmul/cuda/wgmma_instructions.cuh"
#include "tile/cuda/tile_memory.cuh"

namespace aicf {

// Rows of 128 bytes with the 128-byte swizzle from any of them on; eight rows follow the eight before after `down` rows.
__device__ __forceinline__ uint64_t row_descriptor(uint32_t address, uint32_t down) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(down * 128 >> 4) << 32 | uint64_t(1) << 62;
}

// Shape: constants kSpatialAxes, 1 to 3, kHalves, of an element, kGroups, kChannels and kMaps of a group, kSlices, of
// channels, kLastInstructions, of the last slice, of the result kOutW, kOutH, kOutD, of a box kRows, kColumns, kImages,
// kPatches, and kKernelW, kKernelH, kStrideW, kStrideH, kDilationW, kDilationH, kLowW, kLowH, kKernelD, kStrideD, kDilationD,
// kLowD. The images of a box are the planes of all volumes.
// Positions of x under a box of results. At strides neighbouring windows take every second (third, …) position: positions
// of one remainder, or phase, of both axes lie together, so that those of neighbouring results do, whatever the tap.
// Columns of the product are positions in order from that of a first tap, of which the last of each row have no result;
// or, kPatches, eight results of each row, whose rows are as wide.
template <class Shape>
struct SwizzledBox {
  static constexpr int kPhasesW = Shape::kStrideW < Shape::kKernelW ? Shape::kStrideW : Shape::kKernelW;
  static constexpr int kPhasesH = Shape::kStrideH < Shape::kKernelH ? Shape::kStrideH : Shape::kKernelH;
  static constexpr int kPhases = kPhasesW * kPhasesH;
  // Of a phase.
  static constexpr int kWidth = Shape::kColumns + (Shape::kKernelW - 1) * Shape::kDilationW / Shape::kStrideW;
  static constexpr int kHeight = Shape::kRows + (Shape::kKernelH - 1) * Shape::kDilationH / Shape::kStrideH;
  static constexpr int kPositions = kWidth * kHeight * Shape::kImages;
  static constexpr int kDown = Shape::kPatches ? kWidth : 8;
  static constexpr int kLast =  // position of the last result
      ((Shape::kImages - 1) * kHeight + Shape::kRows - 1) * kWidth + Shape::kColumns - 1;
  static constexpr int kPixels = Shape::kPatches ? 8 * Shape::kRows : (kLast + 8) / 8 * 8;  // columns of the product
  static constexpr int kPhaseBytes = (kPositions * 128 + 1023) / 1024 * 1024, kBytes = kPhases * kPhaseBytes;
  static_assert(!Shape::kPatches || (Shape::kColumns == 8 && Shape::kImages == 1), "patches of eight columns");
  static_assert(kPixels <= 256 && kWidth * Shape::kStrideW <= 256 && kHeight * Shape::kStrideH <= 256,
                "columns of an instruction; what a box may have");
  static_assert(kPhases == 1 || (Shape::kDilationW == 1 && Shape::kDilationH == 1), "every phase has taps");

  static constexpr int kAcross = (Shape::kOutW + Shape::kColumns - 1) / Shape::kColumns,
                       kAlong = (Shape::kOutH + Shape::kRows - 1) / Shape::kRows;
  int w, h, image;  // the first result of box `number`
  __device__ __forceinline__ explicit SwizzledBox(uint32_t number)
      : w(int(number % kAcross) * Shape::kColumns),
        h(int(number / kAcross % kAlong) * Shape::kRows),
        image(int(number / (kAcross * kAlong)) * Shape::kImages) {}

  // Where a tap's first position lies, in bytes.
  static __device__ __forceinline__ constexpr uint32_t tap_offset(int kh, int kw) {
    const int r = kh * Shape::kDilationH, c = kw * Shape::kDilationW;
    return uint32_t((r % Shape::kStrideH * kPhasesW + c % Shape::kStrideW) * kPhaseBytes +
                    (r / Shape::kStrideH * kWidth + c / Shape::kStrideW) * 128);
  }

  // The index among all pixels of the result of `pixel`, a column of the product; whether there is such a result.
  __device__ __forceinline__ bool find(int pixel, int images, int64_t& index) const {
    const int position = pixel / 8 * kDown + pixel % 8;
    const int c = position % kWidth, r = position / kWidth % kHeight, i = position / (kWidth * kHeight);
    const bool inside = pixel < kPixels && c < Shape::kColumns && r < Shape::kRows && i < Shape::kImages &&
                        w + c < Shape::kOutW && h + r < Shape::kOutH && image + i < images;
    index = inside ? (int64_t(image + i) * Shape::kOutH + h + r) * Shape::kOutW + w + c : 0;
    return inside;
  }
};

// A place in a ring of barriers' slots: `count` uses lie before it.
template <int kSlots>
struct RingPlace {
  uint32_t slot, parity;
  __device__ __forceinline__ explicit RingPlace(uint32_t count) : slot(count % kSlots), parity(count / kSlots & 1) {}
  __device__ __forceinline__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Stands for what products by parts take beside others: their first instruction, and operands in global memory.
struct NoParts {};
template <class MultiplyFirst>
constexpr bool kMultipliesParts = true;
template <>
constexpr bool kMultipliesParts<NoParts> = false;

// kBlockMaps: of a block's tile: 64, and two warpgroups take tiles in turns, one multiplying while the other stores; or 128,
// which they share. By parts they share tiles of 64, too, each with half of the pixels, and take turns by steps: one's
// products go on while the other adds. kBuffers: boxes of a slice in shared memory. kKeepsWeights: the stages hold all
// weights, of one tile of maps. kAhead: operands of the epilogue's next chunk are fetched before a chunk is stored.
// kConstantWeights: they are loaded before the launches before this one have finished. Multiply, MultiplyFirst: see
// wgmma_text.h; the latter is of products by parts, else NoParts. kPixelRows: the result's neighbours are maps; else pixels.
template <class Multiply, class MultiplyFirst, class Shape, int kBlockMaps, int kBuffers, int kStages, bool kKeepsWeights,
          bool kPixelRows, bool kAhead, bool kConstantWeights>
struct ConvHaloTma {
  using Box = SwizzledBox<Shape>;
  static constexpr bool kParts = kMultipliesParts<MultiplyFirst>;
  static constexpr bool kPingPong = kBlockMaps == 64 && !kParts, kSharesPixels = kBlockMaps == 64 && kParts;
  static constexpr bool kConverts = Shape::kHalves == 2;  // rounds or splits x
  static constexpr int kTurns = kPingPong ? 2 : 1, kConsumers = 256, kThreads = kConsumers + 128;
  static constexpr int kBoxes = Shape::kKernelD * Shape::kSlices;  // of a tile
  static constexpr int kTaps = Shape::kKernelW * Shape::kKernelH, kSteps = kTaps * kBoxes;  // of a box; stages of a tile
  static constexpr int kMapTiles = (Shape::kMaps + kBlockMaps - 1) / kBlockMaps;
  static constexpr int kPixels = Box::kPixels, kStageBytes = kBlockMaps * 128;
  static constexpr int kColumns = kSharesPixels ? (kPixels / 2 + 7) / 8 * 8 : kPixels;  // of a warpgroup
  static constexpr int kBoxBytes = Box::kBytes * (kParts ? 2 : 1);                      // hi, or all, and lo
  static constexpr int kReaders = 4 * (kPingPong ? 1 : 2);  // warps that read a box or a stage
  static constexpr int kConverters = 64;                    // threads
  static constexpr int kWeightsAt = kBuffers * kBoxBytes, kBarriersAt = kWeightsAt + kStages * kStageBytes;
  static constexpr int kBarrierBytes = (kBuffers * 3 + kStages * 2 + 1) / 2 * 16;
  static constexpr int kChunksAt = kBarriersAt + kBarrierBytes;
  static constexpr int kChunkPixels = 32, kChunks = (kColumns + kChunkPixels - 1) / kChunkPixels;
  template <class Tile>
  static constexpr int kRowBytes = 64 * int(sizeof(Tile)) + 16;  // eight rows lie in different banks
  template <class Tile>
  static constexpr int kMapBytes = (kChunkPixels + 8) * int(sizeof(Tile));  // so do eight maps
  template <class Tile>
  static constexpr int kChunkBytes = kPixelRows ? kChunkPixels * kRowBytes<Tile> : 64 * kMapBytes<Tile>;
  template <class Tile>
  static constexpr int kBytes = kChunksAt + 2 * kChunkBytes<Tile>;
  static_assert(kBlockMaps == 64 || kBlockMaps == 128, "a warpgroup has 64 maps");
  static_assert(!kKeepsWeights || (kStages == kSteps && kMapTiles * Shape::kGroups == 1), "all weights");

  struct Shared {
    uint32_t base;
    __device__ __forceinline__ uint32_t box(uint32_t slot) const { return base + slot * kBoxBytes; }
    __device__ __forceinline__ uint32_t weights(uint32_t slot) const { return base + kWeightsAt + slot * kStageBytes; }
    __device__ __forceinline__ uint32_t barrier(uint32_t number) const { return base + kBarriersAt + number * 8; }
    __device__ __forceinline__ uint32_t loaded(uint32_t slot) const { return barrier(slot); }
    __device__ __forceinline__ uint32_t free(uint32_t slot) const { return barrier(kBuffers + slot); }
    // Of a box that is rounded or split.
    __device__ __forceinline__ uint32_t ready(uint32_t slot) const {
      return kConverts ? barrier(2 * kBuffers + slot) : loaded(slot);
    }
    __device__ __forceinline__ uint32_t full(uint32_t slot) const { return barrier(3 * kBuffers + slot); }
    __device__ __forceinline__ uint32_t empty(uint32_t slot) const { return full(kStages + slot); }
  };

  // Tiles `blockIdx.x`, `blockIdx.x + gridDim.x`, …; tiles of maps of a box, of all groups, follow one another.
  struct Work {
    uint32_t tiles;
    static constexpr int kBoxTiles = kMapTiles * Shape::kGroups;
    __device__ __forceinline__ explicit Work(int images)
        : tiles(uint32_t((images + Shape::kImages - 1) / Shape::kImages) * (Box::kAcross * Box::kAlong * kBoxTiles)) {}
    static __device__ __forceinline__ int group(uint32_t tile) { return int(tile / kMapTiles % Shape::kGroups); }
    static __device__ __forceinline__ int map(uint32_t tile) { return int(tile % kMapTiles) * kBlockMaps; }  // of the group
    static __device__ __forceinline__ Box box(uint32_t tile) { return Box(tile / kBoxTiles); }
  };

  static __device__ __forceinline__ void set_up(const Shared& shared) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kBuffers; ++i) {
        barrier_init(shared.loaded(i), 1);
        barrier_init(shared.free(i), kReaders);
        if constexpr (kConverts) barrier_init(shared.ready(i), kConverters);
      }
      for (int i = 0; i < kStages; ++i) {
        barrier_init(shared.full(i), 1);
        barrier_init(shared.empty(i), kReaders);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // Columns without a pixel read what lies behind a box: zeros, as no sum that is not finite shall come of it.
    if constexpr (kParts) {
      for (int i = int(threadIdx.x) * 16; i < kBuffers * kBoxBytes; i += kThreads * 16)
        store_shared(shared.base + i, {0, 0, 0, 0});
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
  }

  // ---- the warps that load ----

  static constexpr int kSliceChannels = 64 / Shape::kHalves;

  static __device__ void load_boxes(const CUtensorMap* map, const Shared& shared, const Work& work) {
    wait_for_inputs();
    RingPlace<kBuffers> place(0);
    for (uint32_t tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
      const Box box = Work::box(tile);
      for (int number = 0; number < kBoxes; ++number, place.next()) {
        barrier_wait(shared.free(place.slot), place.parity ^ 1);
        const int channel = Work::group(tile) * Shape::kChannels + number % Shape::kSlices * kSliceChannels;
        const uint32_t barrier = shared.loaded(place.slot), to = shared.box(place.slot);
        barrier_expect(barrier, Box::kPhases * Box::kPositions * 128);
#pragma unroll
        for (int phase = 0; phase < Box::kPhases; ++phase) {
          const int w = box.w * Shape::kStrideW - Shape::kLowW + phase % Box::kPhasesW,
                    h = box.h * Shape::kStrideH - Shape::kLowH + phase / Box::kPhasesW;
          if constexpr (Shape::kSpatialAxes == 1) {
            load_box(map, to + phase * Box::kPhaseBytes, barrier, channel, w, box.image);
          } else if constexpr (Shape::kSpatialAxes == 2) {
            load_box(map, to + phase * Box::kPhaseBytes, barrier, channel, w, h, box.image);
          } else {
            const int d = box.image % Shape::kOutD * Shape::kStrideD - Shape::kLowD + number / Shape::kSlices * Shape::kDilationD;
            load_box(map, to + phase * Box::kPhaseBytes, barrier, channel, w, h, d, box.image / Shape::kOutD);
          }
        }
      }
    }
    launch_dependents();
  }

  static __device__ __forceinline__ void load_stage(const CUtensorMap* map, const Shared& shared, uint32_t slot, int step,
                                                    int first_map) {
    const uint32_t to = shared.weights(slot), barrier = shared.full(slot);
    const int number = step / kTaps, tap = step % kTaps;
    const int channel = number % Shape::kSlices * kSliceChannels;
    // Of the axes with several taps, the innermost first (weight_axes).
    constexpr int kAxes = int(Shape::kKernelW > 1) + int(Shape::kKernelH > 1) + int(Shape::kKernelD > 1);
    int at[3], axes = 0;
    if constexpr (Shape::kKernelW > 1) at[axes++] = tap % Shape::kKernelW;
    if constexpr (Shape::kKernelH > 1) at[axes++] = tap / Shape::kKernelW;
    if constexpr (Shape::kKernelD > 1) at[axes++] = number / Shape::kSlices;
    barrier_expect(barrier, kStageBytes);
    if constexpr (kAxes == 0)
      load_box(map, to, barrier, channel, first_map);
    else if constexpr (kAxes == 1)
      load_box(map, to, barrier, channel, at[0], first_map);
    else if constexpr (kAxes == 2)
      load_box(map, to, barrier, channel, at[0], at[1], first_map);
    else
      load_box(map, to, barrier, channel, at[0], at[1], at[2], first_map);
  }
  static __device__ void load_weights(const CUtensorMap* map, const Shared& shared, const Work& work) {
    if (!kConstantWeights) wait_for_inputs();
    if constexpr (kKeepsWeights) {
      for (int step = 0; step < kSteps; ++step) load_stage(map, shared, step, step, 0);
    } else {
      RingPlace<kStages> place(0);
      for (uint32_t tile = blockIdx.x; tile < work.tiles; tile += gridDim.x)
        for (int step = 0; step < kSteps; ++step, place.next()) {
          barrier_wait(shared.empty(place.slot), place.parity ^ 1);
          load_stage(map, shared, place.slot, step, Work::group(tile) * Shape::kMaps + Work::map(tile));
        }
    }
  }

  static __device__ __forceinline__ void round_vectors(uint32_t from, int thread) {
#pragma unroll 4
    for (int i = thread; i < Box::kPositions * 8; i += kConverters) {
      const uint4 v = load_shared(from + i * 16);
      store_shared(from + i * 16, {to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w)});
    }
  }
  // Rounds each box in place, or splits it, before it is read.
  static __device__ void convert_boxes(const Shared& shared, const Work& work, int thread) {
    RingPlace<kBuffers> place(0);
    for (uint32_t tile = blockIdx.x; tile < work.tiles; tile += gridDim.x)
      for (int number = 0; number < kBoxes; ++number, place.next()) {
        barrier_wait(shared.loaded(place.slot), place.parity);
        for (int phase = 0; phase < Box::kPhases; ++phase) {
          const uint32_t from = shared.box(place.slot) + phase * Box::kPhaseBytes;
          if constexpr (kParts)
            split_vectors<kConverters>(from, from + Box::kBytes, Box::kPositions * 8, thread);
          else
            round_vectors(from, thread);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        barrier_arrive(shared.ready(place.slot));
      }
  }

  // ---- the warpgroups that multiply ----

  static __device__ __forceinline__ void release(uint32_t barrier) {
    if ((threadIdx.x & 31) == 0) barrier_arrive(barrier);
  }
  // As in wgmma.cuh.
  static __device__ __forceinline__ void wait_turn(int warpgroup) {
    if constexpr (kPingPong || kParts) asm volatile("bar.sync %0, 256;" ::"r"(1 + warpgroup) : "memory");
  }
  static __device__ __forceinline__ void pass_turn(int warpgroup) {
    if constexpr (kPingPong || kParts) asm volatile("bar.arrive %0, 256;" ::"r"(2 - warpgroup) : "memory");
  }
  static __device__ __forceinline__ void sync_warpgroup(int warpgroup) {
    asm volatile("bar.sync %0, 128;" ::"r"(3 + warpgroup) : "memory");
  }

  template <int kInstructions>
  static __device__ __forceinline__ void step(uint64_t weights, uint64_t pixels, float (&acc)[kColumns / 2]) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kInstructions; ++k)
      Multiply::run(acc, weights + k * wgmma_k_step<true>, pixels + k * wgmma_k_step<true>);
    wgmma_commit();
  }

  // Whether a tile's box `part` has 128 bytes of channels.
  static __device__ __forceinline__ bool is_whole(int part) {
    return Shape::kLastInstructions == 4 || part % Shape::kSlices + 1 < Shape::kSlices;
  }

  // Of tile `number` of the block.
  static __device__ __forceinline__ void accumulate(const Shared& shared, uint32_t number, int warpgroup,
                                                    float (&acc)[kColumns / 2]) {
    RingPlace<kBuffers> x(number * kBoxes);
    RingPlace<kStages> w(kKeepsWeights ? 0 : number * kSteps);
    const uint32_t first_row = uint32_t(map_of(warpgroup)) * 128;
    uint32_t x_before = 0, w_before = 0;
    bool begins = true;
#pragma unroll 1
    for (int part = 0; part < kBoxes; ++part) {
      barrier_wait(shared.ready(x.slot), x.parity);
#pragma unroll 1
      for (int kh = 0; kh < Shape::kKernelH; ++kh) {
#pragma unroll 1
        for (int kw = 0; kw < Shape::kKernelW; ++kw) {
          barrier_wait(shared.full(w.slot), w.parity);
          const uint64_t a = row_descriptor(shared.weights(w.slot) + first_row, 8),
                         b = row_descriptor(shared.box(x.slot) + Box::tap_offset(kh, kw), Box::kDown);
          if (is_whole(part))
            step<4>(a, b, acc);
          else
            step<Shape::kLastInstructions>(a, b, acc);
          wgmma_wait<1>();  // the step before has read its stage
          if (!begins) {
            if (!kKeepsWeights) release(shared.empty(w_before));
            if (kw == 0 && kh == 0) release(shared.free(x_before));
          }
          begins = false;
          w_before = w.slot;
          w.next();
        }
      }
      x_before = x.slot;
      x.next();
    }
    pass_turn(warpgroup);
    wgmma_wait<0>();
    if (!kKeepsWeights) release(shared.empty(w_before));
    release(shared.free(x_before));
  }

  // Of a warpgroup's tile the first map, or pixel, in the block's.
  static __device__ __forceinline__ int map_of(int warpgroup) { return kBlockMaps == 128 ? warpgroup * 64 : 0; }
  static __device__ __forceinline__ int pixel_of(int warpgroup) { return kSharesPixels ? warpgroup * kColumns : 0; }

  // By parts: adds the products of a slice and tap.
  template <int kInstructions>
  static __device__ __forceinline__ void add_step(uint32_t weights, uint32_t pixels, uint32_t empty, int warpgroup,
                                                  float (&sums)[kColumns / 2]) {
    SplitRows<kInstructions> maps;
    maps.load(weights, map_of(warpgroup));
    float acc[kColumns / 2];
    wait_turn(warpgroup);
    maps.template multiply<Multiply, MultiplyFirst>(row_descriptor(pixels, Box::kDown),
                                                    row_descriptor(pixels + Box::kBytes, Box::kDown), acc);
    pass_turn(warpgroup);
    wgmma_wait<0>();
    if (!kKeepsWeights) release(empty);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sums[i] += acc[i];
  }
  static __device__ __forceinline__ void accumulate_parts(const Shared& shared, uint32_t number, int warpgroup,
                                                          float (&sums)[kColumns / 2]) {
    RingPlace<kBuffers> x(number * kBoxes);
    RingPlace<kStages> w(kKeepsWeights ? 0 : number * kSteps);
    const uint32_t first_pixel = uint32_t(pixel_of(warpgroup) / 8 * Box::kDown * 128);
#pragma unroll 1
    for (int part = 0; part < kBoxes; ++part, x.next()) {
      barrier_wait(shared.ready(x.slot), x.parity);
#pragma unroll 1
      for (int kh = 0; kh < Shape::kKernelH; ++kh) {
#pragma unroll 1
        for (int kw = 0; kw < Shape::kKernelW; ++kw, w.next()) {
          barrier_wait(shared.full(w.slot), w.parity);
          const uint32_t weights = shared.weights(w.slot), empty = shared.empty(w.slot),
                         pixels = shared.box(x.slot) + Box::tap_offset(kh, kw) + first_pixel;
          if (is_whole(part))
            add_step<4>(weights, pixels, empty, warpgroup, sums);
          else
            add_step<Shape::kLastInstructions>(weights, pixels, empty, warpgroup, sums);
        }
      }
      release(shared.free(x.slot));
    }
  }

  // By multiply-adds, over taps, then channels; positions outside the image take part as zeros. `map`: of all groups.
  template <class Operands>
  static __device__ float window_sum(const Operands& o, int64_t index, int map) {
    const auto pixel = pixel_at(o, typename Operands::Index(index));
    const float* first = o.x + int64_t(pixel.image) * o.x_batch + int64_t(map / Shape::kMaps) * o.channels * o.x_channel;
    float sum = 0;
    for (int tap = 0; tap < Shape::kKernelD * kTaps; ++tap) {
      const int at[3] = {tap / kTaps, tap / Shape::kKernelW % Shape::kKernelH, tap % Shape::kKernelW};
      const float *x = first, *weights = o.w + int64_t(map) * o.w_map;
      bool inside = true;
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        const auto position = o.axis[a].position(pixel.at[a], at[a]);
        inside = inside && position >= 0 && position < o.axis[a].in;
        x += int64_t(position) * o.axis[a].in_stride;
        weights += int64_t(at[a]) * o.w_tap[a];
      }
      for (int c = 0; c < o.channels && sum == sum; ++c)  // no more is added to NaN
        sum = __fmaf_rn(inside ? x[int64_t(c) * o.x_channel] : 0.0f, weights[int64_t(c) * o.w_channel], sum);
    }
    return sum;
  }
  template <class Operands>
  static __device__ __forceinline__ void compute_anew(const Operands& o, const Box& box, int group, int first_map,
                                                      int first_pixel, int images, float (&sums)[kColumns / 2]) {
    if (!has_non_finite(sums)) return;
    first_map += int(threadIdx.x) / 32 % 4 * 16 + int(threadIdx.x) % 32 / 4;
    first_pixel += int(threadIdx.x) % 4 * 2;
#pragma unroll 1
    for (int i = 0; i < kColumns / 2; ++i) {
      const int map = first_map + i / 2 % 2 * 8, pixel = first_pixel + i / 4 * 8 + i % 2;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j)
        if (j == i) sum = sums[j];
      int64_t index;
      if (fabsf(sum) < __int_as_float(0x7f800000) || map >= Shape::kMaps || !box.find(pixel, images, index)) continue;
      sum = window_sum(o, index, group * Shape::kMaps + map);
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j)
        if (j == i) sums[j] = sum;
    }
  }

  // A chunk of pixels of the warpgroup's maps, as rows of 64 maps.
  template <class Tile>
  static __device__ __forceinline__ void put(uint32_t memory, const float (&acc)[kColumns / 2], int chunk) {
    const int lane = int(threadIdx.x) % 32, map = int(threadIdx.x) / 32 % 4 * 16;
    constexpr int kBlocks = kColumns / 8;  // of eight pixels
    if (map >= Shape::kMaps) return;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (c != chunk) continue;
      if constexpr (sizeof(Tile) == 2) {
        const uint32_t at = memory + (lane / 16 * 8 + lane % 8) * kRowBytes<Tile> + (map + lane / 8 % 2 * 8) * 2;
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
          uint32_t halves[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int block = c * 4 + j + i / 2;
            halves[i] = block < kBlocks ? tile::pack<Tile>(acc[block * 4 + i % 2 * 2], acc[block * 4 + i % 2 * 2 + 1]) : 0;
          }
          asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                           at + j * 8 * kRowBytes<Tile>),
                       "r"(halves[0]), "r"(halves[1]), "r"(halves[2]), "r"(halves[3])
                       : "memory");
        }
      } else {
        const uint32_t at = memory + lane % 4 * 2 * kRowBytes<Tile> + (map + lane / 4) * 4;
#pragma unroll
        for (int j = 0; j < 4 && c * 4 + j < kBlocks; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + (j * 8 + e % 2) * kRowBytes<Tile> + e / 2 * 32),
                         "f"(acc[(c * 4 + j) * 4 + e])
                         : "memory");
      }
    }
  }

  // Threads that have eight maps each of a pixel; pixels at a time; vectors of a thread in a chunk.
  static constexpr int kLanes = Shape::kMaps <= 32 ? 4 : 8, kAtOnce = 128 / kLanes, kVectors = kChunkPixels / kAtOnce;
  template <class Epilogue>
  struct Pixels {
    typename Epilogue::Row rows[kVectors];
    typename Epilogue::template Own<8> own[kVectors];
    bool inside[kVectors];

    __device__ __forceinline__ void find(const Epilogue& epilogue, const Box& box, int images, int first_pixel, int chunk) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        int64_t index;
        const int column = chunk * kChunkPixels + v * kAtOnce + int(threadIdx.x) % 128 / kLanes;
        inside[v] = box.find(first_pixel + column, images, index) && (!kSharesPixels || column < kColumns);
        rows[v] = epilogue.row(index);
      }
    }
    __device__ __forceinline__ void fetch(const Epilogue& epilogue, int v, int column, int end) {
      if (inside[v] && column + 8 <= end) epilogue.fetch(own[v], rows[v], column);
    }
  };

  template <class Epilogue>
  static __device__ __forceinline__ void store(const Epilogue& epilogue, const Box& box, int group, int first_map, int images,
                                               int warpgroup, uint32_t memory, const float (&acc)[kColumns / 2]) {
    using Tile = typename Epilogue::Tile;
    const int thread = int(threadIdx.x) % 128, first_column = group * Shape::kMaps, end = first_column + Shape::kMaps;
    const int column = first_column + first_map + thread % kLanes * 8, first_pixel = pixel_of(warpgroup);
    const uint32_t from = memory + thread / kLanes * kRowBytes<Tile> + thread % kLanes * 8 * uint32_t(sizeof(Tile));
    typename Epilogue::template Shared<8> shared;
    if (column + 8 <= end) epilogue.fetch(shared, column);
    Pixels<Epilogue> pixels;
    pixels.find(epilogue, box, images, first_pixel, 0);
#pragma unroll
    for (int v = 0; kAhead && v < kVectors; ++v) pixels.fetch(epilogue, v, column, end);
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Pixels<Epilogue> next;
      next.find(epilogue, box, images, first_pixel, chunk + 1);
#pragma unroll
      for (int v = 0; kAhead && v < kVectors; ++v) next.fetch(epilogue, v, column, end);
      sync_warpgroup(warpgroup);  // the chunk before has been read
      put<Tile>(memory, acc, chunk);
      sync_warpgroup(warpgroup);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (!pixels.inside[v] || column >= end) continue;
        if (!kAhead) pixels.fetch(epilogue, v, column, end);
        tile::Vec<Tile, 8> values;
#pragma unroll
        for (int i = 0; i < int(sizeof(Tile)) / 2; ++i)
          reinterpret_cast<uint4*>(&values)[i] = load_shared(from + v * kAtOnce * kRowBytes<Tile> + i * 16);
        if (column + 8 <= end)
          epilogue.apply(pixels.rows[v], column, values.at, shared, pixels.own[v]);
        else
          store_columns<8>(epilogue, pixels.rows[v], column, end, values.at);
      }
      pixels = next;
    }
  }

  // A chunk of pixels of a warp's 16 maps, as rows of pixels.
  template <class Tile>
  static __device__ __forceinline__ void put_maps(char* memory, const float (&acc)[kColumns / 2], int chunk) {
    const int lane = int(threadIdx.x) % 32;
    char* at = memory + lane / 4 * kMapBytes<Tile> + lane % 4 * 2 * int(sizeof(Tile));
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (c != chunk) continue;
#pragma unroll
      for (int j = 0; j < 4 && c * 4 + j < kColumns / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float *sums = acc + (c * 4 + j) * 4 + half * 2;
          char* to = at + half * 8 * kMapBytes<Tile> + j * 8 * int(sizeof(Tile));
          if constexpr (sizeof(Tile) == 2)
            *reinterpret_cast<uint32_t*>(to) = tile::pack<Tile>(sums[0], sums[1]);
          else
            *reinterpret_cast<float2*>(to) = {sums[0], sums[1]};
        }
    }
  }

  // Where a result's neighbours are pixels: a warp stores those of each of its maps, which it alone has.
  template <class Epilogue>
  static __device__ __forceinline__ void store_maps(const Epilogue& epilogue, const Box& box, int group, int first_map,
                                                    int images, int warpgroup, char* memory,
                                                    const float (&acc)[kColumns / 2]) {
    using Tile = typename Epilogue::Tile;
    constexpr int kWarpMaps = 16, kImagePixels = Shape::kOutD * Shape::kOutH * Shape::kOutW;
    const int lane = int(threadIdx.x) % 32, warp_map = int(threadIdx.x) / 32 % 4 * kWarpMaps;
    char* from = memory + warp_map * kMapBytes<Tile>;
    const int maps = min(Shape::kMaps - first_map - warp_map, kWarpMaps);
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = chunk * kChunkPixels + lane;
      int64_t index;
      const bool inside =
          box.find(pixel_of(warpgroup) + column, images, index) && (!kSharesPixels || column < kColumns);
      const int64_t image = index / kImagePixels, pixel = index - image * kImagePixels;
      const int64_t row = (image * Shape::kGroups + group) * Shape::kMaps + first_map + warp_map;
      __syncwarp();  // the chunk before has been read
      put_maps<Tile>(from, acc, chunk);
      __syncwarp();
#pragma unroll 4
      for (int m = 0; m < kWarpMaps; ++m) {
        const Tile one[1] = {*reinterpret_cast<const Tile*>(from + m * kMapBytes<Tile> + lane * int(sizeof(Tile)))};
        if (inside && m < maps) epilogue.template apply<1>(epilogue.row(row + m), pixel, one);
      }
    }
  }

  template <class Epilogue, class Operands>
  static __device__ void multiply(const Shared& shared, char* memory, const Work& work, const Epilogue& epilogue, int images,
                                  const Operands& o, int warpgroup) {
    constexpr int kOwnBytes = kChunkBytes<typename Epilogue::Tile>;
    wait_for_inputs();
    if (warpgroup == 1) pass_turn(warpgroup);  // the first turn is warpgroup 0's
    uint32_t number = kPingPong ? uint32_t(warpgroup) : 0;  // of the block's tiles
    for (uint32_t tile = blockIdx.x + number * gridDim.x; tile < work.tiles;
         tile += kTurns * gridDim.x, number += kTurns) {
      const Box box = Work::box(tile);
      const int group = Work::group(tile), first_map = Work::map(tile) + map_of(warpgroup);
      float acc[kColumns / 2];
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) acc[i] = 0.0f;
      if constexpr (kParts) {
        accumulate_parts(shared, number, warpgroup, acc);
        compute_anew(o, box, group, first_map, pixel_of(warpgroup), images, acc);
      } else {
        wait_turn(warpgroup);
        accumulate(shared, number, warpgroup, acc);
      }
      const int own = kChunksAt + warpgroup * kOwnBytes;
      if constexpr (kPixelRows)
        store(epilogue, box, group, first_map, images, warpgroup, shared.base + own, acc);
      else
        store_maps(epilogue, box, group, first_map, images, warpgroup, memory + own, acc);
    }
  }

  // `o`: by parts, ConvOperands.
  template <class Epilogue, class Operands = NoParts>
  static __device__ void run(const CUtensorMap* x_map, const CUtensorMap* w_map, const Epilogue& epilogue, int images,
                             const Operands& o = {}) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    if (threadIdx.x == kConsumers) {
      prefetch_map(*x_map);
      prefetch_map(*w_map);
    }
    const Work work(images);
    // From one lane, so that the compiler sees that a warp does not diverge.
    const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0), warpgroup = warp / 4;
    set_up(shared);
    if (warpgroup == 2) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kParts ? 56 : 40));
      if (threadIdx.x == kConsumers) load_boxes(x_map, shared, work);
      if (threadIdx.x == kConsumers + 32) load_weights(w_map, shared, work);
      if (kConverts && warp >= 10) convert_boxes(shared, work, int(threadIdx.x) - (kThreads - kConverters));
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kParts ? 224 : 232));
      multiply(shared, memory, work, epilogue, images, o, warpgroup);
    }
  }
};

}  // namespace aicf
