// Contraction of f16 and bf16 on sm_90a: one thread keeps a pipeline of kStages tiles in shared memory filled through the
// copy engine (tensor maps, mbarriers); warpgroups of 128 threads multiply them with wgmma m64nNk16 into f32 sums, each
// some rows of the block's tile. Blocks stay and take tile after tile; or, with Split::kCluster, the blocks of a cluster
// have parts of one tile's K. A result is the sum of its products of 16 steps of k each in ascending order, a split K adds
// the parts in order. Shared-memory layouts and descriptors: PTX ISA, "Asynchronous warpgroup level matrix
// multiply-accumulate"; the roles follow the warp-specialised kernels of CUTLASS. Wider schemes (warpgroups with tiles of
// their own, tiles of y loaded once for two blocks) were measured on H100 and H200 and gained nothing over 256 x 128.
#pragma once

#include "matmul/matmul_common.cuh"

namespace aicf {

constexpr int kWgmmaDepth = 64;       // K of one stage: 128 bytes, the widest swizzle
constexpr int kPanelBytes = 64 * 128; // 64 rows of 128 bytes

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

// A box of the tensor from the given coordinates, innermost first.
__device__ __forceinline__ void load_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}
__device__ __forceinline__ void load_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
__device__ __forceinline__ void load_box(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// A matrix in shared memory with the 128-byte swizzle. Along k: rows of 64 k, eight of them 1024 bytes. Along m or n:
// panels of 64 m or n by 64 k.
// kEight: distance of eight rows.
template <bool kAlongK, int kEight = 1024>
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address) {
  const uint64_t leading = kAlongK ? 1 : kPanelBytes >> 4;
  return uint64_t((address & 0x3ffff) >> 4) | leading << 16 | uint64_t(kEight >> 4) << 32 | uint64_t(1) << 62;
}
// Bytes from one 16 steps of k to the next, in the descriptor's unit.
template <bool kAlongK>
constexpr uint64_t wgmma_k_step = (kAlongK ? 32 : 16 * 128) >> 4;

// kConstantY: no launch of the run writes y, so that the first stages of y are loaded before the inputs are awaited.
// kLoaderGroup: a whole warpgroup loads, so that it can give registers to the two that multiply. kXRows: rows of the tile of x that are loaded, fewer than BM where M never is more; the others hold anything, and so do
// the results that are not stored. Multiply: a struct with run(float (&d)[BN / 2], uint64_t a, uint64_t b), generated for T, BN and the layouts.
template <class Multiply, int BM, int BN, int kStages, int kWarpgroups, bool kLoaderGroup, bool kXAlongK, bool kYAlongK, int kXRows, bool kConstantY, Split kSplit, int kParts>
struct WgmmaMatmul {
  static constexpr int kConsumers = 128 * kWarpgroups;  // and one warp or warpgroup more that loads
  static constexpr int kRows = BM / kWarpgroups;  // of a warpgroup
  static constexpr int kRowBlocks = kRows / 64, kQuadBlocks = BN / 32;
  static constexpr int kGroups = kRowBlocks * kQuadBlocks * 2;
  static constexpr int kRoundQuads = kRowBlocks == 1 && kQuadBlocks % 2 == 0 ? 2 : 1;  // of a round of the epilogue
  // Eight rows of x stand for all rows of the tile.
  static constexpr bool kFewRows = kXRows == 8;
  static constexpr int kXBytes = (kFewRows ? 8 : BM) * 128, kYBytes = BN * 128, kStageBytes = kXBytes + kYBytes;
  static constexpr bool kInCluster = kSplit == Split::kCluster;
  static_assert(BN % 32 == 0 && (kYAlongK || BN % 64 == 0) && kRows % 64 == 0, "whole panels and epilogue groups");
  static_assert(kXRows <= BM && (kXRows == BM || kXAlongK) && (!kFewRows || BM == 64), "rows of x");

  // A position in the pipeline: `count` stages lie before it.
  struct Stage {
    uint32_t slot, parity;
    __device__ explicit Stage(uint32_t count) : slot(count % kStages), parity(count / kStages & 1) {}
    __device__ void next() {
      if (++slot == kStages) {
        slot = 0;
        parity ^= 1;
      }
    }
  };

  struct Shared {
    uint32_t base;
    __device__ uint32_t x(uint32_t slot) const { return base + slot * kStageBytes; }
    __device__ uint32_t y(uint32_t slot) const { return x(slot) + kXBytes; }
    __device__ uint32_t full(uint32_t slot) const { return base + kStages * kStageBytes + slot * 8; }
    __device__ uint32_t empty(uint32_t slot) const { return full(slot) + kStages * 8; }
  };

  static __device__ void set_up(const Shared& shared) {
    if (threadIdx.x == 0) {
      for (uint32_t slot = 0; slot < kStages; ++slot) {
        barrier_init(shared.full(slot), 1);
        barrier_init(shared.empty(slot), 4 * kWarpgroups);  // every warp that reads
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if constexpr (kInCluster)
      cluster_barrier();
    else
      __syncthreads();
  }

  template <class Operands>
  static __device__ void load_x(const Operands& o, const CUtensorMap* x_map, const Shared& shared, uint32_t slot, int k,
                                int row, uint32_t batch) {
    const uint32_t full = shared.full(slot);
    if constexpr (kXAlongK) {
      o.load_x(x_map, shared.x(slot), full, k, row, batch);
    } else {
#pragma unroll
      for (int panel = 0; panel < BM / 64; ++panel)
        o.load_x(x_map, shared.x(slot) + panel * kPanelBytes, full, k, row + panel * 64, batch);
    }
  }
  // Comes first in a stage, before load_x.
  template <class Operands>
  static __device__ void load_y(const Operands& o, const CUtensorMap* y_map, const Shared& shared, uint32_t slot, int k,
                                int column, uint32_t batch) {
    const uint32_t full = shared.full(slot);
    barrier_expect(full, kXRows * 128 + kYBytes);
    if constexpr (kYAlongK) {
      o.load_y(y_map, shared.y(slot), full, k, column, batch);
    } else {
#pragma unroll
      for (int panel = 0; panel < BN / 64; ++panel)
        o.load_y(y_map, shared.y(slot) + panel * kPanelBytes, full, k, column + panel * 64, batch);
    }
  }

  static __device__ __forceinline__ void release(const Shared& shared, uint32_t slot) {
    if ((threadIdx.x & 31) == 0) barrier_arrive(shared.empty(slot));
  }

  static __device__ __forceinline__ void accumulate(const Shared& shared, Stage stage, int steps, int first_row,
                                                    float (&acc)[kRowBlocks][BN / 2]) {
    uint32_t before = 0;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(shared.full(stage.slot), stage.parity);
      const uint64_t a = wgmma_descriptor<kXAlongK, kFewRows ? 0 : 1024>(shared.x(stage.slot) + first_row * 128);
      const uint64_t b = wgmma_descriptor<kYAlongK>(shared.y(stage.slot));
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kWgmmaDepth / 16; ++k)
#pragma unroll
        for (int i = 0; i < kRowBlocks; ++i)
          Multiply::run(acc[i], a + i * (kPanelBytes >> 4) + k * wgmma_k_step<kXAlongK>, b + k * wgmma_k_step<kYAlongK>);
      wgmma_commit();
      wgmma_wait<1>();  // the step before has read its stage
      if (step > 0) release(shared, before);
      before = stage.slot;
      stage.next();
    }
    wgmma_wait<0>();
    if (steps > 0) release(shared, before);
  }

  // Elements row … of one group as the epilogue takes them.
  static __device__ __forceinline__ void group(const float (&acc)[kRowBlocks][BN / 2], int g, float (&values)[8]) {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      values[e] = acc[g / (kQuadBlocks * 2)][(g / 2 % kQuadBlocks * 4 + e / 2) * 4 + g % 2 * 2 + e % 2];
    transpose_quad(values);
  }

  // kParts blocks share a tile, `part_depth` of K each (Split::kCluster).
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, int part_depth) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    const uint32_t row_tiles = uint32_t(tiles_of<int>(o.m, BM)), column_tiles = uint32_t(tiles_of<int>(o.n, BN));
    const uint32_t tiles = row_tiles * column_tiles * uint32_t(o.batches);
    const uint32_t first = blockIdx.x / kParts, stride = gridDim.x / kParts;
    const int k_first = kInCluster ? int(blockIdx.x % kParts) * part_depth : 0;
    const int k_end = kInCluster ? min(int(o.k), k_first + part_depth) : int(o.k);
    const int steps = k_end > k_first ? (k_end - k_first + kWgmmaDepth - 1) / kWgmmaDepth : 0;
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);

    launch_dependents();
    set_up(shared);
    if (warpgroup != kWarpgroups) wait_for_inputs();

    if (warpgroup == kWarpgroups) {
      if constexpr (kLoaderGroup) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
      if (threadIdx.x == kConsumers) {
        int early = 0;  // steps of the first tile whose y is on its way
        if constexpr (kConstantY) {
          const MatmulTile tile = tile_at(first, row_tiles, column_tiles);
          for (; early < min(steps, kStages) && first < tiles; ++early)
            load_y(o, y_map, shared, uint32_t(early), k_first + early * kWgmmaDepth, int(tile.column) * BN, tile.batch);
        }
        wait_for_inputs();
        Stage stage(0);
        for (uint32_t index = first; index < tiles; index += stride) {
          const MatmulTile tile = tile_at(index, row_tiles, column_tiles);
          const int row = int(tile.row) * BM, column = int(tile.column) * BN;
          for (int step = 0; step < steps; ++step, stage.next()) {
            const int k = k_first + step * kWgmmaDepth;
            if (--early < 0) {
              barrier_wait(shared.empty(stage.slot), stage.parity ^ 1);
              load_y(o, y_map, shared, stage.slot, k, column, tile.batch);
            }
            load_x(o, x_map, shared, stage.slot, k, row, tile.batch);
          }
        }
      }
      __syncwarp();
      if constexpr (kInCluster) {
        cluster_barrier();  // those of finish_cluster
        cluster_barrier();
      }
    } else {
      if constexpr (kLoaderGroup) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
      const int thread = int(threadIdx.x), lane = thread & 31;
      const int first_row = warpgroup * kRows;
      const int thread_row = first_row + (thread % 128) / 32 * 16 + lane / 4;
      uint32_t number = 0;  // of the block's tiles
      for (uint32_t index = first; index < tiles; index += stride, ++number) {
        float acc[kRowBlocks][BN / 2];
#pragma unroll
        for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
          for (int j = 0; j < BN / 2; ++j) acc[i][j] = 0.0f;
        accumulate(shared, Stage(number * uint32_t(steps)), steps, first_row, acc);
        const MatmulTile tile = tile_at(index, row_tiles, column_tiles);
        const int row = int(tile.row) * BM + thread_row;
        const int column = int(tile.column) * BN + lane % 4 * 8;
        const int64_t outer = int64_t(tile.batch) * o.m;
        if constexpr (kInCluster) {
          float groups[kGroups][8];
#pragma unroll
          for (int g = 0; g < kGroups; ++g) group(acc, g, groups[g]);
          asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");  // all stages have been read
          finish_cluster<kConsumers, kParts>(groups, thread, reinterpret_cast<AccVector<float>*>(memory),
                                     [&](int g, const float(&values)[8]) {
                                       const int r = row + g / (kQuadBlocks * 2) * 64 + g % 2 * 8;
                                       const int c = column + g / 2 % kQuadBlocks * 32;
                                       if (r < o.m && c < o.n)
                                         store_columns<8>(epilogue, epilogue.row(outer + r), c, o.n, values);
                                     },
                                     [&](int g) { return row + g / (kQuadBlocks * 2) * 64 + g % 2 * 8 < o.m; });
        } else {
// A rolled loop over columns, because the epilogue's code may be long: the accumulators move up after each round.
#pragma unroll 1
          for (int c = column; c < column + BN; c += kRoundQuads * 32) {
#pragma unroll
            for (int i = 0; i < kRowBlocks * 2; ++i) {
              const int r = row + i / 2 * 64 + i % 2 * 8;
              const bool inside = r < o.m;
              const typename Epilogue::Row at = epilogue.row(inside ? outer + r : outer);
#pragma unroll
              for (int q = 0; q < kRoundQuads; ++q) {
                float values[8];
                group(acc, (i / 2 * kQuadBlocks + q) * 2 + i % 2, values);
                if (inside && c + q * 32 < o.n) store_columns<8>(epilogue, at, c + q * 32, o.n, values);
              }
            }
#pragma unroll
            for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
              for (int j = 0; j + kRoundQuads * 16 < BN / 2; ++j) acc[i][j] = acc[i][j + kRoundQuads * 16];
          }
        }
      }
    }
  }
};

}  // namespace aicf
