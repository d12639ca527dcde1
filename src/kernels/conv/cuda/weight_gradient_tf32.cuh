// Gradient of a convolution's weights of f32 in tf32, with mma.sync: the product of
// weight_gradient_wgmma.cuh, rows (tap, channel of x), columns maps of dy, K the positions of dy in all
// images. wgmma multiplies tf32 along K alone, and here neighbours in memory are channels and maps; mma.cuh
// reads fragments of such tiles word by word and rounds them. A part of K is the sum of its products of 8
// steps each in ascending order. Or f32 is multiplied by parts (tf32_parts.cuh): the sums of products of high parts of a
// stage are added in f32, in ascending order, then those of the other products; a result that is not finite is computed
// anew by multiply-adds.
#pragma once

#include "conv/cuda/weight_gradient.cuh"
#include "matmul/cuda/mma.cuh"
#include "matmul/cuda/tf32_parts.cuh"

namespace aicf {

// x and dy with channels and maps as neighbours, whole 16 bytes of them.
template <class T, class I>
struct Tf32GradientOperands {
  using Element = T;
  using Index = I;
  const T* x;
  const T* y;
  WindowAxis<I> axis[3];     // in_stride: of x
  I images, channels, maps;  // of a group
  I x_batch, x_group, y_group;
  I x_k, y_k;  // from one position of dy to the next, of x where its positions are those of dy

  __device__ __forceinline__ I depth() const { return images * axis[0].out * axis[1].out * axis[2].out; }
  __device__ __forceinline__ I rows() const {
    return axis[0].kernel * axis[1].kernel * axis[2].kernel * channels;
  }
};

// BM × BN results by warps of WM × WN. kInPlace: windows of one tap, whose positions of x are those of dy. kParts: three
// products in tf32.
template <class T, int BM, int BN, int WM, int WN, int kStages, bool kInPlace, bool kParts>
struct WeightGradientTf32 {
  using Core = MmaMatmul<T, BM, BN, WM, WN, kStages, false, false, true, true, Split::kNone, 1>;
  static constexpr int kThreads = Core::kThreads, kDepth = Core::kDepth, kVector = Core::kVector;

  // A tile of one operand, seen by one thread, which copies its own 16 bytes of neighbours for every kStep-th
  // step of K.
  template <class Tile>
  struct Place {
    static constexpr int kStep = kThreads / Tile::kChunks, kCount = kDepth / kStep;
    static_assert(kThreads % Tile::kChunks == 0 && kCount * kStep == kDepth, "whole rows");
    __device__ __forceinline__ static int chunk() { return int(threadIdx.x) % Tile::kChunks; }
    __device__ __forceinline__ static int row(int i) { return int(threadIdx.x) / Tile::kChunks + i * kStep; }
    __device__ __forceinline__ static uint32_t offset(int i) { return Tile::offset(row(i), chunk()); }
  };

  // Rows `distance` apart, of which `left` neighbours exist.
  template <class Tile, class I>
  static __device__ __forceinline__ void load_rows(uint32_t to, const T* from, I distance, I left, I k,
                                                   I k_end) {
    using At = Place<Tile>;
    const bool exists = At::chunk() * kVector < left;
#pragma unroll
    for (int i = 0; i < At::kCount; ++i) {
      const I at = k + At::row(i);
      const bool copied = exists && at < k_end;
      copy_async(to + At::offset(i), copied ? from + (at * distance + At::chunk() * kVector) : from,
                 copied ? 16 : 0);
    }
  }

  // Where the windows of a step's positions begin in x before padding: found once, and read by all threads.
  template <class I>
  struct alignas(4 * sizeof(I)) Start {
    I offset, at[3];
  };
  template <class O, class I>
  static __device__ __forceinline__ void find_starts(const O& o, Start<I>* starts, I k, I k_end) {
    if (int(threadIdx.x) >= kDepth) return;
    const I at = k + int(threadIdx.x);
    const Pixel<I> pixel = pixel_at(o, at < k_end ? at : I(0));
    Start<I> start;
    start.offset = pixel.image * o.x_batch;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      start.at[a] = pixel.at[a] * o.axis[a].stride;
      start.offset += start.at[a] * o.axis[a].in_stride;
    }
    if (at >= k_end) start.at[0] = -(I(1) << 30);  // outside of x with any tap
    starts[threadIdx.x] = start;
  }

  // Neighbouring channels of a tap, the same in every step.
  template <class O, class I>
  struct Windows {
    using At = Place<typename Core::XTile>;
    I shift[3], offset;

    __device__ __forceinline__ Windows(const O& o, I first_row) {
      const I row = first_row + At::chunk() * kVector;
      const bool exists = row < o.rows();
      const Tap<I> tap = tap_at(o, exists ? row : I(0));
      offset = tap.channel;
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        shift[a] = tap.at[a] * o.axis[a].dilation - o.axis[a].low;
        offset += shift[a] * o.axis[a].in_stride;
      }
      if (!exists) shift[0] = -(I(1) << 30);
    }
    __device__ __forceinline__ void load(const O& o, const T* x, const Start<I>* starts, uint32_t to) const {
      using U = typename UnsignedOf<I>::type;
#pragma unroll
      for (int i = 0; i < At::kCount; ++i) {
        const Start<I> start = starts[At::row(i)];
        bool copied = true;
#pragma unroll
        for (int a = 0; a < 3; ++a) copied = copied && U(start.at[a] + shift[a]) < U(o.axis[a].in);
        copy_async(to + At::offset(i), copied ? x + (start.offset + offset) : x, copied ? 16 : 0);
      }
    }
  };

  // The results of a warp's lane.
  using Sums = float[Core::kRowBlocks][Core::kQuadBlocks][4][4];
  static constexpr int kSums = Core::kRowBlocks * Core::kQuadBlocks * 16;
  static __device__ __forceinline__ float& sum_at(Sums& sums, int i) {
    return sums[i / (Core::kQuadBlocks * 16)][i / 16 % Core::kQuadBlocks][i / 4 % 4][i % 4];
  }
  static __device__ __forceinline__ void add(Sums& to, Sums& from) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum_at(to, i) += sum_at(from, i);
  }

  struct Fragment {
    uint32_t high[4], low[4];
    template <class Tile, bool kResultFirst>
    __device__ __forceinline__ void load(uint32_t tile, int k, int other) {
      Core::template load_words<Tile, kResultFirst>(low, tile, k, other);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t all = low[i];
        high[i] = tf32_high(all);
        low[i] = tf32_low(all, high[i]);
      }
    }
  };
  // Adds the products of a stage, those of two high parts to `high`, the others to `rest`.
  static __device__ __forceinline__ void compute_parts(uint32_t stage, const typename Core::Warp& warp, Sums& high,
                                                       Sums& rest) {
    using Type = typename Core::Type;
#pragma unroll
    for (int k = 0; k < kDepth; k += Type::kStep) {
      Fragment a[Core::kRowBlocks];
      const int at = k + warp.lane % 4;
#pragma unroll
      for (int i = 0; i < Core::kRowBlocks; ++i)
        a[i].template load<typename Core::XTile, true>(stage, at, warp.row + i * 16 + warp.lane / 4);
#pragma unroll
      for (int j = 0; j < Core::kQuadBlocks * 2; ++j) {
        Fragment b;
        b.template load<typename Core::YTile, false>(stage + Core::XTile::kBytes, at, warp.column + j * 16 + warp.lane / 4);
        const auto multiply = [&](Sums& sums, bool high_a, const uint32_t (&y)[4]) {
#pragma unroll
          for (int i = 0; i < Core::kRowBlocks; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              Type::multiply(sums[i][j / 2][j % 2 * 2 + e], high_a ? a[i].high : a[i].low, y[e * 2], y[e * 2 + 1]);
        };
        multiply(rest, false, b.high);
        multiply(high, true, b.high);
        multiply(rest, true, b.low);
      }
    }
  }

  // By multiply-adds, over positions; those of x outside the image take part as zeros.
  template <class O, class I>
  static __device__ __forceinline__ float position_sum(const O& o, const T* x, const T* y, I row, I k_first, I k_end) {
    const Tap<I> tap = tap_at(o, row);
    float sum = 0;
    for (I k = k_first; k < k_end && sum == sum; ++k) {  // no more is added to NaN
      const Pixel<I> pixel = pixel_at(o, k);
      I offset = pixel.image * o.x_batch + tap.channel;
      bool inside = true;
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        const I at = pixel.at[a] * o.axis[a].stride + tap.at[a] * o.axis[a].dilation - o.axis[a].low;
        inside = inside && at >= 0 && at < o.axis[a].in;
        offset += at * o.axis[a].in_stride;
      }
      sum = __fmaf_rn(inside ? x[offset] : 0.0f, y[k * o.y_k], sum);
    }
    return sum;
  }
  // The results of a part that are not finite. `y`: of the first column.
  template <class O, class I>
  static __device__ __forceinline__ void compute_anew(const O& o, const T* x, const T* y, I first_row, int first_column,
                                                      I columns, I k_first, I k_end, Sums& sums) {
    float zero = 0;  // as has_non_finite
#pragma unroll
    for (int i = 0; i < kSums; ++i) zero = __fmaf_rn(sum_at(sums, i), 0.0f, zero);
    if (zero == 0) return;
#pragma unroll 1
    for (int i = 0; i < kSums; ++i) {
      const I row = first_row + i / (Core::kQuadBlocks * 16) * 16 + i / 2 % 2 * 8;
      const int column = first_column + i / 4 % (Core::kQuadBlocks * 4) * 8 + i % 2;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kSums; ++j)
        if (j == i) sum = sum_at(sums, j);
      if (fabsf(sum) < __int_as_float(0x7f800000) || row >= o.rows() || column >= columns) continue;
      sum = position_sum(o, x, y + column, row, k_first, k_end);
#pragma unroll
      for (int j = 0; j < kSums; ++j)
        if (j == i) sum_at(sums, j) = sum;
    }
  }

  // Grid: x: part `blockIdx.x % parts` of tile `blockIdx.x / parts`, a part being `part_depth` of K; y:
  // group. `results`: the parts, with rows, groups and parts so far apart.
  template <class O>
  static __device__ void run(const O& o, typename O::Index parts, typename O::Index part_depth,
                             float* results, typename O::Index row_distance, typename O::Index group_distance,
                             typename O::Index part_distance) {
    using I = typename O::Index;
    extern __shared__ __align__(128) char shared[];
    const I tile = divide(I(blockIdx.x), parts), part = I(blockIdx.x) - tile * parts, group = I(blockIdx.y);
    const I row_tiles = tiles_of<I>(o.rows(), BM), column_tile = divide(tile, row_tiles);
    const I row = (tile - column_tile * row_tiles) * BM, column = column_tile * BN;
    const I k_first = part * part_depth, k_end = min(o.depth(), I(k_first + part_depth));
    const int steps = k_first < k_end ? int((k_end - k_first + kDepth - 1) / kDepth) : 0;
    const T* x = o.x + group * o.x_group;
    const T* y = o.y + group * o.y_group + column;
    const typename Core::Warp warp = Core::warp();
    const Windows<O, I> windows(o, row);
    const uint32_t memory = shared_address(shared);
    __shared__ Start<I> starts[2][kDepth];  // of the steps that are loaded next, in turns
    const auto find = [&](int step) {
      if constexpr (!kInPlace) find_starts(o, starts[step & 1], I(k_first + I(step) * kDepth), k_end);
    };
    const auto load = [&](int step) {
      if (step < steps) {
        const uint32_t stage = memory + step % kStages * Core::kStageBytes;
        const I k = k_first + I(step) * kDepth;
        if constexpr (kInPlace)
          load_rows<typename Core::XTile>(stage, x + row, o.x_k, I(o.rows() - row), k, k_end);
        else
          windows.load(o, x, starts[step & 1], stage);
        load_rows<typename Core::YTile>(stage + Core::XTile::kBytes, y, o.y_k, I(o.maps - column), k, k_end);
      }
      commit_copies();
    };
    Sums acc = {}, rest = {};  // by parts: of high parts, and of the other products
#pragma unroll
    for (int step = 0; step < kStages - 1; ++step) {
      find(step);
      __syncthreads();
      load(step);
    }
    find(kStages - 1);
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      load(step + kStages - 1);
      find(step + kStages);
      const uint32_t stage = memory + step % kStages * Core::kStageBytes;
      if constexpr (kParts) {
        Sums high = {};
        compute_parts(stage, warp, high, rest);
        add(acc, high);
      } else {
        Core::compute_stage(stage, warp, acc);
      }
    }
    wait_for_copies<0>();
    const I first_row = row + warp.row + warp.lane / 4,
            first_column = column + warp.column + warp.lane % 4 * 2;
    if constexpr (kParts) {
      add(acc, rest);
      compute_anew(o, x, y, first_row, int(first_column - column), I(o.maps - column), k_first, k_end, acc);
    }
    float* to = results + part * part_distance + group * group_distance;
#pragma unroll
    for (int i = 0; i < Core::kRowBlocks; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const I r = first_row + i * 16 + half * 8;
        if (r >= o.rows()) continue;
#pragma unroll
        for (int j = 0; j < Core::kQuadBlocks * 4; ++j)
          if (first_column + j * 8 < row_distance)
            *reinterpret_cast<float2*>(to + int64_t(r) * row_distance + first_column + j * 8) =
                float2{acc[i][j / 4][j % 4][half * 2], acc[i][j / 4][j % 4][half * 2 + 1]};
      }
  }
};

}  // namespace aicf
