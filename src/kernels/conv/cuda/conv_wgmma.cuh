// Convolution of f16 and bf16 with wgmma (sm_90a): an implicit GEMM whose one operand is gathered from the windows of x
// (conv_gather.cuh). All threads copy and multiply: while the matrix units work on one stage, the copies of a later one are
// issued, and a second block on the multiprocessor fills the gaps. A result is the sum of its products of 16 steps of K
// each in ascending order; a split K adds the parts in order.
#pragma once

#include "conv/cuda/conv_gather.cuh"
#include "matmul/cuda/wgmma.cuh"

namespace aicf {

// BM × BN results by warpgroups of 64 rows. Weights are rows of w_map elements, a multiple of 8, K neighbours in each.
// Multiply: see wgmma_text.h.
template <class T, class Multiply, int BM, int BN, int kStages, bool kPixelRows, int kUnit, bool kWide, Split kSplit,
          int kParts>
struct ConvWgmma {
  static constexpr int kThreads = BM / 64 * 128, kQuadBlocks = BN / 32, kGroups = kQuadBlocks * 2;
  static constexpr int kPixels = kPixelRows ? BM : BN, kMaps = kPixelRows ? BN : BM;
  using XTile = StageTile<T, BM, kHalfDepth, false>;
  using WeightTile = StageTile<T, kMaps, kHalfDepth, false>;
  static constexpr int kStageBytes = (BM + BN) * kHalfDepth * 2;
  static constexpr int kGatheredAt = kPixelRows ? 0 : XTile::kBytes, kWeightsAt = kPixelRows ? XTile::kBytes : 0;

  template <class O, class I>
  static __device__ __forceinline__ void accumulate(const O& o, const T* x, const T* w, I first_pixel, I pixels_left,
                                                    I maps_left, I k_first, I k_end, char* shared, float (&acc)[BN / 2]) {
    GatheredRows<T, I, kPixels, kThreads, kUnit> gathered;
    gathered.find(o, first_pixel, pixels_left);
    const int steps = k_first < k_end ? int((k_end - k_first + kHalfDepth - 1) / kHalfDepth) : 0;
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    const auto load = [&](int step) {
      if (step < steps) {
        char* stage = shared + step % kStages * kStageBytes;
        const I k = k_first + I(step) * kHalfDepth;
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
      wgmma_wait<0>();  // the step before has read its stage, which the load below overwrites
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      const uint32_t stage = shared_address(shared) + step % kStages * kStageBytes;
      const uint64_t a = wgmma_descriptor<true>(stage + warpgroup * 64 * 128);
      const uint64_t b = wgmma_descriptor<true>(stage + XTile::kBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kHalfDepth / 16; ++k)
        Multiply::run(acc, a + k * wgmma_k_step<true>, b + k * wgmma_k_step<true>);
      wgmma_commit();
      load(step + kStages - 1);
    }
    wgmma_wait<0>();
    wait_for_copies<0>();
    __syncthreads();
  }

  // Blocks: x: part `blockIdx.x % kParts` of tile `blockIdx.x / kParts`, a part being `part_depth` of K; y: group.
  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, typename O::Index part_depth,
                             const ConvPrefetch& prefetch) {
    using I = typename O::Index;
    extern __shared__ __align__(1024) char shared[];
    const int thread = int(threadIdx.x), lane = thread & 31;
    const I group = blockIdx.y, groups = gridDim.y;
    const I rows = kPixelRows ? o.images * o.pixels() : o.maps, columns = kPixelRows ? o.maps : o.pixels();
    const uint32_t tile_index = blockIdx.x / kParts, part = blockIdx.x - tile_index * kParts;
    const MatmulTile tile = tile_at(tile_index, uint32_t(tiles_of<I>(rows, BM)), uint32_t(tiles_of<I>(columns, BN)));
    const I row = I(tile.row) * BM, column = I(tile.column) * BN, image = tile.batch;
    const I depth = o.depth(), first_map = kPixelRows ? column : row;
    const I k_first = kSplit == Split::kNone ? I(0) : I(part) * part_depth;
    const I k_end = kSplit == Split::kNone ? depth : min(depth, I(k_first + part_depth));
    if constexpr (kPixelRows && kSplit == Split::kNone)
      prefetch_tile<BM, BN, sizeof(T), kThreads>(prefetch, row, rows, int64_t(group) * o.maps + column,
                                                 int64_t(group + 1) * o.maps);
    float acc[BN / 2];
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) acc[i] = 0.0f;
    accumulate(o, o.x + group * o.channels * o.x_channel, o.w + (group * o.maps + first_map) * o.w_map,
               kPixelRows ? row : I(image * o.pixels() + column), I(kPixelRows ? rows - row : columns - column),
               I(o.maps - first_map), k_first, k_end, shared, acc);
    const I first_row = row + thread / 32 * 16 + lane / 4, first_column = column + lane % 4 * 8;
    const auto store = [&](int g, const float(&values)[8]) {
      const I r = first_row + g % 2 * 8, c = first_column + g / 2 * 32;
      if (r < rows && c < columns) store_conv<kPixelRows, kWide>(o, epilogue, image, group, groups, r, c, values);
    };
    float values[kGroups][8];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int e = 0; e < 8; ++e) values[g][e] = acc[(g / 2 * 4 + e / 2) * 4 + g % 2 * 2 + e % 2];
      transpose_quad(values[g]);
      if constexpr (kSplit == Split::kNone) store(g, values[g]);
    }
    if constexpr (kSplit == Split::kCluster)
      finish_cluster<kThreads, kParts>(values, thread, reinterpret_cast<AccVector<float>*>(shared), store);
  }
};

}  // namespace aicf
