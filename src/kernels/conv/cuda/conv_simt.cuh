// Convolutions without matrix units: a tiled implicit GEMM for every float type and layout, also transposed, and the
// direct kernel of depthwise convolutions. Sums in the accumulator's type, one chain of fused multiply-adds over K.
#pragma once

#include "conv/cuda/conv.cuh"

namespace aicf {

__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// Where a window reads x. Transposed: output position o takes tap k from input position p with
// p · stride - low + k · dilation = o; the axis' `in` is that of x.
template <bool kTransposed, class O, class I>
__device__ __forceinline__ bool source_of(const O& o, const Pixel<I>& pixel, const Tap<I>& tap, I& offset) {
  bool inside = true;
  offset = pixel.image * o.x_batch + tap.channel * o.x_channel;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const WindowAxis<I>& axis = o.axis[a];
    I at;
    if constexpr (kTransposed) {
      const I steps = pixel.at[a] + axis.low - tap.at[a] * axis.dilation;
      at = steps / axis.stride;
      inside = inside && steps >= 0 && steps % axis.stride == 0 && at < axis.in;
    } else {
      at = axis.position(pixel.at[a], tap.at[a]);
      inside = inside && at >= 0 && at < axis.in;
    }
    offset += at * axis.in_stride;
  }
  return inside;
}

// 64 × 64 results by 256 threads, 4 × 4 each. kPixelsFast: neighbouring threads load neighbouring pixels, else neighbouring
// channels. Blocks: x: tile, y: group.
template <class T, class Acc, bool kPixelRows, bool kTransposed, bool kPixelsFast, bool kWide>
struct ConvSimt {
  static constexpr int kTile = 64, kDepth = 16, kRow = kTile + 4, kLoads = 4;
  using E = Element<T>;

  // Which pixel or map, and which step of K, load i of this thread is for.
  template <bool kOthersFast>
  static __device__ __forceinline__ int other_of(int i) {
    return kOthersFast ? int(threadIdx.x) % kTile : int(threadIdx.x) / kDepth + i * (256 / kDepth);
  }
  template <bool kOthersFast>
  static __device__ __forceinline__ int step_of(int i) {
    return kOthersFast ? int(threadIdx.x) / kTile + i * (256 / kTile) : int(threadIdx.x) % kDepth;
  }

  // Adds the products of a stage, rows from `r` on and columns from `c` on, k ascending.
  static __device__ __forceinline__ void multiply(const Acc (&a)[kDepth][kRow], const Acc (&b)[kDepth][kRow], int r, int c,
                                                  Acc (&acc)[4][4]) {
#pragma unroll
    for (int step = 0; step < kDepth; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] = fused(a[step][r + i], b[step][c + j], acc[i][j]);
  }

  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue) {
    using I = typename O::Index;
    __shared__ Acc gathered[kDepth][kRow], weights[kDepth][kRow];
    const I group = blockIdx.y, groups = gridDim.y, depth = o.depth();
    const I rows = kPixelRows ? o.images * o.pixels() : o.maps, columns = kPixelRows ? o.maps : o.pixels();
    const MatmulTile tile = tile_at(blockIdx.x, uint32_t(tiles_of<I>(rows, kTile)), uint32_t(tiles_of<I>(columns, kTile)));
    const I row = I(tile.row) * kTile, column = I(tile.column) * kTile, image = tile.batch;
    const I first_pixel = kPixelRows ? row : image * o.pixels() + column, first_map = kPixelRows ? column : row;
    const I pixels_left = kPixelRows ? rows - row : columns - column, maps_left = o.maps - first_map;
    const T* x = o.x + group * o.channels * o.x_channel;
    // Transposed: w is [channels, maps of a group, taps].
    const T* w = o.w + (kTransposed ? group * o.channels * o.w_channel + first_map * o.w_map
                                    : (group * o.maps + first_map) * o.w_map);
    Pixel<I> pixels[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = other_of<kPixelsFast>(i);
      pixels[i] = pixel_at(o, at < pixels_left ? I(first_pixel + at) : I(0));
    }
    T next_x[kLoads], next_w[kLoads];
    const auto load = [&](I k) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const I step = k + step_of<kPixelsFast>(i);
        I offset = 0;
        const bool inside = step < depth && other_of<kPixelsFast>(i) < pixels_left &&
                            source_of<kTransposed>(o, pixels[i], tap_at(o, step), offset);
        next_x[i] = inside ? x[offset] : T{};
        const I w_step = k + step_of<false>(i), map = other_of<false>(i);
        const Tap<I> tap = tap_at(o, w_step);
        next_w[i] = w_step < depth && map < maps_left
                        ? w[map * o.w_map + tap.channel * o.w_channel + tap.at[0] * o.w_tap[0] +
                            tap.at[1] * o.w_tap[1] + tap.at[2] * o.w_tap[2]]
                        : T{};
      }
    };
    Acc acc[4][4] = {};
    const int r = int(threadIdx.x) / 16 * 4, c = int(threadIdx.x) % 16 * 4;
    load(0);
    for (I k = 0; k < depth; k += kDepth) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        gathered[step_of<kPixelsFast>(i)][other_of<kPixelsFast>(i)] = Acc(E::load(next_x[i]));
        weights[step_of<false>(i)][other_of<false>(i)] = Acc(E::load(next_w[i]));
      }
      __syncthreads();
      if (k + kDepth < depth) load(k + kDepth);
      const auto& a = kPixelRows ? gathered : weights;
      const auto& b = kPixelRows ? weights : gathered;
      multiply(a, b, r, c, acc);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (row + r + i < rows && column + c < columns)
        store_conv<kPixelRows, kWide>(o, epilogue, image, group, groups, I(row + r + i), I(column + c), acc[i]);
  }
};

// One channel per group. A thread makes V neighbouring maps of a pixel (V > 1: one map per group, channels neighbours), or
// one pixel of a map. kWideWeights: the weights of neighbouring maps are neighbours too.
template <class T, class Acc, int V, bool kPixelRows, bool kWideWeights>
struct ConvDepthwise {
  using E = Element<T>;

  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, typename O::Index groups) {
    using I = typename O::Index;
    const I flat = flat_thread<I>(), all_maps = groups * o.maps, pixels = o.pixels();
    if (past(flat, o.images * pixels * divide(all_maps, I(V)))) return;
    I map, number;  // number: of the pixel among all images'
    if constexpr (kPixelRows) {
      number = divide(flat, divide(all_maps, I(V)));
      map = (flat - number * divide(all_maps, I(V))) * V;
    } else {
      const I plane = divide(flat, pixels), image = divide(plane, all_maps);
      map = plane - image * all_maps;
      number = image * pixels + (flat - plane * pixels);
    }
    const Pixel<I> pixel = pixel_at(o, number);
    const T* x = o.x + pixel.image * o.x_batch + divide(map, o.maps) * o.x_channel;
    const T* w = o.w + map * o.w_map;
    Acc acc[V] = {};
    const WindowAxis<I>&d = o.axis[0], &h = o.axis[1], &c = o.axis[2];
    for (I kz = d.begin(pixel.at[0]); kz < d.end(pixel.at[0]); ++kz)
      for (I ky = h.begin(pixel.at[1]); ky < h.end(pixel.at[1]); ++ky)
#pragma unroll 4
        for (I kx = c.begin(pixel.at[2]); kx < c.end(pixel.at[2]); ++kx) {
          const T* from = x + d.position(pixel.at[0], kz) * d.in_stride + h.position(pixel.at[1], ky) * h.in_stride +
                          c.position(pixel.at[2], kx) * c.in_stride;
          const T* weight = w + kz * o.w_tap[0] + ky * o.w_tap[1] + kx * o.w_tap[2];
          const Pack<T, V> values = *reinterpret_cast<const Pack<T, V>*>(from);
          Pack<T, V> weights;
          if constexpr (kWideWeights)
            weights = *reinterpret_cast<const Pack<T, V>*>(weight);
          else
#pragma unroll
            for (int v = 0; v < V; ++v) weights.at[v] = weight[v * o.w_map];
#pragma unroll
          for (int v = 0; v < V; ++v) acc[v] = fused(Acc(E::load(values.at[v])), Acc(E::load(weights.at[v])), acc[v]);
        }
    const int64_t in_image = int64_t(number) - int64_t(pixel.image) * pixels;
    if constexpr (kPixelRows)
      epilogue.template apply<V>(epilogue.row(int64_t(number)), int64_t(map), acc);
    else
      epilogue.template apply<V>(epilogue.row(int64_t(pixel.image) * all_maps + map), in_image, acc);
  }
};

}  // namespace aicf
