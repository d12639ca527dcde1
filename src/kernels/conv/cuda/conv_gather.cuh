// Tiles of x's windows in shared memory, for the convolutions on matrix units: rows are pixels, 128 bytes of K each, in the
// swizzle of StageTile, which is also the 128-byte swizzle of wgmma. Asynchronous copies take up to 16 bytes where channels
// are neighbours; padding comes as zeros. And what brings x and w into such layouts.
#pragma once

#include "conv/cuda/conv.cuh"
#include "matmul/cuda/mma.cuh"

namespace aicf {

// Copies kBytes (16, 8, 4), or zeros if not `copied`.
template <int kBytes>
__device__ __forceinline__ void copy_unit(uint32_t to, const void* from, bool copied) {
  if constexpr (kBytes == 16)
    copy_async(to, from, copied ? 16 : 0);
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(copied ? kBytes : 0)
                 : "memory");
}

// kRows pixels of a tile, seen by one thread: it copies 16 bytes of K for each of kCount of them, kUnit at a time (1: one
// by one and not asynchronously).
template <class T, class I, int kRows, int kThreads, int kUnit>
struct GatheredRows {
  static constexpr int kSize = int(sizeof(T)), kDepth = kStepBytes / kSize, kVector = 16 / kSize;
  using Tile = StageTile<T, kRows, kDepth, false>;
  static constexpr int kCount = kRows * Tile::kChunks / kThreads, kStep = kThreads / Tile::kChunks;
  static_assert(kRows * Tile::kChunks % kThreads == 0, "every thread copies as many chunks");

  I base[kCount], at[kCount][3];  // the window's first position: its offset in x, and on each axis
  uint32_t exists;                // a bit per row

  __device__ __forceinline__ static int row(int i) { return int(threadIdx.x) / Tile::kChunks + i * kStep; }

  // Pixels from `first` on, of which `left` exist.
  template <class O>
  __device__ __forceinline__ void find(const O& o, I first, I left) {
    exists = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool inside = row(i) < left;
      const Pixel<I> p = pixel_at(o, inside ? first + row(i) : I(0));
      exists |= uint32_t(inside) << i;
      base[i] = p.image * o.x_batch;
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        at[i][a] = o.axis[a].position(p.at[a], 0);
        base[i] += at[i][a] * o.axis[a].in_stride;
      }
    }
  }

  template <class O>
  __device__ __forceinline__ bool inside(const O& o, int i, const Tap<I>& tap) const {
    using U = typename UnsignedOf<I>::type;
    bool result = exists >> i & 1;
#pragma unroll
    for (int a = 0; a < 3; ++a) result = result && U(at[i][a] + tap.at[a] * o.axis[a].dilation) < U(o.axis[a].in);
    return result;
  }

  template <class O>
  __device__ __forceinline__ static I offset(const O& o, const Tap<I>& tap) {
    I sum = tap.channel * o.x_channel;
#pragma unroll
    for (int a = 0; a < 3; ++a) sum += tap.at[a] * o.axis[a].dilation * o.axis[a].in_stride;
    return sum;
  }

  // Steps k … k + kDepth - 1 of K, zeros from k_end on.
  template <class O>
  __device__ __forceinline__ void load(const O& o, const T* x, I k, I k_end, char* stage) const {
    const int chunk = int(threadIdx.x) % Tile::kChunks;
    const I first = k + chunk * kVector;
    if constexpr (kUnit > 1) {
      const uint32_t shared = shared_address(stage);
#pragma unroll
      for (int e = 0; e < kVector; e += kUnit) {
        const Tap<I> tap = tap_at(o, first + e);
        const I shift = offset(o, tap);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          const bool copied = first + e < k_end && inside(o, i, tap);
          copy_unit<kUnit * kSize>(shared + Tile::offset(row(i), chunk) + e * kSize, copied ? x + (base[i] + shift) : x,
                                   copied);
        }
      }
    } else {
      union {
        typename MmaType<T>::Word elements[kVector];
        uint4 all;
      } v[kCount];
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        const Tap<I> tap = tap_at(o, first + e);
        const I shift = offset(o, tap);
#pragma unroll
        for (int i = 0; i < kCount; ++i)
          v[i].elements[e] = first + e < k_end && inside(o, i, tap) ? MmaType<T>::word(x[base[i] + shift]) : 0;
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) *reinterpret_cast<uint4*>(stage + Tile::offset(row(i), chunk)) = v[i].all;
    }
  }
};

// Weights in any layout as rows of `row` elements with K neighbours, o.channels of them per tap of which `channels` exist;
// zeros elsewhere. One thread per element.
template <class T, class O>
__device__ __forceinline__ void pack_weights(const O& o, typename O::Index channels, typename O::Index all_maps,
                                             typename O::Index row, T* packed) {
  using I = typename O::Index;
  const I flat = flat_thread<I>();
  if (past(flat, all_maps * row)) return;
  const I map = divide(flat, row), k = flat - map * row;
  const Tap<I> tap = tap_at(o, k);
  T value = {};
  if (k < o.depth() && tap.channel < channels)
    value = o.w[map * o.w_map + tap.channel * o.w_channel + tap.at[0] * o.w_tap[0] + tap.at[1] * o.w_tap[1] +
                tap.at[2] * o.w_tap[2]];
  packed[flat] = value;
}

// x in any layout as [image, position, channel] with `padded` channels, zeros after the first `channels`. A block of 256
// threads turns a tile of kChannels × kPositions elements through shared memory. Grid: x: tiles of positions of all images,
// y: tiles of channels.
template <int kChannels, class T, class O>
__device__ __forceinline__ void pack_input(const O& o, typename O::Index channels, typename O::Index padded, T* packed) {
  using I = typename O::Index;
  constexpr int kElements = 2048, kPositions = kElements / kChannels;
  __shared__ T tile[kChannels][kPositions + 2];
  const I positions = o.axis[0].in * o.axis[1].in * o.axis[2].in;
  const I tiles = (positions + kPositions - 1) / kPositions, image = divide(I(blockIdx.x), tiles);
  const I first = (I(blockIdx.x) - image * tiles) * kPositions, first_channel = I(blockIdx.y) * kChannels;
  for (int i = threadIdx.x; i < kElements; i += 256) {
    const I position = first + i % kPositions, channel = first_channel + i / kPositions;
    T value = {};
    if (position < positions && channel < channels) {
      const I rows = divide(position, o.axis[2].in), planes = divide(rows, o.axis[1].in);
      value = o.x[image * o.x_batch + channel * o.x_channel + planes * o.axis[0].in_stride +
                  (rows - planes * o.axis[1].in) * o.axis[1].in_stride +
                  (position - rows * o.axis[2].in) * o.axis[2].in_stride];
    }
    tile[i / kPositions][i % kPositions] = value;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kElements; i += 256) {
    const I position = first + i / kChannels, channel = first_channel + i % kChannels;
    if (position < positions && channel < padded)
      packed[(image * positions + position) * padded + channel] = tile[i % kChannels][i / kChannels];
  }
}

}  // namespace aicf
