// Contraction of f16 and bf16 on sm_90a: one thread keeps a pipeline of kStages tiles in shared memory filled through the
// copy engine (tensor maps, mbarriers); warpgroups of 128 threads multiply them with wgmma m64nNk16 into f32 sums, each
// some rows of the block's tile. Blocks stay and take tile after tile; or, with Split::kCluster, the blocks of a cluster
// have parts of one tile's K. A result is the sum of its products of 16 steps of k each in ascending order, a split K adds
// the parts in order. Shared-memory layouts and descriptors: PTX ISA, "Asynchronous warpgroup level matrix
// multiply-accumulate"; the roles follow the warp-specialised kernels of CUTLASS. Tiles of y loaded once for two blocks were
// measured on H100 and H200 and gained nothing over 256 x 128; of 128 x 192, half of them by each block, they slowed
// encoders by 7 to 40 %. A launch that asks the L2 cache for what the next product
// reads of its weights, by bulk or single prefetches, was measured on H100 and slowed decoding by 2 to 20 %.
#pragma once

#include "matmul/few_rows.cuh"
#include "matmul/matmul_common.cuh"
#include "tile/tile_memory.cuh"

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

// The same of memory that is read once: the L2 cache gives it up first, so that it keeps what is read again, caches of
// keys and values and instructions among it.
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void load_box_once(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], "
      "[%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "l"(evict_first())
      : "memory");
}
__device__ __forceinline__ void load_box_once(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, "
      "%5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "l"(evict_first())
      : "memory");
}
__device__ __forceinline__ void load_box_once(const CUtensorMap* map, uint32_t to, uint32_t barrier, int c0, int c1, int c2,
                                              int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, "
      "%5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(evict_first())
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
template <bool kAlongK>
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address) {
  const uint64_t leading = kAlongK ? 1 : kPanelBytes >> 4;
  return uint64_t((address & 0x3ffff) >> 4) | leading << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// Bytes from one 16 steps of k to the next, in the descriptor's unit.
template <bool kAlongK>
constexpr uint64_t wgmma_k_step = (kAlongK ? 32 : 16 * 128) >> 4;

// Four matrices of 8 × 8 halves; lane l has the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}
__device__ __forceinline__ void store_pair(uint32_t to, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}
__device__ __forceinline__ uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}

// kLoaderGroup: a whole warpgroup loads, so that it can give registers to those that multiply. kAlternate: the warpgroups
// take whole tiles in turn, so that one multiplies while another is in its epilogue; else they share each tile's rows.
// kConstantY: no launch of the run writes y, so its first stages come before the launches before this one have finished.
// kFetchAhead: there are registers for operands of the epilogue ahead of their use.
// kXRows: rows of the tile of x that are loaded, fewer than BM where M never is more; the others hold anything, and so do
// the results that are not stored. Multiply: a struct with run(float (&d)[BN / 2], uint64_t a, uint64_t b), generated for
// T, BN and the layouts. kXRows 0: x comes another way (made_x.cuh).
template <class Multiply, int BM, int BN, int kStages, int kWarpgroups, bool kLoaderGroup, bool kAlternate, bool kFetchAhead,
          bool kXAlongK, bool kYAlongK, int kXRows, bool kConstantY, Split kSplit, int kParts, int kStepsLeft = 0>
struct WgmmaMatmul {
  static constexpr int kConsumers = 128 * kWarpgroups;  // and one warp or warpgroup more that loads
  static constexpr int kTurns = kAlternate ? kWarpgroups : 1;
  static constexpr int kRows = kAlternate ? BM : BM / kWarpgroups;  // of a warpgroup
  static constexpr int kRowBlocks = kRows / 64, kQuadBlocks = BN / 32;
  static constexpr int kResults = BN / 2;  // of a thread, of each 64 rows
  static constexpr int kGroups = kRowBlocks * kQuadBlocks * 2;
  // Rows of x that are not loaded are what lies behind: results of theirs are not stored.
  static constexpr int kXBytes = (kXRows + 7) / 8 * 8 * 128, kYBytes = BN * 128, kStageBytes = kXBytes + kYBytes;
  static constexpr bool kInCluster = kSplit == Split::kCluster, kAlongK = kYAlongK;
  using Few = FewRows<kParts, kQuadBlocks>;
  static constexpr bool kFewRows = kInCluster && kXRows <= 8 && kWarpgroups == 1;  // the first warp has all of them
  static_assert(BN % 32 == 0 && (kYAlongK || BN % 64 == 0) && kRows % 64 == 0, "whole panels and epilogue groups");
  static_assert(kXRows <= BM && (kXRows == BM || kXAlongK), "rows of x");
  static_assert(!kAlternate || (kWarpgroups == 2 && !kInCluster), "two take turns; a cluster's blocks have one tile");

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
    __device__ uint32_t chunks() const { return base + kStages * (kStageBytes + 16); }
  };

  // What a block does: tiles `first`, `first + stride`, …, of each `steps` stages of K from k_first on.
  struct Work {
    uint32_t row_tiles, column_tiles, tiles, first, stride;
    int k_first, steps;
    __device__ MatmulTile tile(uint32_t index) const {
      return kSplit == Split::kRow ? row_tile_at(index, row_tiles, column_tiles)
                                   : tile_at(index, row_tiles, column_tiles);
    }
  };

  // kParts blocks share a tile, `part_depth` of K each (Split::kCluster).
  template <class Operands>
  static __device__ Work work_of(const Operands& o, int part_depth) {
    Work work;
    work.row_tiles = uint32_t(tiles_of<int>(o.m, BM));
    work.column_tiles = uint32_t(tiles_of<int>(o.n, BN));
    work.tiles = work.row_tiles * work.column_tiles * uint32_t(o.batches);
    work.first = blockIdx.x / kParts;
    work.stride = gridDim.x / kParts;
    work.k_first = kInCluster ? int(blockIdx.x % kParts) * part_depth : 0;
    const int k_end = kInCluster ? min(int(o.k), work.k_first + part_depth) : int(o.k);
    work.steps = k_end > work.k_first ? (k_end - work.k_first + kWgmmaDepth - 1) / kWgmmaDepth : 0;
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
        barrier_init(shared.empty(slot), 4 * kWarpgroups / kTurns);  // every warp that reads
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if constexpr (kInCluster)
      cluster_barrier();
    else
      __syncthreads();
  }

  static __device__ __forceinline__ void give_registers() {
    if constexpr (kLoaderGroup) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  }
  static __device__ __forceinline__ void take_registers() {
    if constexpr (kLoaderGroup) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  }

  // ---- the thread that loads ----

  template <class Operands>
  struct Loader {
    const Operands& o;
    const CUtensorMap *x_map, *y_map;
    const Shared& shared;
    const Work& work;

    __device__ __forceinline__ int k_of(int step) const { return work.k_first + step * kWgmmaDepth; }
    // A stage is full when both of its tiles have come.
    __device__ __forceinline__ void expect(uint32_t slot) const {
      barrier_expect(shared.full(slot), kXRows * 128 + kYBytes);
    }
    __device__ __forceinline__ void load_x(uint32_t slot, int step, const MatmulTile& tile) const {
      if constexpr (kXRows == 0) return;
      const int row = int(tile.row) * BM;
      if constexpr (kXAlongK) {
        o.load_x(x_map, shared.x(slot), shared.full(slot), k_of(step), row, tile.batch);
      } else {
#pragma unroll
        for (int panel = 0; panel < BM / 64; ++panel)
          o.load_x(x_map, shared.x(slot) + panel * kPanelBytes, shared.full(slot), k_of(step), row + panel * 64, tile.batch);
      }
    }
    // Panels of y are 64 columns along n, or the whole tile along k.
    static constexpr int kYPanel = kYAlongK ? BN : 64;
    __device__ __forceinline__ void load_y(uint32_t slot, int step, const MatmulTile& tile) const {
#pragma unroll
      for (int panel = 0; panel < BN / kYPanel; ++panel)
        o.load_y(y_map, shared.y(slot) + panel * kPanelBytes, shared.full(slot), k_of(step),
                 int(tile.column) * BN + panel * kYPanel, tile.batch);
    }

    // The first stages, of which y need not wait. Returns how many.
    __device__ int load_early() const {
      if (!kConstantY || work.first >= work.tiles) {
        wait_for_inputs();
        return 0;
      }
      const MatmulTile tile = work.tile(work.first);
      const int count = min(work.steps, kStages);
      for (int step = 0; step < count; ++step) {
        expect(step);
        load_y(step, step, tile);
      }
      wait_for_inputs();
      for (int step = 0; step < count; ++step) load_x(step, step, tile);
      return count;
    }

    // The next launch starts when all of this one's loads are on their way, or the last kStepsLeft of each block
    // are not: its own early ones then keep the memory busy while this one ends.
    __device__ void run() const {
      int step = load_early();
      Stage stage{uint32_t(step)};
      bool told = kStepsLeft == 0;
      for (uint32_t index = work.first; index < work.tiles; index += work.stride, step = 0) {
        const MatmulTile tile = work.tile(index);
        for (; step < work.steps; ++step, stage.next()) {
          if (!told && index + work.stride >= work.tiles && work.steps - step <= kStepsLeft) {
            told = true;
            launch_dependents();
          }
          barrier_wait(shared.empty(stage.slot), stage.parity ^ 1);
          expect(stage.slot);
          load_x(stage.slot, step, tile);
          load_y(stage.slot, step, tile);
        }
      }
      launch_dependents();
    }
  };

  // ---- the warpgroups that multiply ----

  static __device__ __forceinline__ void release(const Shared& shared, uint32_t slot) {
    if ((threadIdx.x & 31) == 0) barrier_arrive(shared.empty(slot));
  }

  static __device__ __forceinline__ int row_of(int warpgroup) { return kAlternate ? 0 : warpgroup * kRows; }

  // With kAlternate a warpgroup multiplies while the others are in their epilogues. The order also keeps every warpgroup's
  // stages within one phase of their barriers.
  static __device__ __forceinline__ void wait_turn(int warpgroup) {
    if constexpr (kAlternate) asm volatile("bar.sync %0, 256;" ::"r"(1 + warpgroup) : "memory");
  }
  static __device__ __forceinline__ void pass_turn(int warpgroup) {
    if constexpr (kAlternate) asm volatile("bar.arrive %0, 256;" ::"r"(2 - warpgroup) : "memory");
  }

  static __device__ __forceinline__ void accumulate(const Shared& shared, Stage stage, int steps, int warpgroup,
                                                    float (&acc)[kRowBlocks][BN / 2]) {
    const int first_row = row_of(warpgroup);
    uint32_t before = 0;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(shared.full(stage.slot), stage.parity);
      const uint64_t a = wgmma_descriptor<kXAlongK>(shared.x(stage.slot) + first_row * 128);
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
    pass_turn(warpgroup);
    wgmma_wait<0>();
    if (steps > 0) release(shared, before);
  }

  // What multiply() has a tile's x from: stages of the pipeline.
  struct LoadedX {
    __device__ __forceinline__ void begin(const Work&) const {}
    __device__ __forceinline__ void accumulate(const Shared& shared, const Stage& stage, const Work& work, int warpgroup,
                                               float (&acc)[kRowBlocks][BN / 2]) const {
      WgmmaMatmul::accumulate(shared, stage, work.steps, warpgroup, acc);
    }
  };

  // The epilogue of a whole tile. Each warp puts 16 rows of a chunk of columns into shared memory, as the element type in
  // which the epilogue sees them, and reads them back by rows: neighbouring threads have neighbouring vectors of 8 columns,
  // so that all accesses to memory are whole lines. The operands of the next chunk are fetched before one is stored. The
  // loop over chunks stays a loop: a warp that runs through long unrolled code waits for instructions.
  template <class Operands, class Epilogue>
  struct Chunks {
    using Tile = typename Epilogue::Tile;
    using Row = typename Epilogue::Row;
    static constexpr int kColumns = BN % 64 == 0 && sizeof(Tile) == 2 ? 64 : 32;
    static constexpr int kAcross = BN / kColumns, kCount = kRowBlocks * kAcross;
    static constexpr int kRowThreads = kColumns / 8, kRowsAtOnce = 32 / kRowThreads, kVectors = 16 / kRowsAtOnce;
    static constexpr int kRowBytes = kColumns * int(sizeof(Tile)) + 16;  // eight rows lie in different banks

    const Epilogue& epilogue;
    int m, n, row, column;  // of the thread's first vector
    int64_t outer;
    uint32_t memory, lane;  // the warp's 16 rows
    Row rows[kRowBlocks][kVectors];
    struct Loaded {
      typename Epilogue::template Shared<8> shared;
      typename Epilogue::template Own<8> own[kFetchAhead ? kVectors : 1];
    };
    Loaded loaded;

    __device__ __forceinline__ Chunks(const Operands& o, const Epilogue& e, const MatmulTile& tile, int first_row,
                                      uint32_t shared)
        : Chunks(o, e, tile, first_row / 16 + int(threadIdx.x) / 32 % 4) {
      memory = shared + uint32_t(int(threadIdx.x) / 32 * 16 * kRowBytes);
    }
    // The 16 rows of the tile from 16 · `rows_of` on, beginning with chunk `first`; `memory` is still open.
    __device__ __forceinline__ Chunks(const Operands& o, const Epilogue& e, const MatmulTile& tile, int rows_of,
                                      int first = 0)
        : epilogue(e), m(int(o.m)), n(int(o.n)), outer(int64_t(tile.batch) * o.m), lane(threadIdx.x % 32) {
      row = int(tile.row) * BM + rows_of * 16 + int(lane) / kRowThreads;
      column = int(tile.column) * BN + int(lane) % kRowThreads * 8;
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int v = 0; v < kVectors; ++v) rows[i][v] = e.row(outer + (has_row(i, v) ? row_of(i, v) : 0));
      if (kFetchAhead) fetch(loaded, first);
    }
    __device__ __forceinline__ int row_of(int block, int v) const { return row + block * 64 + v * kRowsAtOnce; }
    __device__ __forceinline__ bool has_row(int block, int v) const {
      return Operands::kWholeTiles || row_of(block, v) < m;
    }
    // rows[block][v] without an index that registers cannot have.
    __device__ __forceinline__ Row row_at(int block, int v) const {
      Row at = rows[0][v];
      if (kRowBlocks > 1 && block > 0) at = rows[kRowBlocks - 1][v];
      return at;
    }
    __device__ __forceinline__ int column_of(int chunk) const { return column + chunk % kAcross * kColumns; }
    __device__ __forceinline__ bool has_columns(int c) const { return Operands::kWholeTiles || c + 8 <= n; }

    __device__ __forceinline__ void fetch_own(Loaded& to, int chunk, int v) const {
      const int block = chunk / kAcross, c = column_of(chunk);
      if (has_row(block, v) && has_columns(c)) epilogue.fetch(to.own[kFetchAhead ? v : 0], row_at(block, v), c);
    }
    __device__ __forceinline__ void fetch(Loaded& to, int chunk) const {
      const int c = column_of(chunk);
      if (has_columns(c)) epilogue.fetch(to.shared, c);
#pragma unroll
      for (int v = 0; kFetchAhead && v < kVectors; ++v) fetch_own(to, chunk, v);
    }

    // Blocks of 8 columns of the warp's rows, as the matrix instructions leave them.
    static __device__ __forceinline__ void put_at(uint32_t memory, const float (&acc)[BN / 2], int first) {
      const uint32_t lane = threadIdx.x % 32;
      if constexpr (sizeof(Tile) == 2) {
        const uint32_t at = memory + (lane / 8 % 2 * 8 + lane % 8) * kRowBytes + lane / 16 * 16;
#pragma unroll
        for (int j = 0; j < kColumns / 8; j += 2) {
          uint32_t halves[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            halves[i] = tile::pack<Tile>(acc[(first + j) * 4 + i * 2], acc[(first + j) * 4 + i * 2 + 1]);
          store_matrices(at + j * 16, halves);
        }
      } else {
        const uint32_t at = memory + lane / 4 * kRowBytes + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            store_pair(at + half * 8 * kRowBytes + j * 32, acc[(first + j) * 4 + half * 2],
                       acc[(first + j) * 4 + half * 2 + 1]);
      }
    }
    __device__ __forceinline__ void put(const float (&acc)[kRowBlocks][BN / 2], int chunk) const {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (i == chunk) put_at(memory, acc[i / kAcross], i % kAcross * (kColumns / 8));
    }
    __device__ __forceinline__ void get(tile::Vec<Tile, 8>& values, int v) const {
      constexpr int kLoads = sizeof(Tile) / 2;
      const uint32_t at = memory + (lane / kRowThreads + v * kRowsAtOnce) * kRowBytes + lane % kRowThreads * 8 * sizeof(Tile);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) reinterpret_cast<uint4*>(&values)[i] = load_shared(at + i * 16);
    }

    // Chunks from `first` to `end`, each after ready(chunk) has seen to it that its results lie in `memory`.
    template <class Ready>
    __device__ __forceinline__ void each(int first, int end, const Ready& ready) {
#pragma unroll 1
      for (int chunk = first; chunk < end; ++chunk) {
        Loaded next;
        if (!kFetchAhead) fetch(loaded, chunk);
        if (kFetchAhead && chunk + 1 < end) fetch(next, chunk + 1);
        ready(chunk);
        const int block = chunk / kAcross, c = column_of(chunk);
        // Of whole tiles all vectors at once, in one piece of code; else one after another.
        constexpr bool kAll = kFetchAhead && Operands::kWholeTiles;
        tile::Vec<Tile, 8> values[kAll ? kVectors : 1];
#pragma unroll
        for (int v = 0; kAll && v < kVectors; ++v) get(values[v], v);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          if (!has_row(block, v) || (!Operands::kWholeTiles && c >= n)) continue;
          if (!kFetchAhead) fetch_own(loaded, chunk, v);
          if (!kAll) get(values[0], v);
          const Row at = row_at(block, v);
          if (has_columns(c))
            epilogue.apply(at, c, values[kAll ? v : 0].at, loaded.shared, loaded.own[kFetchAhead ? v : 0]);
          else if (!Operands::kWholeGroups)
            store_columns<8>(epilogue, at, c, n, values[kAll ? v : 0].at);
        }
        __syncwarp();
        if (kFetchAhead) loaded = next;
      }
    }

    __device__ __forceinline__ void store(const float (&acc)[kRowBlocks][BN / 2]) {
      each(0, kCount, [&](int chunk) {
        put(acc, chunk);
        __syncwarp();
      });
    }
  };

  // Elements of one group as the epilogue of a cluster takes them.
  static __device__ __forceinline__ void group(const float (&acc)[kRowBlocks][BN / 2], int g, float (&values)[8]) {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      values[e] = acc[g / (kQuadBlocks * 2)][(g / 2 % kQuadBlocks * 4 + e / 2) * 4 + g % 2 * 2 + e % 2];
    transpose_quad(values);
  }

  // The place of a thread's groups in its tile: 8 columns from `column` + 32 · quad on of rows `row` + 64 · block + 8 · half.
  template <class Operands, class Epilogue>
  struct Place {
    using Row = typename Epilogue::Row;
    struct Loaded {
      typename Epilogue::template Shared<8> shared;
      typename Epilogue::template Own<8> own;
    };
    const Epilogue& epilogue;
    int m, n, row, column;
    int64_t outer;

    __device__ Place(const Operands& o, const Epilogue& e, const MatmulTile& tile, int first_row)
        : epilogue(e), m(int(o.m)), n(int(o.n)), outer(int64_t(tile.batch) * o.m) {
      const int thread = int(threadIdx.x) % 128, lane = thread % 32;
      row = int(tile.row) * BM + first_row + thread / 32 * 16 + lane / 4;
      column = int(tile.column) * BN + lane % 4 * 8;
    }
    // Of half-block i = 2 · block + half; rows beyond the last have the first's offsets.
    __device__ __forceinline__ bool has_row(int i) const { return row + i / 2 * 64 + i % 2 * 8 < m; }
    __device__ __forceinline__ Row row_at(int i) const {
      return epilogue.row(has_row(i) ? outer + row + i / 2 * 64 + i % 2 * 8 : outer);
    }
    __device__ __forceinline__ void fetch(Loaded& loaded, const Row& at, int i, int quad) const {
      const int c = column + quad * 32;
      if (!has_row(i) || c + 8 > n) return;
      epilogue.fetch(loaded.shared, c);
      epilogue.fetch(loaded.own, at, c);
    }
    __device__ __forceinline__ void store(const Loaded& loaded, const Row& at, int i, int quad, const float (&values)[8]) const {
      const int c = column + quad * 32;
      if (!has_row(i)) return;
      if (c + 8 <= n)
        epilogue.apply(at, c, values, loaded.shared, loaded.own);
      else if (!Operands::kWholeGroups && c < n)
        store_columns<8>(epilogue, at, c, n, values);
    }
  };

  // One part of a tile: the cluster's blocks share the epilogue by groups.
  template <class P>
  static __device__ __forceinline__ void store_in_cluster(const P& place, const float (&acc)[kRowBlocks][BN / 2],
                                                          const typename P::Loaded& first, char* memory) {
#if __CUDA_ARCH__ >= 900
    float groups[kGroups][8];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) group(acc, g, groups[g]);
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");  // all stages have been read
    const int own = int(cluster_rank());
    finish_cluster<kConsumers, kParts>(groups, int(threadIdx.x), reinterpret_cast<AccVector<float>*>(memory),
                                       [&](int g, const float(&values)[8]) {
                                         const int i = g / (kQuadBlocks * 2) * 2 + g % 2, quad = g / 2 % kQuadBlocks;
                                         const typename P::Row at = place.row_at(i);
                                         typename P::Loaded loaded = first;
                                         if (g != own) place.fetch(loaded, at, i, quad);
                                         place.store(loaded, at, i, quad, values);
                                       },
                                       [&](int g) { return place.has_row(g / (kQuadBlocks * 2) * 2 + g % 2); });
#endif
  }

  // The same where one warp has all rows.
  template <class P>
  static __device__ __forceinline__ void store_few_in_cluster(const P& place, const float (&acc)[kRowBlocks][BN / 2],
                                                              const typename P::Loaded& first, const Shared& shared) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x >= 32) return;
    const int own = int(cluster_rank());
    Few::finish(shared.chunks(), place.m, [&](int quad, float(&values)[8]) { group(acc, 2 * quad, values); },
                [&](int quad, const float(&values)[8]) {
                  const typename P::Row at = place.row_at(0);
                  typename P::Loaded loaded = first;
                  if (quad != own) place.fetch(loaded, at, 0, quad);
                  place.store(loaded, at, 0, quad, values);
                });
#endif
  }

  template <class X, class Operands, class Epilogue>
  static __device__ void multiply(const X& x, const Operands& o, const Shared& shared, const Work& work,
                                  const Epilogue& epilogue, int warpgroup, char* memory) {
    uint32_t number = kAlternate ? uint32_t(warpgroup) : 0;  // of the block's tiles
    wait_for_inputs();
    x.begin(work);
    if (warpgroup == 1) pass_turn(warpgroup);  // the first turn is warpgroup 0's
    for (uint32_t index = work.first + number * work.stride; index < work.tiles;
         index += kTurns * work.stride, number += kTurns) {
      float acc[kRowBlocks][BN / 2];
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int j = 0; j < BN / 2; ++j) acc[i][j] = 0.0f;
      const Stage stage(number * uint32_t(work.steps));
      if constexpr (kInCluster) {
        using P = Place<Operands, Epilogue>;
        const P place(o, epilogue, work.tile(index), row_of(warpgroup));
        // What this block stores first: a group, or a quad of the first half.
        const int own = int(blockIdx.x % kParts), i = kFewRows ? 0 : own / (kQuadBlocks * 2) * 2 + own % 2;
        typename P::Loaded first;
        if (own < (kFewRows ? kQuadBlocks : kGroups))
          place.fetch(first, place.row_at(i), i, kFewRows ? own : own / 2 % kQuadBlocks);
        x.accumulate(shared, stage, work, warpgroup, acc);
        if constexpr (kFewRows)
          store_few_in_cluster(place, acc, first, shared);
        else
          store_in_cluster(place, acc, first, memory);
      } else {
        Chunks<Operands, Epilogue> chunks(o, epilogue, work.tile(index), row_of(warpgroup), shared.chunks());
        wait_turn(warpgroup);
        x.accumulate(shared, stage, work, warpgroup, acc);
        chunks.store(acc);
      }
    }
  }

  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, int part_depth) {
    run_from(LoadedX{}, o, x_map, y_map, epilogue, part_depth);
  }

  template <class X, class Operands, class Epilogue>
  static __device__ __forceinline__ void run_from(const X& x, const Operands& o, const CUtensorMap* x_map,
                                                  const CUtensorMap* y_map, const Epilogue& epilogue, int part_depth) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    if (threadIdx.x == kConsumers) {
      prefetch_map(*y_map);
      if constexpr (kXRows > 0) prefetch_map(*x_map);
    }
    const Work work = work_of(o, part_depth);
    // From one lane, so that the compiler sees that a warp does not diverge.
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    set_up(shared, int(o.m));
    if (warpgroup == kWarpgroups) {
      give_registers();
      if (threadIdx.x == kConsumers) Loader<Operands>{o, x_map, y_map, shared, work}.run();
      __syncwarp();
      if constexpr (kInCluster && !kFewRows) {
        cluster_barrier();  // those of finish_cluster
        cluster_barrier();
      }
    } else {
      take_registers();
      multiply(x, o, shared, work, epilogue, warpgroup, memory);
    }
  }
};

}  // namespace aicf
