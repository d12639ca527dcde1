// Convolution of f16 and bf16 with wgmma (sm_90a) where channels are few: a block keeps the weights of a slice of maps, its
// warpgroups go through boxes of pixels, each by itself. A warpgroup copies of each box the positions under the windows once,
// with their halo; the matrix instructions read them for every tap from the same copy, a tap being another first address.
// While one warpgroup stores results the others multiply. A result is the sum over steps of 16 of K: of each tap in row-major
// order the pairs of 8 channels, then the last 8 of an odd number, two taps a step.
#pragma once

#include "conv/cuda/window_box.cuh"
#include "matmul/cuda/wgmma_instructions.cuh"

namespace aicf {

// Eight rows of 16 bytes follow one another: k … k + 7 of eight rows of a matrix that lies without a swizzle. `across`: from
// there to the next 8 of k, `down`: to the next eight rows, in 16 bytes.
__device__ __forceinline__ uint64_t plain_descriptor(uint32_t address, uint32_t across, uint32_t down) {
  return uint64_t((address & 0x3ffff) >> 4 | across << 16) | uint64_t(down) << 32;
}

// What this thread has written to shared memory, wgmma may read once the others have come to a barrier.
__device__ __forceinline__ void fence_for_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void sync_warpgroup(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

// Positions of x under a box of results, as planes of 8 channels: 16 bytes a position. At strides neighbouring windows take
// every second (third, …) position: positions of one remainder, or phase, of both axes lie together, so that those of
// neighbouring results do, whatever the tap. Rows of the product are results in the order of the positions of their first
// tap, rows of `kWidth`, of which the last ones are of no result; or, kPatches, patches of 8 × 8 results.
// Shape: as for WindowBox. Offsets and sizes count 16 bytes.
template <class T, class Shape, int kUnit, bool kPatches>
struct HaloBox {
  static constexpr int kC = Shape::kGroupChannels, kChunks = (kC + 7) / 8, kThreads = 128;
  static constexpr int kRows = Shape::kRows, kColumns = Shape::kColumns;
  static constexpr int kPhasesH = Shape::kKernelH > 1 ? Shape::kStrideH : 1, kPhasesW = Shape::kKernelW > 1 ? Shape::kStrideW : 1;
  // Of a phase.
  static constexpr int kHeight = kRows + (Shape::kKernelH - 1) * Shape::kDilationH / Shape::kStrideH;
  static constexpr int kWidth = kColumns + (Shape::kKernelW - 1) * Shape::kDilationW / Shape::kStrideW;
  static constexpr int kPositions = kPhasesH * kPhasesW * kHeight * kWidth;
  // Neighbouring chunks of memory, channels first, go to different banks.
  static constexpr int kBank = kChunks == 1 ? kPositions % 8 : kChunks == 2 ? 4 : kChunks == 3 ? 3 : kChunks == 4 ? 2 : 5;
  static constexpr int kPlane = kPositions + (kBank + 8 - kPositions % 8) % 8;
  static constexpr int kSize = kChunks * kPlane;
  // Blocks of 64 rows; where eight rows follow the eight before.
  static constexpr int kBlocks =
      kPatches ? kRows / 8 * (kColumns / 8) : ((kRows - 1) * kWidth + kColumns + 63) / 64;
  static constexpr int kDown = kPatches ? kWidth : 8;
  static_assert(!kPatches || (kRows % 8 == 0 && kColumns % 8 == 0), "whole patches");

  static __device__ __forceinline__ constexpr int tap_offset(int tap) {
    const int row = tap / Shape::kKernelW * Shape::kDilationH, column = tap % Shape::kKernelW * Shape::kDilationW;
    const int phase = row % Shape::kStrideH * kPhasesW + column % Shape::kStrideW;
    return phase * (kHeight * kWidth) + row / Shape::kStrideH * kWidth + column / Shape::kStrideW;
  }
  static constexpr int kTaps = Shape::kKernelH * Shape::kKernelW;
  // How far behind a box rows without a result are read.
  static __device__ __forceinline__ constexpr int overhang() {
    int most = 0;
    for (int tap = 0; tap < kTaps; ++tap) most = tap_offset(tap) > most ? tap_offset(tap) : most;
    const int end = most + 64 * kBlocks;
    return kPatches || end < kPositions ? 0 : end - kPositions;
  }

  static __device__ __forceinline__ int block_offset(int block) {
    return kPatches ? block / (kColumns / 8) * 8 * kWidth + block % (kColumns / 8) * 8 : block * 64;
  }
  // Row and column in the box of row `row` of a block; whether there is such a result.
  static __device__ __forceinline__ bool result_at(int block, int row, int& r, int& c) {
    if constexpr (kPatches) {
      r = block / (kColumns / 8) * 8 + row / 8;
      c = block % (kColumns / 8) * 8 + row % 8;
      return true;
    } else {
      const int position = block * 64 + row;
      r = position / kWidth, c = position % kWidth;
      return r < kRows && c < kColumns;
    }
  }

  // By the 128 threads of a warpgroup, numbered `thread`.
  template <class O, class I>
  static __device__ __forceinline__ void load(const O& o, const BoxPlace<Shape, I>& at, int thread, uint32_t box, char* memory) {
    using U = typename UnsignedOf<I>::type;
    constexpr int kAll = kPhasesH * kHeight, kAcross = kPhasesW * kWidth;
    constexpr int kStepH = kPhasesH == 1 ? Shape::kStrideH : 1, kStepW = kPhasesW == 1 ? Shape::kStrideW : 1;
    const I first_row = at.row * Shape::kStrideH - o.axis[1].low, first_column = at.column * Shape::kStrideW - o.axis[2].low;
    const T* x = o.x + at.image * o.x_batch;
    const auto place = [&](int position, int& to, bool& inside) {
      const int r = position / kAcross, c = position % kAcross;
      const I row = first_row + r * kStepH, column = first_column + c * kStepW;
      inside = inside && U(row) < U(o.axis[1].in) && U(column) < U(o.axis[2].in);
      to = ((r % kPhasesH * kPhasesW + c % kPhasesW) * kHeight + r / kPhasesH) * kWidth + c / kPhasesW;
      return row * o.axis[1].in_stride + column * o.axis[2].in_stride;
    };
    if constexpr (kUnit > 1) {
#pragma unroll 4
      for (int i = thread; i < kAll * kAcross * kChunks; i += kThreads) {
        const int chunk = i % kChunks;
        int to;
        bool inside = true;
        const I from = place(i / kChunks, to, inside);
        copy_async(box + (chunk * kPlane + to) * 16, inside ? x + (from + chunk * 8) : x, inside ? 16 : 0);
      }
    } else {
      constexpr int kBatch = 8;  // elements that are under way together
      constexpr int kElements = kAll * kAcross * kChunks * 8;
      for (int first = thread; first < kElements; first += kThreads * kBatch) {
        T values[kBatch];
        int to[kBatch];
#pragma unroll
        for (int e = 0; e < kBatch; ++e) {
          const int i = first + e * kThreads, channel = i / (kAll * kAcross);
          bool inside = i < kElements && channel < kC;
          const I from = place(i % (kAll * kAcross), to[e], inside);
          to[e] = (channel / 8 * kPlane + to[e]) * 16 + channel % 8 * 2;
          values[e] = {};
          if (inside) values[e] = x[from + channel * o.x_channel];
        }
#pragma unroll
        for (int e = 0; e < kBatch; ++e)
          if (first + e * kThreads < kElements) *reinterpret_cast<T*>(memory + to[e]) = values[e];
      }
    }
  }
};

// BN maps of a block. kUnit, kWeightUnit: 8 where so many channels of x, of the weights, are an aligned unit, else 1.
// kTogether: blocks of 64 rows whose results a warpgroup has at a time. kBuffers: boxes of a warpgroup that are in shared
// memory. kStored: maps that are stored together, where pixels are rows. Multiply: see wgmma_text.h.
template <class T, class Multiply, class Shape, int BN, int kUnit, int kWeightUnit, bool kPatches, int kTogether,
          int kWarpgroups, int kBuffers, bool kPixelRows, int kStored, bool kEarlyWeights>
struct ConvHalo {
  using Box = HaloBox<T, Shape, kUnit, kPatches>;
  static constexpr int kThreads = kWarpgroups * 128, kChunks = Box::kChunks, kTaps = Box::kTaps;
  static constexpr int kPairs = kChunks / 2, kTapSteps = kTaps * kPairs;
  static constexpr int kSteps = kTapSteps + (kChunks % 2 == 1 ? (kTaps + 1) / 2 : 0);
  static constexpr bool kHasLoneTap = kChunks % 2 == 1 && kTaps % 2 == 1;
  // 8 of k of all maps; one more, so that neighbouring k go to different banks. In 16 bytes.
  static constexpr int kWeightChunk = BN + 1, kWeights = kSteps * 2 * kWeightChunk;
  static constexpr int kZerosAt = kWeights + kWarpgroups * kBuffers * Box::kSize + Box::overhang();
  static constexpr int kZeros = kHasLoneTap ? 7 * Box::kDown + 8 : 0;
  static constexpr int kBytes = (kZerosAt + kZeros) * 16;
  static constexpr int kQuads = (BN + 31) / 32, kGroups = Box::kBlocks / kTogether;
  static_assert(Box::kBlocks % kTogether == 0, "as many blocks at a time");

  // Which 8 of k of the weights are chunk `chunk` of tap `tap`: steps hold two. Of two taps in a step that which is read
  // from the lower address is the first.
  static __device__ __forceinline__ constexpr int place_of(int tap, int chunk) {
    if (chunk < kPairs * 2) return (tap * kPairs + chunk / 2) * 2 + chunk % 2;
    const bool swapped = (tap ^ 1) < kTaps && Box::tap_offset(tap | 1) < Box::tap_offset(tap & ~1);
    return (kTapSteps + tap / 2) * 2 + (tap % 2 ^ int(swapped));
  }

  template <class O, class I>
  static __device__ __forceinline__ void load_weights(const O& o, I first_map, uint32_t to, char* memory) {
    const int thread = int(threadIdx.x);
    if constexpr (kWeightUnit > 1) {
#pragma unroll 4
      for (int i = thread; i < kTaps * kChunks * BN; i += kThreads) {
        const int k = i % (kTaps * kChunks), map = i / (kTaps * kChunks), tap = k / kChunks, chunk = k % kChunks;
        const bool exists = first_map + map < o.maps;
        const I from = (first_map + map) * o.w_map + tap / Shape::kKernelW * o.w_tap[1] + tap % Shape::kKernelW * o.w_tap[2];
        copy_async(to + (place_of(tap, chunk) * kWeightChunk + map) * 16, exists ? o.w + (from + chunk * 8) : o.w,
                   exists ? 16 : 0);
      }
    } else {
      for (int i = thread; i < kTaps * kChunks * 8 * BN; i += kThreads) {
        const int k = i % (kTaps * kChunks * 8), map = i / (kTaps * kChunks * 8), tap = k / (kChunks * 8), channel = k % (kChunks * 8);
        T value = {};
        if (first_map + map < o.maps && channel < Shape::kGroupChannels)
          value = o.w[(first_map + map) * o.w_map + tap / Shape::kKernelW * o.w_tap[1] + tap % Shape::kKernelW * o.w_tap[2] +
                      channel * o.w_channel];
        *reinterpret_cast<T*>(memory + (place_of(tap, channel / 8) * kWeightChunk + map) * 16 + channel % 8 * 2) = value;
      }
    }
    // What a last tap alone is multiplied with beside itself: nothing times nothing.
    if constexpr (kHasLoneTap) {
      const int half = place_of(kTaps - 1, kChunks - 1) ^ 1;
      for (int i = thread; i < BN; i += kThreads)
        *reinterpret_cast<uint4*>(memory + (half * kWeightChunk + i) * 16) = uint4{0, 0, 0, 0};
      for (int i = thread; i < kZeros; i += kThreads)
        *reinterpret_cast<uint4*>(memory + (kZerosAt + i) * 16) = uint4{0, 0, 0, 0};
    }
  }

  // The products of blocks `first` … of the box. `box`, `weights`, `zeros`: addresses, the same for all threads.
  static __device__ __forceinline__ void multiply(uint32_t box, uint32_t weights, uint32_t zeros, int first,
                                                  float (&acc)[kTogether][BN / 2]) {
    constexpr int kUnrolled = kSteps * kTogether <= 64 ? kTaps : 1;
    const uint64_t w = plain_descriptor(weights, kWeightChunk, 8);
    uint32_t at[kTogether];
#pragma unroll
    for (int g = 0; g < kTogether; ++g) at[g] = box + Box::block_offset(first + g) * 16;
    wgmma_fence();
#pragma unroll kUnrolled
    for (int tap = 0; tap < kTaps; ++tap) {
      const uint32_t offset = Box::tap_offset(tap) * 16;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair)
#pragma unroll
        for (int g = 0; g < kTogether; ++g)
          Multiply::run(acc[g], plain_descriptor(at[g] + offset + pair * 2 * Box::kPlane * 16, Box::kPlane, Box::kDown),
                        w + uint32_t((tap * kPairs + pair) * 2 * kWeightChunk));
    }
    if constexpr (kChunks % 2 == 1) {
      constexpr uint32_t kLast = (kChunks - 1) * Box::kPlane * 16;
#pragma unroll kUnrolled
      for (int tap = 0; tap + 1 < kTaps; tap += 2) {
        const int a = Box::tap_offset(tap), b = Box::tap_offset(tap + 1);
#pragma unroll
        for (int g = 0; g < kTogether; ++g)
          Multiply::run(acc[g], plain_descriptor(at[g] + kLast + min(a, b) * 16, max(a, b) - min(a, b), Box::kDown),
                        w + uint32_t((kTapSteps + tap / 2) * 2 * kWeightChunk));
      }
      if constexpr (kTaps % 2 == 1) {
#pragma unroll
        for (int g = 0; g < kTogether; ++g) {
          const uint32_t from = at[g] + kLast + Box::tap_offset(kTaps - 1) * 16;
          Multiply::run(acc[g], plain_descriptor(from, (zeros - from) >> 4, Box::kDown),
                        w + uint32_t((kSteps - 1) * 2 * kWeightChunk));
        }
      }
    }
    wgmma_commit();
  }

  // Of the box at `at` the results of blocks `first` …; a warp has 16 rows of each.
  template <class O, class Epilogue, class I>
  static __device__ __forceinline__ void store(const O& o, const Epilogue& epilogue, const BoxPlace<Shape, I>& at, I first_map,
                                               int first, const float (&acc)[kTogether][BN / 2]) {
    constexpr int kHalves = kTogether * 2;  // rows of a thread
    const int lane = int(threadIdx.x) % 32, warp_row = int(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    bool inside[kHalves];
    I pixel[kHalves];  // of the image
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      int r, c;
      inside[i] = Box::result_at(first + i / 2, warp_row + i % 2 * 8, r, c);
      const I row = at.row + r, column = at.column + c;
      inside[i] = inside[i] && row < o.axis[1].out && column < o.axis[2].out;
      pixel[i] = inside[i] ? row * o.axis[2].out + column : 0;
    }
    if constexpr (kPixelRows) {
      typename Epilogue::Row rows[kHalves];
#pragma unroll
      for (int i = 0; i < kHalves; ++i)
        rows[i] = epilogue.row(int64_t(at.image) * (o.axis[1].out * o.axis[2].out) + pixel[i]);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const int local = q * 32 + lane % 4 * 8;
        const I column = first_map + local;
        typename Epilogue::template Shared<kStored> shared[8 / kStored];
        typename Epilogue::template Own<kStored> own[kHalves][8 / kStored];
        const auto exists = [&](int piece) { return local < BN && column + piece * kStored < o.maps; };
#pragma unroll
        for (int p = 0; p < 8 / kStored; ++p)
          if (exists(p)) {
            epilogue.fetch(shared[p], column + p * kStored);
#pragma unroll
            for (int i = 0; i < kHalves; ++i)
              if (inside[i]) epilogue.fetch(own[i][p], rows[i], column + p * kStored);
          }
#pragma unroll
        for (int i = 0; i < kHalves; ++i) {
          float values[8];
#pragma unroll
          for (int e = 0; e < 8; ++e)
            values[e] = q * 4 + e / 2 < BN / 8 ? acc[i / 2][(q * 4 + e / 2) * 4 + i % 2 * 2 + e % 2] : 0.0f;
          transpose_quad(values);
#pragma unroll
          for (int p = 0; p < 8 / kStored; ++p) {
            float some[kStored];
#pragma unroll
            for (int e = 0; e < kStored; ++e) some[e] = values[p * kStored + e];
            if (inside[i] && exists(p)) epilogue.apply(rows[i], column + p * kStored, some, shared[p], own[i][p]);
          }
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < BN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const I map = first_map + j * 8 + lane % 4 * 2 + e;
          if (map >= o.maps) continue;
          const auto row = epilogue.row(int64_t(at.image) * o.maps + map);
#pragma unroll
          for (int i = 0; i < kHalves; ++i) {
            const float one[1] = {acc[i / 2][j * 4 + i % 2 * 2 + e]};
            if (inside[i]) epilogue.template apply<1>(row, pixel[i], one);
          }
        }
    }
  }

  // Grid: x: blocks that share the boxes of all images, y: slices of maps. Waits for the launches before.
  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue) {
    using I = typename O::Index;
    extern __shared__ __align__(128) char shared[];
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0), thread = int(threadIdx.x) % 128;
    const I first_map = I(blockIdx.y) * BN;
    const I boxes = o.images * tiles_of<I>(o.axis[1].out, Shape::kRows) * tiles_of<I>(o.axis[2].out, Shape::kColumns);
    const I step = I(gridDim.x) * kWarpgroups;
    const uint32_t base = shared_address(shared);
    const int first_box = kWeights + warpgroup * kBuffers * Box::kSize;
    const auto load = [&](I number, int buffer) {
      if (number < boxes) {
        const BoxPlace<Shape, I> at(o, number);
        const int to = (first_box + buffer * Box::kSize) * 16;
        Box::load(o, at, thread, base + to, shared + to);
      }
      commit_copies();
    };
    if (!kEarlyWeights) wait_for_inputs();
    load_weights(o, first_map, base, shared);
    if (kEarlyWeights) wait_for_inputs();
    launch_dependents();
    // The last boxes go to all blocks first, then to their second warpgroups.
    I number = I(warpgroup) * I(gridDim.x) + I(blockIdx.x);
#pragma unroll
    for (int i = 0; i < kBuffers; ++i) load(I(number + i * step), i);
    const auto arrived = [] {
      wait_for_copies<kBuffers - 1>();
      fence_for_wgmma();
    };
    arrived();
    __syncthreads();
    int buffer = 0;
#pragma unroll 1
    for (bool begins = true; number < boxes; number += step, begins = false) {
      if (!begins) {
        arrived();
        sync_warpgroup(warpgroup);
      }
      const BoxPlace<Shape, I> at(o, number);
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        float acc[kTogether][BN / 2];
#pragma unroll
        for (int g = 0; g < kTogether; ++g)
#pragma unroll
          for (int i = 0; i < BN / 2; ++i) acc[g][i] = 0.0f;
        multiply(base + (first_box + buffer * Box::kSize) * 16, base, base + kZerosAt * 16, group * kTogether, acc);
        wgmma_wait<0>();
        if (group + 1 == kGroups) {
          sync_warpgroup(warpgroup);
          load(I(number + kBuffers * step), buffer);
        }
        store(o, epilogue, at, first_map, group * kTogether, acc);
      }
      buffer = buffer + 1 == kBuffers ? 0 : buffer + 1;
    }
    wait_for_copies<0>();
  }
};

}  // namespace aicf
