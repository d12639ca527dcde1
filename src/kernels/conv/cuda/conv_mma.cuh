// Convolution of f16, bf16 and, in tf32, f32 with mma.sync: an implicit GEMM whose one operand is gathered from the windows of x
// (conv_gather.cuh). The arithmetic is that of matmul/cuda/mma.cuh, and so is the order of accumulation: 16 steps of K
// (tf32: 8) at a time, ascending; a split K adds the parts in order.
#pragma once

#include "conv/cuda/conv_gather.cuh"

namespace aicf {

// BM × BN results by warps of WM × WN. Weights are rows of w_map elements, whole 16 bytes, K neighbours in each.
template <class T, int BM, int BN, int WM, int WN, int kStages, bool kPixelRows, int kUnit, bool kWide, Split kSplit,
          int kParts>
struct ConvMma {
  using Core = MmaMatmul<T, BM, BN, WM, WN, kStages, true, true, true, true, kSplit, kParts>;
  static constexpr int kThreads = Core::kThreads, kGroups = Core::kGroups, kQuadBlocks = Core::kQuadBlocks;
  static constexpr int kDepth = Core::kDepth;
  static constexpr int kPixels = kPixelRows ? BM : BN, kMaps = kPixelRows ? BN : BM;
  // x stands first in a stage if pixels are rows, as MmaMatmul has its rows first.
  static constexpr int kFirstBytes = StageTile<T, BM, kDepth, false>::kBytes;
  using WeightTile = StageTile<T, kMaps, kDepth, false>;
  static constexpr int kGatheredAt = kPixelRows ? 0 : kFirstBytes, kWeightsAt = kPixelRows ? kFirstBytes : 0;

  template <class O, class I>
  static __device__ __forceinline__ void accumulate(const O& o, const T* x, const T* w, I first_pixel, I pixels_left,
                                                    I maps_left, I k_first, I k_end, char* shared,
                                                    const typename Core::Warp& warp,
                                                    float (&acc)[Core::kRowBlocks][kQuadBlocks][4][4]) {
    GatheredRows<T, I, kPixels, kThreads, kUnit> gathered;
    gathered.find(o, first_pixel, pixels_left);
    const int steps = k_first < k_end ? int((k_end - k_first + kDepth - 1) / kDepth) : 0;
    const auto load = [&](int step) {
      if (step < steps) {
        char* stage = shared + step % kStages * Core::kStageBytes;
        const I k = k_first + I(step) * kDepth;
        gathered.load(o, x, k, k_end, stage + kGatheredAt);
        WeightTile::template copy<kThreads>(shared_address(stage + kWeightsAt), w + k, o.w_map, maps_left, I(k_end - k),
                                            int(threadIdx.x));
      }
      commit_copies();
    };
#pragma unroll
    for (int step = 0; step < kStages - 1; ++step) load(step);
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      load(step + kStages - 1);
      Core::compute_stage(shared_address(shared) + step % kStages * Core::kStageBytes, warp, acc);
    }
    wait_for_copies<0>();
    __syncthreads();
  }

  // Blocks: x: part `blockIdx.x % kParts` of tile `blockIdx.x / kParts`, a part being `part_depth` of K; y: group.
  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, typename O::Index part_depth,
                             void* workspace) {
    using I = typename O::Index;
    extern __shared__ __align__(128) char shared[];
    const typename Core::Warp at = Core::warp();
    const int thread = int(threadIdx.x);
    const I group = blockIdx.y, groups = gridDim.y;
    const I rows = kPixelRows ? o.images * o.pixels() : o.maps, columns = kPixelRows ? o.maps : o.pixels();
    constexpr uint32_t tile_parts = kSplit == Split::kSum ? 1 : kParts;
    const uint32_t tile_index = blockIdx.x / tile_parts, part = blockIdx.x - tile_index * tile_parts;
    const uint32_t tiles = gridDim.x / tile_parts;
    const MatmulTile tile = tile_at(tile_index, uint32_t(tiles_of<I>(rows, BM)), uint32_t(tiles_of<I>(columns, BN)));
    const I row = I(tile.row) * BM, column = I(tile.column) * BN, image = tile.batch;
    const auto store = [&](int g, const float(&values)[8]) {
      const I r = row + at.row + g / (kQuadBlocks * 2) * 16 + g % 2 * 8 + at.lane / 4;
      const I c = column + at.column + g / 2 % kQuadBlocks * 32 + at.lane % 4 * 8;
      if (r < rows && c < columns) store_conv<kPixelRows, kWide>(o, epilogue, image, group, groups, r, c, values);
    };
    constexpr int64_t kTileVectors = int64_t(BM) * BN / 4;
    auto* parts_at =
        static_cast<AccVector<float>*>(workspace) + (int64_t(blockIdx.y) * tiles + tile_index) * kParts * kTileVectors;
    if constexpr (kSplit == Split::kSum) {
      sum_parts<kThreads, kParts, kGroups, 8, float>(parts_at, kTileVectors, thread, store);
    } else {
      float acc[Core::kRowBlocks][kQuadBlocks][4][4] = {};
      const I depth = o.depth();
      const I k_first = kSplit == Split::kNone ? I(0) : I(part) * part_depth;
      const I k_end = kSplit == Split::kNone ? depth : min(depth, I(k_first + part_depth));
      const I first_map = kPixelRows ? column : row;
      const I pixel = kPixelRows ? row : image * o.pixels() + column;
      accumulate(o, o.x + group * o.channels * o.x_channel, o.w + (group * o.maps + first_map) * o.w_map, pixel,
                 I(kPixelRows ? rows - row : columns - column), I(o.maps - first_map), k_first, k_end, shared, at, acc);
      float values[kGroups][8];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int e = 0; e < 8; ++e) values[g][e] = acc[g / (kQuadBlocks * 2)][g / 2 % kQuadBlocks][e / 2][g % 2 * 2 + e % 2];
        transpose_quad(values[g]);
      }
      finish_groups<kThreads, kSplit, kParts>(values, thread, shared, parts_at + part * kTileVectors, store);
    }
  }
};

}  // namespace aicf
