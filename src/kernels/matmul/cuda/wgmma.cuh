// Contraction of f16 and bf16 on sm_90a: one thread keeps a pipeline of kStages tiles in shared memory filled through the
// copy engine (tensor maps, mbarriers); warpgroups of 128 threads multiply them with wgmma m64nNk16 into f32 sums, each
// some rows of the block's tile. Blocks stay and take tile after tile; or the blocks of a cluster have parts of one tile's K
// (Split::kCluster); or blocks have equal shares of the steps of all tiles, whose parts a second launch adds (kStream, kSum). A result is the sum of its products of 16 steps of k
// each in ascending order, a split K adds the parts in order. Shared-memory layouts and descriptors: PTX ISA, "Asynchronous warpgroup level matrix
// multiply-accumulate". Kernels are persistent and warp-specialised, in CUTLASS's words: a producer and its consumers. Tiles
// of y loaded once for several blocks (kMulticast) gain where rows are no whole lines of 128 bytes, of which the L2 cache is
// asked twice, and nothing elsewhere. A launch that asks the L2 cache for what the next product reads of
// its weights, by bulk or single prefetches, was measured on H100 and slowed decoding by 2 to 20 %.
#pragma once

#include "matmul/cuda/few_rows.cuh"
#include "matmul/cuda/row_sums.cuh"
#include "matmul/cuda/wgmma_cluster.cuh"
#include "matmul/cuda/wgmma_epilogue.cuh"
#include "matmul/cuda/wgmma_loader.cuh"

namespace aicf {

// kLoaderGroup: a whole warpgroup loads, so that it can give registers to those that multiply. kPingPong: the warpgroups
// take whole tiles in turn, so that one multiplies while another is in its epilogue; else they share each tile's rows
// (cooperative).
// kConstantY: no launch of the run writes y, so its first stages come before the launches before this one have finished.
// kPrefetch: operands of the epilogue that registers hold before their use: 2, a chunk and the next one; 1, a chunk; 0,
// a vector.
// kXRows: rows of the tile of x that are loaded, fewer than BM where M never is more; the others hold anything, and so do
// the results that are not stored. Multiply: a struct with run(float (&d)[BN / 2], uint64_t a, uint64_t b), generated for
// T, BN and the layouts. kXRows 0: x comes another way (wgmma_rs.cuh, wgmma_epilogue_warps.cuh).
// kEarlyX, with kConstantY: nor does a launch that may still be running write x, so that its stages come early, too, and a
// block even multiplies before it waits: only its results wait for the launches before.
template <class Multiply, int BM, int BN, int kStages, int kWarpgroups, bool kLoaderGroup, bool kPingPong, int kPrefetch,
          bool kXAlongK, bool kYAlongK, int kXRows, bool kConstantY, Split kSplit, int kParts, int kStepsLeft = 0,
          bool kEarlyX = false>
struct WgmmaMatmul {
  static constexpr int kBlockM = BM, kBlockN = BN, kPipeline = kStages, kRowsOfX = kXRows, kBlocksOfTile = kParts;
  static constexpr int kLeftToLoad = kStepsLeft;
  static constexpr bool kXIsEarly = kEarlyX;
  static constexpr bool kXRowsAlongK = kXAlongK, kYIsConstant = kConstantY;
  static constexpr int kEpiloguePrefetch = kPrefetch;
  static constexpr int kConsumers = 128 * kWarpgroups;  // and one warp or warpgroup more that loads
  static constexpr int kTurns = kPingPong ? kWarpgroups : 1;
  static constexpr int kRows = kPingPong ? BM : BM / kWarpgroups;  // of a warpgroup
  static constexpr int kRowBlocks = kRows / 64, kQuadBlocks = BN / 32;
  // Of the result: the other half of a pair's columns are the second product's.
  template <class Operands>
  static constexpr int kTileColumns = Operands::kDualGemm ? BN / 2 : BN;
  static constexpr int kResults = BN / 2;  // of a thread, of each 64 rows
  // Rows of x that are not loaded are what lies behind: results of theirs are not stored.
  static constexpr int kXBytes = (kXRows + 7) / 8 * 8 * 128, kYBytes = BN * 128, kStageBytes = kXBytes + kYBytes;
  static constexpr bool kInCluster = kSplit == Split::kCluster, kAlongK = kYAlongK;
  static constexpr bool kStreams = kSplit == Split::kStream;  // kParts: blocks of the launch
  // Blocks of a cluster for which each loads a part of y (multicast). They have tiles of one column, and as many steps.
  static constexpr int kSharers = kSplit == Split::kMulticast ? kParts : 1;
  static constexpr bool kMulticast = kSharers > 1;
  using Few = FewRows<kParts, kQuadBlocks>;
  static constexpr bool kFewRows = kInCluster && kXRows <= 8 && kWarpgroups == 1;  // the first warp has all of them
  // As reduce_scatters in matmul_ways.h says.
  static constexpr bool kReduceScatters = kInCluster && kWarpgroups == 2 && BN % 64 == 0 &&
                                          kRowBlocks * (BN / 64) % kParts == 0 &&
                                          BM * BN * 4 / kParts * (kParts - 1) <= 32 * 1024;
  static_assert(BN % 32 == 0 && (kYAlongK || BN % 64 == 0) && kRows % 64 == 0, "whole panels and epilogue groups");
  static_assert(!kEarlyX || (kConstantY && !kPingPong), "a block that waits, for y or its turn, has waited for x");
  static_assert(kXRows <= BM && (kXRows == BM || kXAlongK), "rows of x");
  static_assert(!kPingPong || (kWarpgroups == 2 && !kInCluster), "two take turns; a cluster's blocks have one tile");

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

  // x of a block's row of tiles is stationary (wgmma_epilogue_warps.cuh): before the stages, in so many parts of 64 k at
  // most.
  static constexpr bool kStationaryX = kXRows == 0 && kWarpgroups == 2;
  static constexpr int kMostKept = 8, kKeptBytes = BM * 128, kKeptBarriers = 1024;  // the parts lie on whole swizzles

  struct Shared {
    uint32_t base;
    uint32_t kept = 0;
    __device__ uint32_t kept_x(int step) const { return kept + kKeptBarriers + step * kKeptBytes; }
    __device__ uint32_t kept_full(int step) const { return kept + step * 8; }
    __device__ uint32_t x(uint32_t slot) const { return base + slot * kStageBytes; }
    __device__ uint32_t y(uint32_t slot) const { return x(slot) + kXBytes; }
    __device__ uint32_t full(uint32_t slot) const { return base + kStages * kStageBytes + slot * 8; }
    __device__ uint32_t empty(uint32_t slot) const { return full(slot) + kStages * 8; }
    __device__ uint32_t chunks() const { return base + kStages * (kStageBytes + 16); }
  };

  // What a block does: tiles `first`, `first + stride`, …, of each `steps` stages of K from k_first on. With kMulticast the
  // tiles of a cluster's blocks count as one, so many rows high.
  struct Work {
    uint32_t row_tiles, column_tiles, tiles, first, stride;
    int k_first, steps;
    uint32_t first_step = 0, end_step = 0;  // of all tiles', with Split::kStream: the block's
    // Of a tile, what the block has of its K.
    __device__ __forceinline__ Work part(uint32_t index) const {
      Work part = *this;
      if constexpr (kStreams) {
        const uint32_t before = index * uint32_t(steps), first = max(first_step, before);
        part.k_first = int(first - before) * kWgmmaDepth;
        part.steps = int(min(end_step, before + uint32_t(steps)) - first);
      }
      return part;
    }
    __device__ MatmulTile tile(uint32_t index) const {
      if constexpr (kStationaryX) return {0, index % row_tiles, index / row_tiles};  // the stride is a multiple of row_tiles
      if constexpr (kSplit == Split::kRow) return row_tile_at(index, row_tiles, column_tiles);
      MatmulTile tile = tile_at(index, row_tiles, column_tiles);
      if constexpr (kMulticast) tile.row = tile.row * kSharers + blockIdx.x % kSharers;
      return tile;
    }
  };

  // Blocks whose shares of so many steps are not empty, where their shares begin, and whose share has a step. kBlocks: of the
  // launch.
  template <int kBlocks>
  struct Shares {
    uint32_t steps, blocks;
    __device__ __forceinline__ explicit Shares(uint32_t all) : steps(all), blocks(min(uint32_t(kBlocks), all)) {}
    __device__ __forceinline__ uint32_t first_of(uint32_t block) const {
      return uint32_t(uint64_t(block) * steps / max(blocks, 1u));
    }
    __device__ __forceinline__ uint32_t block_of(uint32_t step) const {
      return uint32_t((uint64_t(step + 1) * blocks - 1) / steps);
    }
  };

  // kParts blocks share a tile, `part_depth` of K each (Split::kCluster), or all (kStream).
  template <class Operands>
  static __device__ Work work_of(const Operands& o, int part_depth) {
    Work work;
    work.row_tiles = uint32_t(tiles_of<int>(o.m, BM * kSharers));
    work.column_tiles = uint32_t(tiles_of<int>(o.n, kTileColumns<Operands>));
    work.tiles = work.row_tiles * work.column_tiles * uint32_t(o.batches);
    work.first = blockIdx.x / kParts;
    work.stride = gridDim.x / kParts;
    work.k_first = kInCluster ? int(blockIdx.x % kParts) * part_depth : 0;
    const int k_end = kInCluster ? min(int(o.k), work.k_first + part_depth) : int(o.k);
    work.steps = k_end > work.k_first ? (k_end - work.k_first + kWgmmaDepth - 1) / kWgmmaDepth : 0;
    if constexpr (kStreams) {
      const Shares<kParts> shares(work.tiles * uint32_t(work.steps));
      const bool has_share = blockIdx.x < shares.blocks;
      work.first_step = has_share ? shares.first_of(blockIdx.x) : 0;
      work.end_step = has_share ? shares.first_of(blockIdx.x + 1) : 0;
      work.first = has_share ? work.first_step / uint32_t(work.steps) : 0;
      work.tiles = has_share ? (work.end_step + uint32_t(work.steps) - 1) / uint32_t(work.steps) : 0;
      work.stride = 1;
    }
    return work;
  }

  // `rows`: of the product, where they are few.
  static __device__ void set_up(const Shared& shared, int rows = 0) {
    if (threadIdx.x == 0) {
#if __CUDA_ARCH__ >= 900
      if constexpr (kFewRows) Few::set_up(shared.chunks(), rows);
#endif
      for (uint32_t slot = 0; slot < kStages; ++slot) {
        barrier_init(shared.full(slot), 1);
        barrier_init(shared.empty(slot), 4 * kWarpgroups / kTurns * kSharers);  // every warp that reads
      }
      if constexpr (kStationaryX)
        for (int step = 0; step < kMostKept; ++step) barrier_init(shared.kept_full(step), 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (kInCluster || kMulticast)
      cluster_barrier();
    else
#endif
      __syncthreads();
  }

  static __device__ __forceinline__ void give_registers() {
    if constexpr (kLoaderGroup) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  }
  static __device__ __forceinline__ void take_registers() {
    if constexpr (kLoaderGroup) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  }

  template <class Operands>
  using Loader = WgmmaLoader<WgmmaMatmul, Operands>;
  template <class Operands, class Epilogue>
  using Chunks = WgmmaChunks<WgmmaMatmul, Operands, Epilogue>;

  // ---- the warpgroups that multiply ----

  static __device__ __forceinline__ void release(const Shared& shared, uint32_t slot) {
    if constexpr (kMulticast) {
      if ((threadIdx.x & 31) < kSharers) barrier_arrive_at(shared.empty(slot), threadIdx.x & 31);
    } else if ((threadIdx.x & 31) == 0) {
      barrier_arrive(shared.empty(slot));
    }
  }
  // No block leaves while another of its cluster sends it y, or says that it has read its own.
  static __device__ __forceinline__ void leave() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kMulticast) {
      __syncwarp();
      cluster_barrier();
    }
#endif
  }

  static __device__ __forceinline__ int row_of(int warpgroup) { return kPingPong ? 0 : warpgroup * kRows; }

  // With kPingPong a warpgroup multiplies while the others are in their epilogues. The order also keeps every warpgroup's
  // stages within one phase of their barriers.
  static __device__ __forceinline__ void wait_turn(int warpgroup) {
    if constexpr (kPingPong) asm volatile("bar.sync %0, 256;" ::"r"(1 + warpgroup) : "memory");
  }
  static __device__ __forceinline__ void pass_turn(int warpgroup) {
    if constexpr (kPingPong) asm volatile("bar.arrive %0, 256;" ::"r"(2 - warpgroup) : "memory");
  }

  static __device__ __forceinline__ void accumulate(const Shared& shared, Stage stage, int steps, int warpgroup,
                                                    float (&acc)[kRowBlocks][BN / 2]) {
    NoRowSums none;
    accumulate_with(none, shared, stage, steps, warpgroup, acc);
  }

  // The same, and what the operands want of the tile's x beside it.
  template <class Operands>
  static __device__ __forceinline__ void accumulate_tile(const Operands& o, const Shared& shared, Stage stage, int steps,
                                                         const MatmulTile& tile, int warpgroup,
                                                         float (&acc)[kRowBlocks][BN / 2]) {
    if constexpr (Operands::kSumsX) {
      static_assert(!kEarlyX, "what is stored waits");
      if (tile.column < Operands::kColumnsWithSums) {
        RowSums<WgmmaMatmul, Operands> sums(tile.column);
        accumulate_with(sums, shared, stage, steps, warpgroup, acc);
        sums.store(o, tile, row_of(warpgroup));
        return;
      }
    }
    accumulate(shared, stage, steps, warpgroup, acc);
  }

  template <class RowSums>
  static __device__ __forceinline__ void accumulate_with(RowSums& sums, const Shared& shared, Stage stage, int steps,
                                                         int warpgroup, float (&acc)[kRowBlocks][BN / 2]) {
    const int first_row = row_of(warpgroup);
    uint32_t before = 0;
    for (int step = 0; step < steps; ++step) {
      if constexpr (kStationaryX) barrier_wait(shared.kept_full(step), 0);
      barrier_wait(shared.full(stage.slot), stage.parity);
      const uint32_t rows = kStationaryX ? shared.kept_x(step) : shared.x(stage.slot);
      const uint64_t a = wgmma_descriptor<kXAlongK>(rows + first_row * 128);
      const uint64_t b = wgmma_descriptor<kYAlongK>(shared.y(stage.slot));
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kWgmmaDepth / 16; ++k)
#pragma unroll
        for (int i = 0; i < kRowBlocks; ++i) {
          const uint64_t x = a + i * (kPanelBytes >> 4) + k * wgmma_k_step<kXAlongK>;
          Multiply::run(acc[i], x, b + k * wgmma_k_step<kYAlongK>);
          sums.add(i, x);
        }
      wgmma_commit();
      wgmma_wait<1>();  // the step before has read its stage
      if (step > 0) release(shared, before);
      before = stage.slot;
      stage.next();
    }
    pass_turn(warpgroup);
    wgmma_wait<0>();
    if (steps > 0) release(shared, before);
  }

  // What multiply() has a tile's x from: stages of the pipeline. kInRegisters: of which a thread has some steps.
  struct LoadedX {
    static constexpr bool kInRegisters = false;
    __device__ __forceinline__ void begin(const Work&) const {}
    template <class Operands>
    __device__ __forceinline__ void accumulate(const Operands& o, const Shared& shared, const Stage& stage, const Work& work,
                                               const MatmulTile& tile, int warpgroup,
                                               float (&acc)[kRowBlocks][BN / 2]) const {
      accumulate_tile(o, shared, stage, work.steps, tile, warpgroup, acc);
    }
  };

  static __device__ __forceinline__ void clear(float (&acc)[kRowBlocks][BN / 2]) {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < BN / 2; ++j) acc[i][j] = 0.0f;
  }

  // A part of a tile, whose blocks share the epilogue by chunks.
  template <class X, class Operands, class Epilogue>
  static __device__ void multiply_part(const X& x, const Operands& o, const Shared& shared, const Work& work,
                                       const Epilogue& epilogue, int warpgroup) {
#if __CUDA_ARCH__ >= 900
    using ReduceScatter = WgmmaReduceScatter<WgmmaMatmul, Operands, Epilogue>;
    const ReduceScatter reduce_scatter{shared.chunks()};
    const int own = int(cluster_rank());
    wait_for_inputs();
    Chunks<Operands, Epilogue> chunks(o, epilogue, work.tile(work.first), row_of(warpgroup), reduce_scatter.base,
                                      own * ReduceScatter::kOwn);
    float acc[kRowBlocks][BN / 2];
    clear(acc);
    x.accumulate(o, shared, Stage(0), work, work.tile(work.first), warpgroup, acc);
    reduce_scatter.finish(chunks, acc, own);
#endif
  }

  // A block's parts of tiles go to the workspace (Split::kStream): the number of a part is that of its block and of its tile
  // together, so that the parts of a tile follow one another.
  template <class X, class Operands, class Epilogue>
  static __device__ void write_parts(const X& x, const Operands& o, const Shared& shared, const Work& work,
                                       const Epilogue&, int warpgroup, void* workspace) {
    using Place = WgmmaPlace<WgmmaMatmul, Operands, Epilogue>;
    if constexpr (!kEarlyX) wait_for_inputs();
    x.begin(work);
    uint32_t steps = 0;  // that lie behind
#pragma unroll 1
    for (uint32_t index = work.first; index < work.tiles; ++index) {
      const Work part = work.part(index);
      float acc[kRowBlocks][BN / 2];
      clear(acc);
      x.accumulate(o, shared, Stage(steps), part, work.tile(index), warpgroup, acc);
      steps += uint32_t(part.steps);
      if constexpr (kEarlyX) wait_for_inputs();
      float groups[Place::kGroups][8];
#pragma unroll
      for (int g = 0; g < Place::kGroups; ++g) Place::elements(acc, g, groups[g]);
      write_part<kConsumers>(groups, int(threadIdx.x),
                             static_cast<AccVector<float>*>(workspace) + int64_t(blockIdx.x + index) * (BM * BN / 4));
    }
  }

  // Split::kSum.
  template <int kWarps, class Operands, class Epilogue>
  static __device__ void sum(const Operands& o, const Epilogue& epilogue, const void* workspace) {
    using Place = WgmmaPlace<WgmmaMatmul, Operands, Epilogue>;
    wait_for_inputs();
    launch_dependents();
    const PartsSum<kConsumers, kWarps, Place::kGroups, 8, float> sum(blockIdx.x);
    const uint32_t row_tiles = uint32_t(tiles_of<int>(o.m, BM)), column_tiles = uint32_t(tiles_of<int>(o.n, BN));
    const uint32_t steps = uint32_t(tiles_of<int>(o.k, kWgmmaDepth));
    const Shares<kParts> shares(row_tiles * column_tiles * uint32_t(o.batches) * steps);
    const uint32_t first = shares.block_of(sum.tile * steps), last = shares.block_of(sum.tile * steps + steps - 1);
    const MatmulTile tile = tile_at(sum.tile, row_tiles, column_tiles);
    const Place place(o, epilogue, tile, row_of(sum.thread / 128), sum.thread);
    const int half_block = Place::half_block_of(sum.group), quad = sum.group / 2 % kQuadBlocks;
    const auto row = place.row_at(half_block);
    typename Place::Loaded loaded;
    place.fetch(loaded, row, half_block, quad);
    sum.run(workspace, int64_t(first) + sum.tile, int(last - first) + 1, [&](float(&values)[8]) {
      transpose_quad(values);
      place.store(loaded, row, half_block, quad, values);
    });
  }

  template <class X, class Operands, class Epilogue>
  static __device__ void multiply(const X& x, const Operands& o, const Shared& shared, const Work& work,
                                  const Epilogue& epilogue, int warpgroup, char* memory) {
    uint32_t number = kPingPong ? uint32_t(warpgroup) : 0;  // of the block's tiles
    if constexpr (!kEarlyX) wait_for_inputs();
    x.begin(work);
    if (warpgroup == 1) pass_turn(warpgroup);  // the first turn is warpgroup 0's
    for (uint32_t index = work.first + number * work.stride; index < work.tiles;
         index += kTurns * work.stride, number += kTurns) {
      float acc[kRowBlocks][BN / 2];
      clear(acc);
      const Stage stage(number * uint32_t(work.steps));
      if constexpr (kInCluster) {
        const WgmmaPlace<WgmmaMatmul, Operands, Epilogue> place(o, epilogue, work.tile(index), row_of(warpgroup));
        typename WgmmaPlace<WgmmaMatmul, Operands, Epilogue>::Loaded first;
        if constexpr (!kEarlyX) place.fetch_first(first);
        x.accumulate(o, shared, stage, work, work.tile(index), warpgroup, acc);
        if constexpr (kEarlyX) {
          wait_for_inputs();
          place.fetch_first(first);
        }
        place.finish(acc, first, shared, memory);
      } else if constexpr (kEarlyX) {
        x.accumulate(o, shared, stage, work, work.tile(index), warpgroup, acc);
        wait_for_inputs();
        Chunks<Operands, Epilogue>(o, epilogue, work.tile(index), row_of(warpgroup), shared.chunks()).store(acc);
      } else if constexpr (kPrefetch < 2 && X::kInRegisters) {
        // Nothing of the epilogue takes registers beside those of x.
        wait_turn(warpgroup);
        x.accumulate(o, shared, stage, work, work.tile(index), warpgroup, acc);
        Chunks<Operands, Epilogue>(o, epilogue, work.tile(index), row_of(warpgroup), shared.chunks()).store(acc);
      } else {
        Chunks<Operands, Epilogue> chunks(o, epilogue, work.tile(index), row_of(warpgroup), shared.chunks());
        wait_turn(warpgroup);
        x.accumulate(o, shared, stage, work, work.tile(index), warpgroup, acc);
        chunks.store(acc);
      }
    }
  }

  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, int part_depth, void* workspace = nullptr) {
    run_from(LoadedX{}, o, x_map, y_map, epilogue, part_depth, workspace);
  }

  template <class X, class Operands, class Epilogue>
  static __device__ __forceinline__ void run_from(const X& x, const Operands& o, const CUtensorMap* x_map,
                                                  const CUtensorMap* y_map, const Epilogue& epilogue, int part_depth,
                                                  void* workspace = nullptr) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    if (threadIdx.x == kConsumers) {
      prefetch_map(*y_map);
      if constexpr (Operands::kDualGemm) prefetch_map(*o.y1_map);
      if constexpr (kXRows > 0) prefetch_map(*x_map);
    }
    const Work work = work_of(o, part_depth);
    // From one lane, so that the compiler sees that a warp does not diverge.
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
#if __CUDA_ARCH__ >= 900
    if constexpr (kReduceScatters)
      if (threadIdx.x == 0) WgmmaReduceScatter<WgmmaMatmul, Operands, Epilogue>{shared.chunks()}.set_up();
#endif
    set_up(shared, int(o.m));
    if (warpgroup == kWarpgroups) {
      give_registers();
      if (threadIdx.x == kConsumers) Loader<Operands>{o, x_map, y_map, shared, work}.run();
      __syncwarp();
      if constexpr (kInCluster && !kFewRows && !kReduceScatters) {
        cluster_barrier();  // those of finish_cluster
        cluster_barrier();
      }
    } else {
      take_registers();
      if constexpr (kReduceScatters)
        multiply_part(x, o, shared, work, epilogue, warpgroup);
      else if constexpr (kStreams)
        write_parts(x, o, shared, work, epilogue, warpgroup, workspace);
      else
        multiply(x, o, shared, work, epilogue, warpgroup, memory);
    }
    leave();
  }
};

}  // namespace aicf
