// Convolution of f16 and bf16 in groups of few channels with mma.sync: a block keeps the weights of several groups and goes
// through boxes of pixels. Of each it copies x once, for all taps and groups; while one box is multiplied the next is on its
// way. A result is the sum over (tap in row-major order, channel of the group), channels in steps of 16 and a last one of 8.
#pragma once

#include "conv/cuda/window_box.cuh"

namespace aicf {

// Two words of a and one of b: 8 steps of k.
__device__ __forceinline__ void mma_16x8x8(f16, float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void mma_16x8x8(bf16, float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void load_two_matrices(uint32_t (&to)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(address) : "memory");
}
__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

// Shape: that of WindowBox, and kGroupChannels, kGroupMaps, kGroups: channels and maps of a group, groups of a slice, whose
// channels begin at multiples of 8. kTogether: groups of a warp's step. kStored: results of a group's maps that are stored
// together, where pixels are rows.
template <class T, class Shape, int kTogether, int kUnit, bool kPixelRows, int kStored, int kThreads>
struct ConvGrouped {
  static constexpr int kC = Shape::kGroupChannels, kM = Shape::kGroupMaps, kGroups = Shape::kGroups;
  static constexpr int kTaps = Shape::kKernelH * Shape::kKernelW, kWarps = kThreads / 32, kTiles = 2;
  static constexpr bool kWholeChunks = kC % 8 == 0;
  static constexpr int kChunks = chunks_of_group(kC), kBlocks = (kM + 7) / 8;  // the latter of columns
  static constexpr int kAllBlocks = kTogether * kBlocks, kQuads = (kAllBlocks + 3) / 4;
  static constexpr int kSliceChannels = chunk_offset(kGroups - 1, kC) + kChunks * 8;
  using Box = WindowBox<T, Shape, kSliceChannels, kUnit, kThreads>;
  static constexpr int kUnits = kGroups / kTogether;
  static_assert(kGroups % kTogether == 0, "whole steps");
  static constexpr int kPixelTiles = (Box::kResults + 16 * kTiles - 1) / (16 * kTiles);
  // Weights as mma takes them: [group, tap, chunk, block of columns, lane], words of two.
  static constexpr int kGroupWords = kTaps * kChunks * kBlocks * 32, kWeightBytes = kGroups * kGroupWords * 4;

  template <class O>
  static __device__ __forceinline__ void load_weights(const O& o, typename O::Index first_group, typename O::Index groups,
                                                      uint32_t* weights) {
    using I = typename O::Index;
    constexpr int kWords = kGroups * kGroupWords;
#pragma unroll 8
    for (int i = int(threadIdx.x); i < kWords; i += kThreads) {
      const int lane = i % 32, block = i / 32 % kBlocks, chunk = i / (32 * kBlocks) % kChunks,
                tap = i / (32 * kBlocks * kChunks) % kTaps, group = i / kGroupWords;
      const int map = block * 8 + lane / 4;
      const int channel = chunk_offset(group, kC) + chunk * 8 + lane % 4 * 2 - group * kC;
      const I at = ((first_group + group) * kM + map) * o.w_map + tap / Shape::kKernelW * o.w_tap[1] +
                   tap % Shape::kKernelW * o.w_tap[2];
      uint32_t word = 0;
      if (first_group + group < groups && map < kM) {
        if (channel >= 0 && channel < kC) word = o.w[at + channel * o.w_channel].bits;
        if (channel + 1 >= 0 && channel + 1 < kC) word |= uint32_t(o.w[at + (channel + 1) * o.w_channel].bits) << 16;
      }
      weights[i] = word;
    }
  }

  // Of the two channels of this lane in a chunk those of the group: another group's, times zero, need not be zero.
  static __device__ __forceinline__ uint32_t channel_mask(int group, int chunk) {
    if constexpr (kWholeChunks) return 0xffffffffu;
    const int channel = chunk_offset(group, kC) + chunk * 8 + int(threadIdx.x) % 4 * 2 - group * kC;
    return (channel >= 0 && channel < kC ? 0xffffu : 0u) | (channel + 1 >= 0 && channel + 1 < kC ? 0xffff0000u : 0u);
  }

  // Adds the products of one group to its blocks of columns. `rows`: where the lane reads the first tap of each tile's rows.
  static __device__ __forceinline__ void multiply(const uint32_t (&rows)[kTiles], uint32_t weights, int group,
                                                  float (&acc)[kTiles][kQuads * 4][4], int first_block) {
    uint32_t mask[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) mask[c] = channel_mask(group, c);
    const uint32_t from = chunk_offset(group, kC) * 2;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const uint32_t w = weights + tap * (kChunks * kBlocks * 128);
#pragma unroll
      for (int c = 0; c + 1 < kChunks; c += 2) {
        uint32_t a[kTiles][4];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          load_matrices<false>(a[i], rows[i] + from + Box::tap_offset(tap) + c * 16);
          if constexpr (!kWholeChunks) {
            a[i][0] &= mask[c], a[i][1] &= mask[c];
            a[i][2] &= mask[c + 1], a[i][3] &= mask[c + 1];
          }
        }
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          const uint32_t b0 = load_shared_word(w + (c * kBlocks + b) * 128),
                         b1 = load_shared_word(w + ((c + 1) * kBlocks + b) * 128);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) mma_16x8x16(T{}, acc[i][first_block + b], a[i], b0, b1);
        }
      }
      if constexpr (kChunks % 2 == 1) {
        constexpr int c = kChunks - 1;
        uint32_t a[kTiles][2];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          load_two_matrices(a[i], rows[i] + from + Box::tap_offset(tap) + c * 16);
          a[i][0] &= mask[c], a[i][1] &= mask[c];
        }
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          const uint32_t word = load_shared_word(w + (c * kBlocks + b) * 128);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) mma_16x8x8(T{}, acc[i][first_block + b], a[i][0], a[i][1], word);
        }
      }
    }
  }

  // Columns `first` … of group `group`: one of the block's results, number `result` of its box.
  template <int V, class O, class Epilogue, class I>
  static __device__ __forceinline__ void store(const O& o, const Epilogue& epilogue, const BoxPlace<Shape, I>& at, I group,
                                               I groups, int result, int first, const float (&values)[V]) {
    const I row = at.row + result / Shape::kColumns, column = at.column + result % Shape::kColumns;
    if (result >= Box::kResults || row >= o.axis[1].out || column >= o.axis[2].out || group >= groups) return;
    if constexpr (kPixelRows) {
      const auto to = epilogue.row((int64_t(at.image) * o.axis[1].out + row) * o.axis[2].out + column);
#pragma unroll
      for (int from = 0; from < V; from += kStored) {
        float some[kStored];
#pragma unroll
        for (int e = 0; e < kStored; ++e) some[e] = values[from + e];
        if (first + from < kM) epilogue.template apply<kStored>(to, int64_t(group) * kM + first + from, some);
      }
    } else {
#pragma unroll
      for (int e = 0; e < V; ++e) {
        const float one[1] = {values[e]};
        if (first + e < kM)
          epilogue.template apply<1>(epilogue.row((int64_t(at.image) * groups + group) * kM + first + e),
                                     int64_t(row) * o.axis[2].out + column, one);
      }
    }
  }

  template <class O, class Epilogue, class I>
  static __device__ __forceinline__ void compute(const O& o, const Epilogue& epilogue, const BoxPlace<Shape, I>& at,
                                                 I first_group, I groups, uint32_t box, uint32_t weights) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll 1
    for (int step = warp; step < kUnits * kPixelTiles; step += kWarps) {
      const int unit = step % kUnits, first_result = step / kUnits * (16 * kTiles);
      uint32_t rows[kTiles];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int result = first_result + i * 16 + lane % 16;
        rows[i] = box + Box::result_offset(result < Box::kResults ? result : 0) + lane / 16 * 16;
      }
      // Of an odd last chunk lanes 0 to 15 say where it is.
      float acc[kTiles][kQuads * 4][4] = {};
#pragma unroll
      for (int g = 0; g < kTogether; ++g)
        multiply(rows, weights + (unit * kTogether + g) * (kGroupWords * 4) + lane * 4, unit * kTogether + g, acc,
                 g * kBlocks);
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int result = first_result + i * 16 + half * 8 + lane / 4;
#pragma unroll
          for (int q = 0; q < kQuads; ++q) {
            float values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = acc[i][q * 4 + e / 2][half * 2 + e % 2];
            if constexpr (kPixelRows) {
              transpose_quad(values);
              const int block = q * 4 + lane % 4, group = unit * kTogether + block / kBlocks;
              if (block < kAllBlocks)
                store(o, epilogue, at, I(first_group + group), groups, result, block % kBlocks * 8, values);
            } else {
#pragma unroll
              for (int b = 0; b < 4; ++b) {
                const int block = q * 4 + b, group = unit * kTogether + block / kBlocks;
                const float two[2] = {values[b * 2], values[b * 2 + 1]};
                if (block < kAllBlocks)
                  store(o, epilogue, at, I(first_group + group), groups, result, block % kBlocks * 8 + lane % 4 * 2, two);
              }
            }
          }
        }
    }
  }

  // Grid: x: blocks that share the boxes of all images, y: slices of groups.
  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, typename O::Index groups) {
    using I = typename O::Index;
    extern __shared__ __align__(128) char shared[];
    const I first_group = I(blockIdx.y) * kGroups, first_channel = first_group * kC;
    const I boxes = o.images * tiles_of<I>(o.axis[1].out, Shape::kRows) * tiles_of<I>(o.axis[2].out, Shape::kColumns);
    const T* x = o.x + first_channel * o.x_channel;
    char* box = shared + kWeightBytes;
    const auto load = [&](I number, int buffer) {
      if (number < boxes) {
        const BoxPlace<Shape, I> at(o, number);
        Box::load(o.axis, x + at.image * o.x_batch, o.x_channel, I(groups * kC - first_channel), at,
                  box + buffer * Box::kBytes);
      }
      commit_copies();
    };
    load(I(blockIdx.x), 0);
    load_weights(o, first_group, groups, reinterpret_cast<uint32_t*>(shared));
    int buffer = 0;
    for (I number = I(blockIdx.x); number < boxes; number += I(gridDim.x), buffer ^= 1) {
      load(I(number + I(gridDim.x)), buffer ^ 1);
      wait_for_copies<1>();
      __syncthreads();
      compute(o, epilogue, BoxPlace<Shape, I>(o, number), first_group, groups,
              shared_address(box + buffer * Box::kBytes), shared_address(shared));
      __syncthreads();
    }
    wait_for_copies<0>();
  }
};

}  // namespace aicf
