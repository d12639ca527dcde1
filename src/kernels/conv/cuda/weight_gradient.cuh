// Gradients of a convolution's weights: what comes before and after the products (weight_gradient_wgmma.cuh,
// weight_gradient_depthwise.cuh). Parts of the sums over images and positions lie in the workspace as [part,
// group, row, column] of f32; a column is a map of a group, a row a kernel position ("tap") and a channel of
// the group, channels fastest. The groups of the products may be several of the convolution's side by side;
// of their channels and maps those of one group meet in the result.
#pragma once

#include "conv/cuda/conv.cuh"

namespace aicf {

// An operand [images, channels, positions…] in any layout, and how its copy holds the channels: `padded` for
// `channels` of each group, of which there are as many as fit.
template <class T, class I>
struct UnpackedOperand {
  using Index = I;
  const T* from;
  I size[3], stride[3], batch, channel;  // strides
  I groups, channels, padded;
};

// The copy [image, position, padded channel], zeros where there is no channel. A block of 256 threads turns
// 64 channels × 64 positions through shared memory. kUnit: so many positions are neighbours in one aligned
// unit. Grid: x: tiles of positions of all images, y: tiles of channels.
template <int kUnit, class T, class O>
__device__ __forceinline__ void pack_channels_last(const O& o, T* packed) {
  using I = typename O::Index;
  constexpr int kTile = 64, kThreads = 256, kVector = 16 / int(sizeof(T));
  __shared__ alignas(16) T tile[kTile][kTile + 2];
  const I positions = o.size[0] * o.size[1] * o.size[2], tiles = (positions + kTile - 1) / kTile;
  const I image = divide(I(blockIdx.x), tiles), first = (I(blockIdx.x) - image * tiles) * kTile;
  const I first_channel = I(blockIdx.y) * kTile, all = o.groups * o.padded;
#pragma unroll
  for (int i = 0; i < kTile * kTile / kUnit / kThreads; ++i) {
    const int index = int(threadIdx.x) + i * kThreads;
    const int row = index / (kTile / kUnit), column = index % (kTile / kUnit) * kUnit;
    const I position = first + column, to = first_channel + row, group = divide(to, o.padded),
            c = to - group * o.padded;
    union {
      Pack<T, kUnit> all = {};
      Bits<kUnit == 1 ? 2 : 4> words[kUnit == 1 ? 1 : kUnit / 2];
    } values;
    if (position < positions && to < all && c < o.channels) {
      const I rows = divide(position, o.size[2]), planes = divide(rows, o.size[1]);
      values.all = *reinterpret_cast<const Pack<T, kUnit>*>(
          o.from + image * o.batch + (group * o.channels + c) * o.channel + planes * o.stride[0] +
          (rows - planes * o.size[1]) * o.stride[1] + (position - rows * o.size[2]) * o.stride[2]);
    }
    if constexpr (kUnit == 1) {
      tile[row][column] = values.all.at[0];
    } else {
#pragma unroll
      for (int e = 0; e < kUnit / 2; ++e)
        reinterpret_cast<uint32_t*>(&tile[row][column])[e] = values.words[e];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTile * kTile / kVector / kThreads; ++i) {
    const int index = int(threadIdx.x) + i * kThreads;
    const int column = index / (kTile / kVector), chunk = index % (kTile / kVector) * kVector;
    const I position = first + column, to = first_channel + chunk;
    if (position >= positions || to >= all) continue;
    Pack<T, kVector> values;
#pragma unroll
    for (int e = 0; e < kVector; ++e) values.at[e] = tile[chunk + e][column];
    *reinterpret_cast<Pack<T, kVector>*>(packed + (image * positions + position) * all + to) = values;
  }
}

// The result [maps, channels, taps…] and where its parts lie.
template <class T, class I>
struct WeightGradientResult {
  using Stored = T;
  using Index = I;
  T* out;
  I maps, channels, kernel[3];         // channels of a group
  I out_map, out_channel, out_tap[3];  // strides
  I group_maps, product_maps,
      product_channels;  // maps of a group; maps and channels of a group of the products
  I row, group, part;    // distances in the workspace
  I parts;
};

// Adds the parts: kSlices ranges of them in order, and then these. Threads of a block have kMaps neighbouring maps, kSlices
// ranges of each and kPlaces neighbours along (channel, tap), of which each thread has kRounds. Grid: x: tiles along
// (channel, tap), y: tiles of maps.
template <int kMaps, int kSlices, int kThreads, int kRounds, class O>
__device__ __forceinline__ void sum_weight_gradient(const O& o, const float* parts) {
  using I = typename O::Index;
  constexpr int kStep = kThreads / (kMaps * kSlices), kPlaces = kStep * kRounds;
  static_assert(kStep * kMaps * kSlices == kThreads, "whole places");
  constexpr int kAhead = kRounds >= 8 ? 1 : 8 / kRounds;  // parts of each place that are under way
  __shared__ float sums[kPlaces][kSlices][kMaps + 1];
  const I taps = o.kernel[0] * o.kernel[1] * o.kernel[2], places = o.channels * taps;
  const int lane = int(threadIdx.x) % kMaps, row = int(threadIdx.x) / kMaps, own = row % kSlices,
            first_step = row / kSlices;
  const I first_place = I(blockIdx.x) * kPlaces, first_map = I(blockIdx.y) * kMaps, map = first_map + lane;
  const I group = divide(map, o.product_maps), column = map - group * o.product_maps;
  const float* from[kRounds];
  float sum[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const I place = min(I(first_place + r * kStep + first_step), I(places - 1));
    const I channel = divide(place, taps), tap = place - channel * taps;
    from[r] = parts + group * o.group +
              (tap * o.product_channels + divide(column, o.group_maps) * o.channels + channel) * o.row + column;
    sum[r] = 0.0f;
  }
  const I slice = (o.parts + kSlices - 1) / kSlices, begin = I(own) * slice,
          end = map < o.maps ? min(o.parts, I(begin + slice)) : I(0);
  for (I part = begin; part < end; part += kAhead) {
    float ahead[kRounds][kAhead];
#pragma unroll
    for (int r = 0; r < kRounds; ++r)
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        ahead[r][i] = part + i < end ? from[r][int64_t(part + i) * o.part] : 0.0f;
#pragma unroll
    for (int r = 0; r < kRounds; ++r)
#pragma unroll
      for (int i = 0; i < kAhead; ++i) sum[r] += ahead[r][i];
  }
#pragma unroll
  for (int r = 0; r < kRounds; ++r) sums[r * kStep + first_step][own][lane] = sum[r];
  __syncthreads();
  for (int i = int(threadIdx.x); i < kMaps * kPlaces; i += kThreads) {
    const int at = i % kPlaces, to_map = i / kPlaces;
    float total = sums[at][0][to_map];
#pragma unroll
    for (int s = 1; s < kSlices; ++s) total += sums[at][s][to_map];
    const I to = first_place + at, m = first_map + to_map;
    if (to >= places || m >= o.maps) continue;
    const I channel = divide(to, taps), tap = to - channel * taps;
    const I rows = divide(tap, o.kernel[2]), planes = divide(rows, o.kernel[1]);
    o.out[m * o.out_map + channel * o.out_channel + planes * o.out_tap[0] +
          (rows - planes * o.kernel[1]) * o.out_tap[1] + (tap - rows * o.kernel[2]) * o.out_tap[2]] =
        Element<typename O::Stored>::store(total);
  }
}

}  // namespace aicf
