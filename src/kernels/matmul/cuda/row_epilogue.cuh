// A product on sm_90a whose epilogue reduces whole rows of results: the blocks of a cluster have the tiles of kBlocks · BN
// columns that make up a row, keep their results in registers as half values, and exchange what a row's statistics need
// through each other's shared memory, in the blocks' order (a cluster reduction). A block has one tile.
#pragma once

#include "matmul/cuda/wgmma.cuh"
#include "tile/cuda/tile_reduce.cuh"

namespace aicf {

// Values of kBlocks blocks for each of a warp's 16 rows. The warps of one number have the same rows in all blocks, and
// exchange by themselves: each writes into the others' memory, whose barriers count the bytes that come. Every exchange
// has its own memory and barriers, so that nobody waits before it writes.
template <int kBlocks, int kWarps, int kExchanges>
struct RowExchange {
  static constexpr int kRows = 16, kBarriers = kExchanges * kWarps;
  uint32_t base;

  __device__ uint32_t barrier(int exchange, int warp) const { return base + (exchange * kWarps + warp) * 8; }
  __device__ uint32_t value(int exchange, int warp, int row) const {
    return base + kBarriers * 8 + ((exchange * kWarps + warp) * kRows + row) * kBlocks * 4;
  }
  // By one thread, before the cluster's first barrier.
  __device__ void set_up() const {
    for (int i = 0; i < kBarriers; ++i) {
      barrier_init(base + i * 8, 1);
      barrier_expect(base + i * 8, kRows * kBlocks * 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ __forceinline__ void send(int exchange, int warp, int row, int block, float x) const {
    const uint32_t to = value(exchange, warp, row) + cluster_rank() * 4, at = barrier(exchange, warp);
    asm volatile(
        "{\n.reg .b32 to, at;\nmapa.shared::cluster.u32 to, %0, %2;\nmapa.shared::cluster.u32 at, %1, %2;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %3, [at];\n}" ::"r"(to),
        "r"(at), "r"(block), "r"(__float_as_uint(x))
        : "memory");
  }
  __device__ __forceinline__ void wait(int exchange, int warp) const { wait_for_cluster(barrier(exchange, warp)); }
  template <class Op>
  __device__ __forceinline__ float combined(int exchange, int warp, int row) const {
    float result = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float x;
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(value(exchange, warp, row) + block * 4) : "memory");
      result = block == 0 ? x : Op::apply(result, x);
    }
    return result;
  }
};

// Product: a WgmmaMatmul with Split::kRow.
template <class Product, int kBlocks>
struct RowReductionMatmul : Product {
  using typename Product::Shared;
  using typename Product::Stage;
  using typename Product::Work;

  // A thread's part of a tile: vectors of columns, as Chunks distributes them.
  template <class Operands, class Epilogue>
  struct TileChunks : Product::template Chunks<Operands, Epilogue> {
    using Chunks = typename Product::template Chunks<Operands, Epilogue>;
    using Exchange = RowExchange<kBlocks, Product::kConsumers / 32, Epilogue::kReductions>;
    static constexpr int kColumns = Chunks::kColumns, kAcross = Chunks::kAcross, kVectors = Chunks::kVectors,
                         kVector = Chunks::kVector;
    static_assert(Product::kRowBlocks == 1, "a warp has 16 rows");

    typename Epilogue::template Shared<kVector> shared[kAcross];
    typename Epilogue::template Own<kVector> own[kAcross][kVectors];
    typename Epilogue::template LateShared<kVector> late[kAcross];
    tile::Vec<typename Epilogue::Kept, kVector> kept[kAcross][kVectors];
    Exchange exchange;

    __device__ __forceinline__ TileChunks(const Operands& o, const Epilogue& e, const MatmulTile& tile, int first_row,
                                    uint32_t chunks, const Exchange& exchange)
        : Chunks(o, e, tile, first_row, chunks), exchange(exchange) {}

    // Group, as cuda_row_epilogue asks for it.
    __device__ __forceinline__ bool has_row(int i) const { return Chunks::has_row(0, i); }
    __device__ __forceinline__ bool leads(int i) const {
      return has_row(i) && this->column == 0;
    }
    template <class Op, int kNumber>
    __device__ __forceinline__ void reduce(float (&x)[kVectors]) const {
      constexpr int kLanes = Chunks::kRowThreads;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) x[i] = tile::reduce_lanes<Op, kLanes>(x[i]);
      if constexpr (kBlocks > 1) {
        const int warp = int(threadIdx.x) / 32, row = int(this->lane) / kLanes;
        for (int block = int(this->lane) % kLanes; block < kBlocks; block += kLanes)
#pragma unroll
          for (int i = 0; i < kVectors; ++i) exchange.send(kNumber, warp, row + i * Chunks::kRowsAtOnce, block, x[i]);
        exchange.wait(kNumber, warp);
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
          x[i] = exchange.template combined<Op>(kNumber, warp, row + i * Chunks::kRowsAtOnce);
      }
    }

    // What the first part of the epilogue reads, while the product is being made.
    __device__ __forceinline__ void fetch_early() {
#pragma unroll
      for (int k = 0; k < kAcross; ++k) {
        this->epilogue.fetch(shared[k], this->column_of(k));
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
          if (has_row(i)) this->epilogue.fetch(own[k][i], this->rows[0][i], this->column_of(k));
      }
    }
    __device__ __forceinline__ void begin(const float (&acc)[1][Product::kResults]) {
#pragma unroll
      for (int k = 0; k < kAcross; ++k) {
        Chunks::put_at(this->memory, acc[0], k * (kColumns / 8));
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          tile::Vec<typename Chunks::Tile, kVector> values;
          this->get(values, i);
          this->epilogue.begin(this->rows[0][i], this->column_of(k), values.at, shared[k], own[k][i], kept[k][i],
                               has_row(i));
        }
        __syncwarp();
      }
    }
    __device__ __forceinline__ void finish() {
#pragma unroll
      for (int k = 0; k < kAcross; ++k) this->epilogue.fetch(late[k], this->column_of(k));
      if constexpr (kBlocks > 1) tile::cluster_wait();
      this->epilogue.finish(*this, this->rows[0], this->column, kept, late);
    }
  };

  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, int part_depth) {
    extern __shared__ __align__(1024) char memory[];
    using P = TileChunks<Operands, Epilogue>;
    const Shared shared{shared_address(memory)};
    const typename P::Exchange exchange{shared.chunks() + Product::kConsumers / 32 * 16 * P::kRowBytes};
    if (threadIdx.x == Product::kConsumers) {
      prefetch_map(*y_map);
      prefetch_map(*x_map);
    }
    const Work work = Product::work_of(o, part_depth);
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    if (kBlocks > 1 && threadIdx.x == 0) exchange.set_up();
    Product::set_up(shared);
    if constexpr (kBlocks > 1) tile::cluster_arrive();
    if (warpgroup == Product::kConsumers / 128) {
      Product::give_registers();
      if (threadIdx.x == Product::kConsumers)
        typename Product::template Loader<Operands>{o, x_map, y_map, shared, work}.run();
      __syncwarp();
      if constexpr (kBlocks > 1) tile::cluster_wait();
    } else {
      Product::take_registers();
      wait_for_inputs();
      const int first_row = Product::row_of(warpgroup);
      P part(o, epilogue, work.tile(work.first), first_row, shared.chunks(), exchange);
      part.fetch_early();
      float acc[1][Product::kResults];
#pragma unroll
      for (int j = 0; j < Product::kResults; ++j) acc[0][j] = 0.0f;
      Product::accumulate(shared, Stage(0), work.steps, warpgroup, acc);
      part.begin(acc);
      part.finish();
    }
  }
};

}  // namespace aicf
