// Products of f32 on the matrix units of sm_90a as three products in tf32 (tf32_parts.cuh). Both operands come as they
// lie, along k or not, by the copy engine. Each warp that multiplies splits its rows of x in registers; three warps split
// a stage's y in shared memory, along k, as wgmma reads it. The two warpgroups take turns: one's products go on while the
// other adds. A result is the sum of its stages in ascending order, of a split K that of its parts.
// A result that is not finite is computed anew by multiply-adds in f32.
#pragma once

#include "matmul/cuda/mma.cuh"
#include "matmul/cuda/tf32_parts.cuh"
#include "matmul/cuda/wgmma_cluster.cuh"
#include "matmul/cuda/wgmma_epilogue.cuh"
#include "matmul/cuda/wgmma_instructions.cuh"

namespace aicf {

// Multiply, MultiplyFirst: structs with run(float (&d)[BN / 2], const uint32_t (&a)[4], uint64_t b), see wgmma_text.h;
// the latter overwrites d. kXAlongK: neighbours of x in memory differ in k, else in m; kYAlongK: in k, else in n. kPrefetch,
// kConstantY, kSplit, kParts: as of WgmmaMatmul. K counts 2 bytes, as in all kernels of wgmma.
template <class Multiply, class MultiplyFirst, int BM, int BN, int kSlots, int kPrefetch, bool kXAlongK, bool kYAlongK,
          bool kConstantY, Split kSplit, int kParts>
struct WgmmaTf32x3 {
  static constexpr int kBlockM = BM, kBlockN = BN, kStages = kSlots, kWarpgroups = 2, kConsumers = 128 * kWarpgroups;
  static constexpr int kRowBlocks = 1, kResults = BN / 2, kEpiloguePrefetch = kPrefetch;
  static constexpr int kQuadBlocks = BN / 32, kBlocksOfTile = kParts;  // as WgmmaPlace asks
  static constexpr bool kInCluster = kSplit == Split::kCluster, kFewRows = false;
  template <class Operands>
  static constexpr int kTileColumns = BN;
  static constexpr int kSplitWarps = 3;   // of the warpgroup that loads
  static constexpr int kInstructions = 4;  // of a stage: 8 of k each
  static constexpr int kSideBytes = 32 * 128;  // of 32 rows or columns of a stage
  // A stage: x, y as it comes, the rest of y, and y rounded, which along k takes the place of y.
  static constexpr int kXBytes = BM * 128, kYBytes = BN * 128, kStageBytes = kXBytes + kYBytes * (kYAlongK ? 2 : 3);
  static constexpr int kBarrierBytes = 32;  // of a stage: three, and what lies behind them begins at 16 bytes
  static_assert(BM == 64 * kWarpgroups && BN % 32 == 0, "a warpgroup multiplies 64 rows");

  // A position in the pipeline.
  struct Stage {
    uint32_t slot = 0, parity = 0;
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
    __device__ uint32_t low(uint32_t slot) const { return y(slot) + kYBytes; }
    __device__ uint32_t high(uint32_t slot) const { return kYAlongK ? y(slot) : low(slot) + kYBytes; }
    __device__ uint32_t full(uint32_t slot) const { return base + kStages * kStageBytes + slot * 8; }
    __device__ uint32_t split(uint32_t slot) const { return full(slot) + kStages * 8; }
    __device__ uint32_t empty(uint32_t slot) const { return split(slot) + kStages * 8; }
    __device__ constexpr uint32_t chunks() const { return base + kStages * (kStageBytes + kBarrierBytes); }
  };

  // The tiles of a block, or the part of one: K from k_first to k_end.
  struct Work {
    uint32_t row_tiles, column_tiles, tiles, first, stride;
    int k_first, k_end, steps;
    __device__ MatmulTile tile(uint32_t index) const { return tile_at(index, row_tiles, column_tiles); }
  };
  template <class Operands>
  static __device__ Work work_of(const Operands& o, int part_depth) {
    Work work;
    work.row_tiles = uint32_t(tiles_of<int>(o.m, BM));
    work.column_tiles = uint32_t(tiles_of<int>(o.n, BN));
    work.tiles = work.row_tiles * work.column_tiles * uint32_t(o.batches);
    work.first = blockIdx.x / kParts;
    work.stride = gridDim.x / kParts;
    work.k_first = kInCluster ? int(blockIdx.x % kParts) * part_depth : 0;
    work.k_end = kInCluster ? min(int(o.k), work.k_first + part_depth) : int(o.k);
    work.steps = work.k_end > work.k_first ? (work.k_end - work.k_first + kWgmmaDepth - 1) / kWgmmaDepth : 0;
    return work;
  }

  static __device__ void set_up(const Shared& shared) {
    if (threadIdx.x == 0) {
      for (uint32_t slot = 0; slot < kStages; ++slot) {
        barrier_init(shared.full(slot), 1);
        barrier_init(shared.split(slot), kSplitWarps);
        barrier_init(shared.empty(slot), kConsumers / 32);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }

  // ---- the thread that loads ----

  template <class Operands>
  static __device__ __forceinline__ void load_x(const Operands& o, const CUtensorMap* map, const Shared& shared,
                                                uint32_t slot, int k, const MatmulTile& tile) {
    constexpr int kPanel = kXAlongK ? BM : 32;
#pragma unroll
    for (int first = 0; first < BM; first += kPanel)
      o.load_x(map, shared.x(slot) + first * 128, shared.full(slot), k, int(tile.row) * BM + first, tile.batch);
  }
  template <class Operands>
  static __device__ __forceinline__ void load_y(const Operands& o, const CUtensorMap* map, const Shared& shared,
                                                uint32_t slot, int k, const MatmulTile& tile) {
    constexpr int kPanel = kYAlongK ? BN : 32;
#pragma unroll
    for (int first = 0; first < BN; first += kPanel)
      o.load_y(map, shared.y(slot) + first * 128, shared.full(slot), k, int(tile.column) * BN + first, tile.batch);
  }

  template <class Operands>
  static __device__ void load(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                              const Shared& shared, const Work& work) {
    // The first stages of y come before the launches before have ended, where none of them writes it.
    const int early = kConstantY && work.first < work.tiles ? min(work.steps, kStages) : 0;
    const auto k_of = [&](int step) { return work.k_first + step * kWgmmaDepth; };
    for (int step = 0; step < early; ++step) {
      barrier_expect(shared.full(step), kXBytes + kYBytes);
      load_y(o, y_map, shared, step, k_of(step), work.tile(work.first));
    }
    wait_for_inputs();
    Stage stage;
    int behind = early;  // stages whose y has been asked for
    for (uint32_t index = work.first; index < work.tiles; index += work.stride) {
      const MatmulTile tile = work.tile(index);
      for (int step = 0; step < work.steps; ++step, stage.next()) {
        if (behind > 0) {
          --behind;
        } else {
          barrier_wait(shared.empty(stage.slot), stage.parity ^ 1);
          barrier_expect(shared.full(stage.slot), kXBytes + kYBytes);
          load_y(o, y_map, shared, stage.slot, k_of(step), tile);
        }
        load_x(o, x_map, shared, stage.slot, k_of(step), tile);
      }
    }
    launch_dependents();
  }

  // ---- the warps that split y ----

  // Along n, in panels of 32 columns: a lane turns blocks of 4 × 4. Eight neighbouring lanes store to different banks;
  // of what they read, two share one.
  static __device__ __forceinline__ void split_along_n(const Shared& shared, uint32_t slot, int warp, int lane) {
#pragma unroll 1
    for (int part = warp; part < BN / 32 * 2; part += kSplitWarps) {
      const int panel = part / 2, k_chunk = part % 2 * 4 + lane % 4, n_chunk = lane / 4;
      uint32_t at[4][4];  // [k][n]
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = k_chunk * 4 + i;
        const uint4 y = load_shared(shared.y(slot) + panel * kSideBytes + k * 128 + ((n_chunk ^ (k & 7)) << 4));
        at[i][0] = y.x, at[i][1] = y.y, at[i][2] = y.z, at[i][3] = y.w;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = panel * 32 + n_chunk * 4 + j;
        const uint32_t to = uint32_t(n * 128 + ((k_chunk ^ (n & 7)) << 4));
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          high[i] = tf32_high(at[i][j]);
          low[i] = tf32_low(at[i][j], high[i]);
        }
        store_shared(shared.high(slot) + to, high);
        store_shared(shared.low(slot) + to, low);
      }
    }
  }
  static __device__ void split(const Shared& shared, const Work& work, int thread) {
    Stage stage;
    for (uint32_t index = work.first; index < work.tiles; index += work.stride)
#pragma unroll 1
      for (int step = 0; step < work.steps; ++step, stage.next()) {
        barrier_wait(shared.full(stage.slot), stage.parity);
        if constexpr (kYAlongK)
          split_vectors<kSplitWarps * 32>(shared.y(stage.slot), shared.low(stage.slot), kYBytes / 16, thread);
        else
          split_along_n(shared, stage.slot, thread / 32, thread % 32);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before wgmma reads it
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(shared.split(stage.slot));
      }
  }

  // ---- the warpgroups that multiply ----

  static __device__ __forceinline__ void load_rows(SplitRows<kInstructions>& rows, uint32_t x, int first_row) {
    if constexpr (kXAlongK) {
      rows.load(x, first_row);
    } else {
      const uint32_t lane = threadIdx.x % 32, warp_row = uint32_t(first_row) + threadIdx.x / 32 % 4 * 16;
#pragma unroll
      for (int k = 0; k < kInstructions; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t row = warp_row + lane / 4 + i % 2 * 8, depth = uint32_t(k) * 8 + lane % 4 + i / 2 * 4;
          const uint32_t from = x + row / 32 * kSideBytes + depth * 128 + ((row / 4 % 8 ^ (depth & 7)) << 4) + row % 4 * 4;
          asm volatile("ld.shared.u32 %0, [%1];" : "=r"(rows.low[k][i]) : "r"(from) : "memory");
        }
      rows.split();
    }
  }

  // Barrier 1 is finish_groups's.
  static __device__ __forceinline__ void wait_turn(int warpgroup) {
    asm volatile("bar.sync %0, 256;" ::"r"(2 + warpgroup) : "memory");
  }
  static __device__ __forceinline__ void pass_turn(int warpgroup) {
    asm volatile("bar.arrive %0, 256;" ::"r"(3 - warpgroup) : "memory");
  }

  static __device__ __forceinline__ void accumulate(const Shared& shared, Stage& stage, int steps, int warpgroup,
                                                    float (&sums)[kResults]) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step, stage.next()) {
      SplitRows<kInstructions> x;
      barrier_wait(shared.full(stage.slot), stage.parity);
      load_rows(x, shared.x(stage.slot), warpgroup * 64);
      barrier_wait(shared.split(stage.slot), stage.parity);
      const uint64_t high = wgmma_descriptor<true>(shared.high(stage.slot)),
                     low = wgmma_descriptor<true>(shared.low(stage.slot));
      float acc[kResults];
      wait_turn(warpgroup);
      x.template multiply<Multiply, MultiplyFirst>(high, low, acc);
      pass_turn(warpgroup);
      wgmma_wait<0>();
      if (threadIdx.x % 32 == 0) barrier_arrive(shared.empty(stage.slot));
#pragma unroll
      for (int i = 0; i < kResults; ++i) sums[i] += acc[i];
    }
  }

  // Results that are not finite, by multiply-adds.
  template <class Operands>
  static __device__ __forceinline__ void compute_anew(const Operands& o, const Work& work, const MatmulTile& tile,
                                                      int warpgroup, float (&sums)[kResults]) {
    if (!has_non_finite(sums)) return;
    const int lane = int(threadIdx.x) % 32;
    const int first_row = int(tile.row) * BM + warpgroup * 64 + int(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    const int first_column = int(tile.column) * BN + lane % 4 * 2;
#pragma unroll 1
    for (int i = 0; i < kResults; ++i) {
      const int row = first_row + i / 2 % 2 * 8, column = first_column + i / 4 * 8 + i % 2;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kResults; ++j)
        if (j == i) sum = sums[j];
      if (fabsf(sum) < __int_as_float(0x7f800000) || row >= o.m || column >= o.n) continue;
      const float* x = o.x_of(tile.batch) + int64_t(row) * o.x_row;
      const float* y = o.y_of(tile.batch) + int64_t(column) * o.y_column;
      sum = 0;
      for (int k = work.k_first / 2; k < work.k_end / 2 && sum == sum; ++k)  // no more is added to NaN
        sum = __fmaf_rn(x[int64_t(k) * o.x_column], y[int64_t(k) * o.y_row], sum);
#pragma unroll
      for (int j = 0; j < kResults; ++j)
        if (j == i) sums[j] = sum;
    }
  }

  template <class Operands, class Epilogue>
  static __device__ void multiply(const Operands& o, const Shared& shared, const Work& work, const Epilogue& epilogue,
                                  int warpgroup, char* memory) {
    wait_for_inputs();
    if (warpgroup == 1) pass_turn(warpgroup);  // the first turn is warpgroup 0's
    Stage stage;
    for (uint32_t index = work.first; index < work.tiles; index += work.stride) {
      const MatmulTile tile = work.tile(index);
      float sums[kRowBlocks][kResults];
#pragma unroll
      for (int i = 0; i < kResults; ++i) sums[0][i] = 0;
      accumulate(shared, stage, work.steps, warpgroup, sums[0]);
      compute_anew(o, work, tile, warpgroup, sums[0]);
      if constexpr (kInCluster) {
        const WgmmaPlace<WgmmaTf32x3, Operands, Epilogue> place(o, epilogue, tile, warpgroup * 64);
        typename WgmmaPlace<WgmmaTf32x3, Operands, Epilogue>::Loaded loaded;
        place.fetch_first(loaded);
        place.finish(sums, loaded, shared, memory);
      } else {
        WgmmaChunks<WgmmaTf32x3, Operands, Epilogue>(o, epilogue, tile, warpgroup * 64, shared.chunks()).store(sums);
      }
    }
  }

  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, int part_depth) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    const Work work = work_of(o, part_depth);
    // From one lane, so that the compiler sees that a warp does not diverge.
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    set_up(shared);
    if (warpgroup == kWarpgroups) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
      const int thread = int(threadIdx.x) - kConsumers;
      if (thread >= 32) {
        split(shared, work, thread - 32);
      } else if (thread == 0) {
        prefetch_map(*x_map);
        prefetch_map(*y_map);
        load(o, x_map, y_map, shared, work);
      }
      __syncwarp();
      if constexpr (kInCluster) {
        cluster_barrier();  // those of finish_cluster
        cluster_barrier();
      }
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
      multiply(o, shared, work, epilogue, warpgroup, memory);
    }
  }
};

}  // namespace aicf
