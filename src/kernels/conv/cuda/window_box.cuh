// Boxes of results of a convolution, and in shared memory the positions of x under their windows: a position is a row of
// neighbouring channels, so that the fragments of mma.sync are read for every tap from the same copy of x.
#pragma once

#include "conv/cuda/conv.cuh"
#include "matmul/cuda/mma.cuh"

namespace aicf {

// Where box `number` of all images begins in the result. Shape: constants kRows, kColumns of a box.
template <class Shape, class I>
struct BoxPlace {
  I image, row, column;

  template <class O>
  __device__ __forceinline__ BoxPlace(const O& o, I number) {
    const I across = tiles_of<I>(o.axis[2].out, Shape::kColumns), down = tiles_of<I>(o.axis[1].out, Shape::kRows);
    const I rows = divide(number, across);
    image = divide(rows, down);
    column = (number - rows * across) * Shape::kColumns;
    row = (rows - image * down) * Shape::kRows;
  }
};

// Channels of a group, or maps, are a part of at most so many chunks of `vector`, 8 or 4: the first of group `group` begins
// at chunk_offset(group, size, vector), and its first channel stands this far behind it.
__device__ __forceinline__ constexpr int chunks_of_group(int size, int vector = 8) {
  int apart = vector;  // of groups' beginnings, at least
  while (size % apart != 0) apart /= 2;
  return (vector - apart + size + vector - 1) / vector;
}
__device__ __forceinline__ constexpr int chunk_offset(int group, int size, int vector = 8) {
  return group * size / vector * vector;
}

// Shape: constants kRows, kColumns of a box of results, kKernelH, kKernelW, kStrideH, kStrideW, kDilationH, kDilationW.
// kChannels: whole chunks of 16 bytes, or less than one. kUnit: elements of a chunk where channels are neighbours, a chunk in an aligned unit,
// else 1; then only the first kLoaded channels are written.
template <class T, class Shape, int kChannels, int kUnit, int kThreads, int kLoaded = kChannels>
struct WindowBox {
  static constexpr int kSize = int(sizeof(T)), kVector = 16 / kSize;
  static constexpr int kHeight = (Shape::kRows - 1) * Shape::kStrideH + (Shape::kKernelH - 1) * Shape::kDilationH + 1;
  static constexpr int kWidth = (Shape::kColumns - 1) * Shape::kStrideW + (Shape::kKernelW - 1) * Shape::kDilationW + 1;
  static constexpr int kPositions = kHeight * kWidth, kResults = Shape::kRows * Shape::kColumns;
  // An odd number of 16 bytes: eight neighbours lie in other banks.
  static constexpr int kChunks = kChannels / kVector;
  static constexpr int kPitch = kChunks == 0 ? kChannels * kSize : (kChunks | 1) * 16;
  static constexpr int kBytes = (kPositions * kPitch + 15) / 16 * 16;
  static_assert(kChannels % kVector == 0 || (kChunks == 0 && kUnit == 1), "whole chunks, or elements of less than one");
  static_assert(kUnit == 1 || kUnit == kVector, "elements one by one, or chunks");

  // Bytes from the box's first position: of the first tap of a result, and from there of a tap.
  static __device__ __forceinline__ int result_offset(int result) {
    const int row = result / Shape::kColumns, column = result % Shape::kColumns;
    return (row * Shape::kStrideH * kWidth + column * Shape::kStrideW) * kPitch;
  }
  static __device__ __forceinline__ constexpr int tap_offset(int tap) {
    return (tap / Shape::kKernelW * Shape::kDilationH * kWidth + tap % Shape::kKernelW * Shape::kDilationW) * kPitch;
  }

  // Copies what windows along these axes take of x, which begins at the box's first channel; zeros outside and where no
  // channel is left.
  template <class Axis, class I>
  static __device__ __forceinline__ void load(const Axis (&axis)[3], const T* x, I channel_stride, I channels_left,
                                              const BoxPlace<Shape, I>& at, char* box) {
    using U = typename UnsignedOf<I>::type;
    const I first_row = at.row * Shape::kStrideH - axis[1].low, first_column = at.column * Shape::kStrideW - axis[2].low;
    const auto offset = [&](int position, bool& inside) {
      const I row = first_row + position / kWidth, column = first_column + position % kWidth;
      inside = inside && U(row) < U(axis[1].in) && U(column) < U(axis[2].in);
      return row * axis[1].in_stride + column * axis[2].in_stride;
    };
    if constexpr (kUnit > 1) {
      const uint32_t to = shared_address(box);
#pragma unroll 4
      for (int i = int(threadIdx.x); i < kPositions * kChunks; i += kThreads) {
        const int position = i / kChunks, chunk = i % kChunks;
        bool inside = chunk * kVector < channels_left;
        const I from = offset(position, inside);
        copy_async(to + position * kPitch + chunk * 16, inside ? x + (from + chunk * kVector) : x, inside ? 16 : 0);
      }
    } else {
      constexpr int kAll = kPositions * kLoaded, kBatch = 8;  // elements that are under way together
      for (int first = int(threadIdx.x); first < kAll; first += kThreads * kBatch) {
        T values[kBatch];
#pragma unroll
        for (int e = 0; e < kBatch; ++e) {
          const int i = first + e * kThreads, channel = i / kPositions;
          bool inside = i < kAll && channel < channels_left;
          const I from = offset(i % kPositions, inside);
          values[e] = {};
          if (inside) values[e] = x[from + channel * channel_stride];
        }
#pragma unroll
        for (int e = 0; e < kBatch; ++e) {
          const int i = first + e * kThreads;
          if (i < kAll) *reinterpret_cast<T*>(box + i % kPositions * kPitch + i / kPositions * kSize) = values[e];
        }
      }
    }
  }
};

}  // namespace aicf
