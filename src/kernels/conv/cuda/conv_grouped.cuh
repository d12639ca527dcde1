// Convolution of f16, bf16 and, in tf32, f32 in groups of few channels or of few maps with mma.sync: a block keeps the
// weights of several groups and goes through boxes of pixels. Of each it copies x once, for all taps and groups; while one
// box is multiplied the next is on its way. A result is the sum over (tap in row-major order, channel of the group), channels
// in steps of 16 (tf32: 8) and a last one of half as many; of few channels of halves 16 are those of four taps.
#pragma once

#include "conv/cuda/window_box.cuh"

namespace aicf {

// Two words of a and one of b: half of the steps of k of four words (MmaType).
__device__ __forceinline__ void mma_half_step(f16, float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void mma_half_step(bf16, float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void mma_half_step(float, float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
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
__device__ __forceinline__ uint2 load_shared_words(uint32_t address) {
  uint2 words;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(address) : "memory");
  return words;
}

// What a warp multiplies at a time: kTiles tiles of 16 results, by blocks of eight columns.
constexpr int kGroupedTiles = 2;

// Shape: that of WindowBox, and kGroupChannels, kGroupMaps, kGroups: channels and maps of a group, groups of a slice, whose
// channels begin at whole chunks. kTogether: groups of a warp's step.
template <class T, class Shape, int kTogether, int kUnit, int kThreads>
struct ChunkProducts {
  static constexpr int kC = Shape::kGroupChannels, kM = Shape::kGroupMaps, kGroups = Shape::kGroups;
  static constexpr int kTaps = Shape::kKernelH * Shape::kKernelW, kTiles = kGroupedTiles;
  static constexpr int kVector = 16 / int(sizeof(T)), kWord = kVector / 4;  // elements of a chunk, of a word
  static constexpr bool kWholeChunks = kC % kVector == 0;
  // The only group of a slice begins where the slice does.
  static constexpr int kChunks = kGroups == 1 ? (kC + kVector - 1) / kVector : chunks_of_group(kC, kVector);
  static constexpr int kBlocks = (kM + 7) / 8;  // of columns
  static constexpr int kSliceChannels = chunk_offset(kGroups - 1, kC, kVector) + kChunks * kVector;
  using Box = WindowBox<T, Shape, kSliceChannels, kUnit, kThreads, kGroups * kC>;
  // Weights as mma takes them: words [group, tap, chunk, block of columns, lane].
  static constexpr int kGroupWords = kTaps * kChunks * kBlocks * 32, kWords = kGroups * kGroupWords;

  template <class O>
  static __device__ __forceinline__ void load_weights(const O& o, typename O::Index first_group, typename O::Index groups,
                                                      uint32_t* weights) {
    using I = typename O::Index;
#pragma unroll 8
    for (int i = int(threadIdx.x); i < kWords; i += kThreads) {
      const int lane = i % 32, block = i / 32 % kBlocks, chunk = i / (32 * kBlocks) % kChunks,
                tap = i / (32 * kBlocks * kChunks) % kTaps, group = i / kGroupWords;
      const int map = block * 8 + lane / 4;
      const int channel = first_channel(group, chunk, lane);
      const I at = ((first_group + group) * kM + map) * o.w_map + tap / Shape::kKernelW * o.w_tap[1] +
                   tap % Shape::kKernelW * o.w_tap[2];
      uint32_t word = 0;
      if (first_group + group < groups && map < kM) {
#pragma unroll
        for (int e = 0; e < kWord; ++e)
          if (channel + e >= 0 && channel + e < kC)
            word |= uint32_t(MmaType<T>::word(o.w[at + (channel + e) * o.w_channel])) << 16 * e;
      }
      weights[i] = rounded(word);
    }
  }

  // Of the group, the first of the channels in this lane's word of a chunk.
  static __device__ __forceinline__ int first_channel(int group, int chunk, int lane) {
    return chunk_offset(group, kC, kVector) + chunk * kVector + lane % 4 * kWord - group * kC;
  }
  static __device__ __forceinline__ uint32_t rounded(uint32_t word) {
    if constexpr (kWord == 1)
      return to_tf32(word);
    else
      return word;
  }

  // Of the channels of this lane's word in a chunk those of the group: another group's, times zero, need not be zero.
  static __device__ __forceinline__ uint32_t channel_mask(int group, int chunk) {
    if constexpr (kWholeChunks) return 0xffffffffu;
    const int channel = first_channel(group, chunk, int(threadIdx.x) % 32);
    const auto bits = [&](int c, uint32_t all) { return c >= 0 && c < kC ? all : 0u; };
    if constexpr (kWord == 1) return bits(channel, 0xffffffffu);
    return bits(channel, 0xffffu) | bits(channel + 1, 0xffff0000u);
  }

  // Adds the products of one group to its blocks of columns. `rows`: where the lane reads the first tap of each tile's rows.
  template <int kColumns>
  static __device__ __forceinline__ void multiply_group(const uint32_t (&rows)[kTiles], uint32_t weights, int group,
                                                        float (&acc)[kTiles][kColumns][4], int first_block) {
    uint32_t mask[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) mask[c] = channel_mask(group, c);
    const uint32_t from = chunk_offset(group, kC, kVector) * int(sizeof(T));
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
          MmaType<T>::prepare(a[i]);
        }
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          const uint32_t b0 = load_shared_word(w + (c * kBlocks + b) * 128),
                         b1 = load_shared_word(w + ((c + 1) * kBlocks + b) * 128);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) MmaType<T>::multiply(acc[i][first_block + b], a[i], b0, b1);
        }
      }
      if constexpr (kChunks % 2 == 1) {
        constexpr int c = kChunks - 1;
        uint32_t a[kTiles][2];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          load_two_matrices(a[i], rows[i] + from + Box::tap_offset(tap) + c * 16);
          a[i][0] = rounded(a[i][0] & mask[c]), a[i][1] = rounded(a[i][1] & mask[c]);
        }
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          const uint32_t word = load_shared_word(w + (c * kBlocks + b) * 128);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) mma_half_step(T{}, acc[i][first_block + b], a[i][0], a[i][1], word);
        }
      }
    }
  }

  // Adds the products of the groups of step `unit` to the results from `first_result` on of a box.
  template <int kColumns>
  static __device__ __forceinline__ void multiply(uint32_t box, uint32_t weights, int first_result, int unit,
                                                  float (&acc)[kTiles][kColumns][4]) {
    const int lane = int(threadIdx.x) % 32;
    uint32_t rows[kTiles];  // of an odd last chunk lanes 0 to 15 say where it is
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int result = first_result + i * 16 + lane % 16;
      rows[i] = box + Box::result_offset(result < Box::kResults ? result : 0) + lane / 16 * 16;
    }
#pragma unroll
    for (int g = 0; g < kTogether; ++g)
      multiply_group(rows, weights + (unit * kTogether + g) * (kGroupWords * 4) + lane * 4, unit * kTogether + g, acc,
                     g * kBlocks);
  }
};

// Of one group of up to four channels of halves: a step of K is four taps of four channels, of which a lane has one tap. The
// order within a step is that of the lanes, in both operands.
template <class T, class Shape, int kThreads>
struct TapProducts {
  static constexpr int kC = Shape::kGroupChannels, kM = Shape::kGroupMaps, kLaneChannels = 4, kStepTaps = 4;
  static constexpr int kTaps = Shape::kKernelH * Shape::kKernelW, kTiles = kGroupedTiles;
  static constexpr int kSteps = (kTaps + kStepTaps - 1) / kStepTaps, kBlocks = (kM + 7) / 8;
  static_assert(sizeof(T) == 2 && kC <= kLaneChannels && Shape::kGroups == 1, "few channels");
  using Box = WindowBox<T, Shape, kLaneChannels, 1, kThreads, kC>;
  // Words [step, block of columns, lane, pair of channels].
  static constexpr int kWords = kSteps * kBlocks * 64;

  template <class O>
  static __device__ __forceinline__ void load_weights(const O& o, typename O::Index, typename O::Index, uint32_t* weights) {
    using I = typename O::Index;
#pragma unroll 4
    for (int i = int(threadIdx.x); i < kWords; i += kThreads) {
      const int channel = i % 2 * 2, lane = i / 2 % 32, block = i / 64 % kBlocks, step = i / (64 * kBlocks);
      const int map = block * 8 + lane / 4, tap = step * kStepTaps + lane % 4;
      const I at = map * o.w_map + tap / Shape::kKernelW * o.w_tap[1] + tap % Shape::kKernelW * o.w_tap[2];
      uint32_t word = 0;
      if (map < kM && tap < kTaps) {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (channel + e < kC) word |= uint32_t(o.w[at + (channel + e) * o.w_channel].bits) << 16 * e;
      }
      weights[i] = word;
    }
  }

  // The four channels of a position, zeros in place of those that x lacks: nobody writes them.
  static __device__ __forceinline__ uint2 load_channels(uint32_t address) {
    uint2 words = load_shared_words(address);
    if constexpr (kC == 1) words.x &= 0xffff;
    if constexpr (kC <= 2) words.y = 0;
    if constexpr (kC == 3) words.y &= 0xffff;
    return words;
  }

  template <int kColumns>
  static __device__ __forceinline__ void multiply(uint32_t box, uint32_t weights, int first_result, int,
                                                  float (&acc)[kTiles][kColumns][4]) {
    const int lane = int(threadIdx.x) % 32;
    uint32_t rows[kTiles][2];
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int result = first_result + i * 16 + half * 8 + lane / 4;
        rows[i][half] = box + Box::result_offset(result < Box::kResults ? result : 0);
      }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int tap = step * kStepTaps + lane % 4;
      const bool exists = step + 1 < kSteps || tap < kTaps;
      const uint32_t offset = exists ? Box::tap_offset(tap) : 0;
      uint32_t a[kTiles][4];
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint2 words = load_channels(rows[i][half] + offset);
          a[i][half] = exists ? words.x : 0;
          a[i][half + 2] = exists ? words.y : 0;
        }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const uint2 w = load_shared_words(weights + ((step * kBlocks + b) * 32 + lane) * 8);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) MmaType<T>::multiply(acc[i][b], a[i], w.x, w.y);
      }
    }
  }
};

// Products: what brings the weights of a slice of groups to shared memory and multiplies them. kStored: results of a group's
// maps that are stored together, where pixels are rows.
template <class T, class Shape, class Products, int kTogether, bool kPixelRows, int kStored, int kThreads>
struct ConvGrouped {
  static constexpr int kC = Shape::kGroupChannels, kM = Shape::kGroupMaps, kGroups = Shape::kGroups;
  static constexpr int kWarps = kThreads / 32, kTiles = kGroupedTiles;
  using Box = typename Products::Box;
  static constexpr int kBlocks = Products::kBlocks, kAllBlocks = kTogether * kBlocks, kQuads = (kAllBlocks + 3) / 4;
  static constexpr int kUnits = kGroups / kTogether;
  static_assert(kGroups % kTogether == 0, "whole steps");
  static constexpr int kPixelTiles = (Box::kResults + 16 * kTiles - 1) / (16 * kTiles);
  static constexpr int kWeightBytes = Products::kWords * 4;

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
      float acc[kTiles][kQuads * 4][4] = {};
      Products::multiply(box, weights, first_result, unit, acc);
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
    Products::load_weights(o, first_group, groups, reinterpret_cast<uint32_t*>(shared));
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
