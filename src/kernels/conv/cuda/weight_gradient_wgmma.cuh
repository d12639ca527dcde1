// Gradient of a convolution's weights as a product on wgmma (sm_90a): rows are (tap, channel of x), columns
// maps of dy, and K runs over the positions of dy in all images. Where channels or maps are neighbours in
// memory a tile's rows in shared memory run along them, as wgmma takes halves; where the positions are, along
// K. x is read where each tap finds it, zeros outside: neighbouring taps find nearly the same, so that what one
// of them reads stays in the L1 cache for the others. All threads copy and multiply, as in conv_wgmma.cuh. A part
// of K is the sum of its products of 16 steps each in ascending order.
#pragma once

#include "conv/cuda/conv_gather.cuh"
#include "conv/cuda/weight_gradient.cuh"
#include "matmul/cuda/wgmma_instructions.cuh"

namespace aicf {

template <class T, class I>
struct WeightGradientOperands {
  using Element = T;
  using Index = I;
  const T* x;
  const T* y;
  WindowAxis<I> axis[3];          // in_stride: of x
  I images, channels, maps;       // of a group of the products
  I x_batch, x_channel, x_group;  // strides
  I y_batch, y_channel, y_group;  // strides; of a position along K: 1
  I x_k, y_k;                     // from one position of dy to the next, where all images' lie so

  __device__ __forceinline__ I pixels() const { return axis[0].out * axis[1].out * axis[2].out; }
  __device__ __forceinline__ I depth() const { return images * pixels(); }
  __device__ __forceinline__ I rows() const {
    return axis[0].kernel * axis[1].kernel * axis[2].kernel * channels;
  }
};

// Copies 16 bytes, or zeros, through the L1 cache.
__device__ __forceinline__ void copy_through_cache(uint32_t to, const void* from, bool copied) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copied ? 16 : 0) : "memory");
}

// Where the windows of one position of dy begin in x, without padding; a position that is none has `at` of kNowhere.
constexpr int kNowhere = -(1 << 30);
template <class I>
struct alignas(16) WindowStart {
  I offset;
  int at[3];
};

// How a tile of x lies in memory.
enum class WeightGradientX {
  kWindows,    // channels are neighbours; every tap finds its own positions
  kPositions,  // channels are neighbours, and positions of x are those of dy, x_k apart
  kAlongK,     // positions are neighbours, eight in an aligned unit, and those of dy
};

// BM × BN results by kGroups warpgroups. kYAlongK: positions of dy are neighbours, eight in an aligned unit,
// else maps.
template <class T, class Multiply, int BM, int BN, int kGroups, int kStages, WeightGradientX kX,
          bool kYAlongK>
struct WeightGradientWgmma {
  static constexpr int kThreads = kGroups * 128, kRowBlocks = BM / 64 / kGroups;
  static constexpr bool kXAlongK = kX == WeightGradientX::kAlongK;
  static constexpr int kXBytes = BM * 128, kStageBytes = (BM + BN) * 128;
  // Steps whose products may still run when those of the next one begin, and how far ahead the copies are.
  static constexpr int kRunning = kStages > 3 ? 1 : 0, kAhead = kStages - 1 - kRunning;
  // 64 steps of K × kInner neighbours in the result, or kInner rows of 64 steps of K.
  template <int kInner>
  using AcrossTile = StageTile<T, kHalfDepth, kInner, false>;
  template <int kInner>
  using AlongTile = StageTile<T, kInner, kHalfDepth, false>;

  // A tile of one operand, seen by one thread, which copies chunks of 16 bytes: across K, its own eight
  // neighbours of the result for every kStep-th step of K; along K, its own eight steps of K for every
  // kStep-th row of the result.
  template <int kInner, bool kAlongK>
  struct Place {
    static constexpr int kChunks = kAlongK ? kHalfDepth / 8 : kInner / 8;
    static constexpr int kStep = kThreads / kChunks, kCount = (kAlongK ? kInner : kHalfDepth) / kStep;
    static_assert(kThreads % kChunks == 0 && kCount * kStep == (kAlongK ? kInner : kHalfDepth), "whole rows");
    __device__ __forceinline__ static int chunk() { return int(threadIdx.x) % kChunks; }
    __device__ __forceinline__ static int row(int i) { return int(threadIdx.x) / kChunks + i * kStep; }
    __device__ __forceinline__ static uint32_t offset(int i) {
      if constexpr (kAlongK)
        return AlongTile<kInner>::offset(row(i), chunk());
      else
        return AcrossTile<kInner>::offset(row(i), chunk());
    }
  };

  // Rows of positions: `left` neighbours of the result exist.
  template <int kInner, class I>
  static __device__ __forceinline__ void load_across(uint32_t to, const T* from, I distance, I left, I k,
                                                     I k_end) {
    using At = Place<kInner, false>;
    const bool exists = At::chunk() * 8 < left;
#pragma unroll
    for (int i = 0; i < At::kCount; ++i) {
      const I at = k + At::row(i);
      const bool copied = exists && at < k_end;
      copy_async(to + At::offset(i), copied ? from + (at * distance + At::chunk() * 8) : from,
                 copied ? 16 : 0);
    }
  }
  template <int kInner, class I>
  static __device__ __forceinline__ void load_along(uint32_t to, const T* from, I batch, I distance, I pixels,
                                                    I left, I k, I k_end) {
    using At = Place<kInner, true>;
    const I first = k + At::chunk() * 8, image = divide(first, pixels);
    const T* row = from + (image * batch + (first - image * pixels));
#pragma unroll
    for (int i = 0; i < At::kCount; ++i) {
      const bool copied = first < k_end && At::row(i) < left;
      copy_async(to + At::offset(i), copied ? row + At::row(i) * distance : from, copied ? 16 : 0);
    }
  }

  // Rows of a tile are all taps of 64 channels, then those of the next, where channels are so many.
  template <class O, class I>
  static __device__ __forceinline__ I row_at(const O& o, I number) {
    if (o.channels % 64 != 0) return number;
    const I taps = o.axis[0].kernel * o.axis[1].kernel * o.axis[2].kernel, block = number / 64,
            channels = divide(block, taps);
    return (block - channels * taps) * o.channels + channels * 64 + number % 64;
  }

  // Eight channels of a tap, the same in every step.
  template <class O, class I>
  struct Windows {
    using At = Place<BM, false>;
    I offset;  // of the tap and the channels
    int shift[3];
    bool exists;

    __device__ __forceinline__ Windows(const O& o, I first_row) {
      const I row = first_row + At::chunk() * 8;
      exists = row < o.rows();
      const Tap<I> tap = tap_at(o, exists ? row_at(o, row) : I(0));
      offset = tap.channel;
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        shift[a] = int(tap.at[a] * o.axis[a].dilation - o.axis[a].low);
        offset += shift[a] * o.axis[a].in_stride;
      }
    }
    // Finds the windows of a step.
    static __device__ __forceinline__ void find(const O& o, I k, I k_end, WindowStart<I> (&starts)[kHalfDepth]) {
      if (threadIdx.x >= kHalfDepth) return;
      const I at = k + I(threadIdx.x);
      WindowStart<I> start = {0, {kNowhere, kNowhere, kNowhere}};
      if (at < k_end) {
        const Pixel<I> pixel = pixel_at(o, at);
        start.offset = pixel.image * o.x_batch;
#pragma unroll
        for (int a = 0; a < 3; ++a) {
          start.at[a] = int(pixel.at[a] * o.axis[a].stride);
          start.offset += start.at[a] * o.axis[a].in_stride;
        }
      }
      starts[threadIdx.x] = start;
    }
    __device__ __forceinline__ void load(const O& o, const T* x, uint32_t to,
                                         const WindowStart<I> (&starts)[kHalfDepth]) const {
#pragma unroll
      for (int i = 0; i < At::kCount; ++i) {
        const WindowStart<I> start = starts[At::row(i)];
        bool copied = exists;
#pragma unroll
        for (int a = 0; a < 3; ++a)
          if (a == 2 || o.axis[a].in > 1 || o.axis[a].kernel > 1)
            copied = copied && uint32_t(start.at[a] + shift[a]) < uint32_t(o.axis[a].in);
        copy_through_cache(to + At::offset(i), copied ? x + (start.offset + offset) : x, copied);
      }
    }
  };

  // Grid: x: part `blockIdx.x % parts` of tile `blockIdx.x / parts`, a part being `part_depth` of K; y: group
  // of the products. `results`: the parts, rows of `row` and groups and parts so far apart.
  template <class O>
  static __device__ void run(const O& o, typename O::Index parts, typename O::Index part_depth,
                             float* results, typename O::Index row_distance, typename O::Index group_distance,
                             typename O::Index part_distance) {
    using I = typename O::Index;
    extern __shared__ __align__(1024) char shared[];
    constexpr bool kFinds = kX == WeightGradientX::kWindows;
    __shared__ WindowStart<I> starts[kFinds ? 2 : 1][kHalfDepth];  // of the windows of the next two steps
    const I tile = divide(I(blockIdx.x), parts), part = I(blockIdx.x) - tile * parts, group = I(blockIdx.y);
    const I row_tiles = tiles_of<I>(o.rows(), BM), column_tile = divide(tile, row_tiles);
    const I row = (tile - column_tile * row_tiles) * BM, column = column_tile * BN;
    const I k_first = part * part_depth, k_end = min(o.depth(), I(k_first + part_depth));
    const int steps = k_first < k_end ? int((k_end - k_first + kHalfDepth - 1) / kHalfDepth) : 0;
    const T* x = o.x + group * o.x_group;
    const T* y = o.y + group * o.y_group + column * o.y_channel;
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    const Windows<O, I> windows(o, row);
    const uint32_t memory = shared_address(shared);
    const auto load = [&](int step) {
      if (step < steps) {
        const uint32_t stage = memory + step % kStages * kStageBytes;
        const I k = k_first + I(step) * kHalfDepth;
        if constexpr (kX == WeightGradientX::kWindows)
          windows.load(o, x, stage, starts[step % 2]);
        else if constexpr (kX == WeightGradientX::kPositions)
          load_across<BM>(stage, x + row, o.x_k, I(o.rows() - row), k, k_end);
        else
          load_along<BM>(stage, x + row * o.x_channel, o.x_batch, o.x_channel, o.pixels(), I(o.rows() - row),
                         k, k_end);
        if constexpr (kYAlongK)
          load_along<BN>(stage + kXBytes, y, o.y_batch, o.y_channel, o.pixels(), I(o.maps - column), k,
                         k_end);
        else
          load_across<BN>(stage + kXBytes, y, o.y_k, I(o.maps - column), k, k_end);
      }
      commit_copies();
    };
    float acc[kRowBlocks][BN / 2];
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < BN / 2; ++j) acc[i][j] = 0.0f;
    const auto find = [&](int step) {
      if constexpr (kFinds) Windows<O, I>::find(o, I(k_first + I(step) * kHalfDepth), k_end, starts[step % 2]);
    };
#pragma unroll
    for (int step = 0; step < kAhead; ++step) {
      find(step);
      if constexpr (kFinds) __syncthreads();
      load(step);
    }
    find(kAhead);
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<kAhead - 1>();
      wgmma_wait<kRunning>();  // of every warpgroup, the products that read the stage which the load below
                               // overwrites
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      const uint32_t stage = memory + step % kStages * kStageBytes;
      const uint64_t a = wgmma_descriptor<kXAlongK>(stage + warpgroup * kRowBlocks * kPanelBytes);
      const uint64_t b = wgmma_descriptor<kYAlongK>(stage + kXBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kHalfDepth / 16; ++k)
#pragma unroll
        for (int i = 0; i < kRowBlocks; ++i)
          Multiply::run(acc[i], a + i * (kPanelBytes >> 4) + k * wgmma_k_step<kXAlongK>,
                        b + k * wgmma_k_step<kYAlongK>);
      wgmma_commit();
      load(step + kAhead);
      find(step + kAhead + 1);
    }
    wgmma_wait<0>();
    wait_for_copies<0>();
    const int lane = int(threadIdx.x) & 31, warp = int(threadIdx.x) / 32 & 3;
    const I result_row = row + warpgroup * kRowBlocks * 64 + warp * 16 + lane / 4,
            result_column = column + lane % 4 * 2;
    float* to = results + part * part_distance + group * group_distance;
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const I number = result_row + i * 64 + half * 8;
        if (number >= o.rows()) continue;
        const I r = row_at(o, number);
#pragma unroll
        for (int j = 0; j < BN / 8; ++j)
          if (result_column + j * 8 < row_distance)
            *reinterpret_cast<float2*>(to + int64_t(r) * row_distance + result_column + j * 8) =
                float2{acc[i][j * 4 + half * 2], acc[i][j * 4 + half * 2 + 1]};
      }
  }
};

}  // namespace aicf
