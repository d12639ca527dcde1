// A product of wgmma.cuh whose blocks have even shares of all tiles' K, whatever the number of tiles
// (stream-K: Osama et al., 2023). A block's share is a run of stages through the tiles one after the other.
// What it has of a tile from k = 0 to the end it stores; parts go to the workspace, and a second launch adds
// those of a tile in the order of k. Shares follow from the sizes and kBlocks alone, so sums are the same
// from run to run and on every machine.
#pragma once

#include "matmul/cuda/wgmma.cuh"

namespace aicf {

// Which stages of which tiles a block has. A tile has `steps` of them.
template <int kBlocks>
struct StreamShares {
  uint32_t steps, tiles, share;
  template <class I>
  __device__ StreamShares(uint32_t tiles, I k)
      : steps(uint32_t(tiles_of<I>(k, kWgmmaDepth))),
        tiles(tiles),
        share((tiles * steps + kBlocks - 1) / kBlocks) {}
  __device__ uint32_t begin(uint32_t block) const { return min(block * share, tiles * steps); }
  // Calls use(tile, first step, steps) for each of the block's pieces.
  template <class Use>
  __device__ __forceinline__ void each(uint32_t block, const Use& use) const {
    const uint32_t end = begin(block + 1);
    for (uint32_t at = begin(block); at < end;) {
      const uint32_t tile = at / steps, first = at - tile * steps, count = min(steps - first, end - at);
      use(tile, first, count);
      at += count;
    }
  }
};

// A block leaves at most two parts: of the tile in which it begins, and of that in which it ends.
__device__ __forceinline__ uint32_t stream_part(uint32_t block, bool is_first_of_tile) {
  return block * 2 + (is_first_of_tile ? 1 : 0);
}

// Product: a WgmmaMatmul of two warpgroups that share a tile's rows.
template <class Product, int kBlocks>
struct StreamMatmul : Product {
  using typename Product::Shared;
  using typename Product::Stage;
  using typename Product::Work;
  using Shares = StreamShares<kBlocks>;
  static constexpr int BM = Product::kBlockM, BN = Product::kBlockN;
  using Results = float[Product::kRowBlocks][Product::kResults];

  // By rows of the tile: four threads of a warp store a sector.
  static __device__ __forceinline__ void store_part(float* part, const Results& acc, int first_row) {
    const int lane = int(threadIdx.x) % 32, row = first_row + int(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    float* to = part + row * BN + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < Product::kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < BN / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(to + (i * 64 + half * 8) * BN + j * 8) =
              make_float2(acc[i][j * 4 + half * 2], acc[i][j * 4 + half * 2 + 1]);
  }

  template <class Operands>
  static __device__ void load(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                              const Shared& shared, const Work& work, const Shares& shares) {
    const typename Product::template Loader<Operands> loader{o, x_map, y_map, shared, work};
    Stage stage(0);
    wait_for_inputs();
    shares.each(blockIdx.x, [&](uint32_t index, uint32_t first, uint32_t count) {
      const MatmulTile tile = work.tile(index);
      for (uint32_t step = first; step < first + count; ++step, stage.next()) {
        barrier_wait(shared.empty(stage.slot), stage.parity ^ 1);
        loader.expect(stage.slot);
        loader.load_x(stage.slot, int(step), tile);
        loader.load_y(stage.slot, int(step), tile);
      }
    });
    launch_dependents();
  }

  template <class Operands, class Epilogue>
  static __device__ void multiply(const Operands& o, const Shared& shared, const Work& work,
                                  const Shares& shares, const Epilogue& epilogue, int warpgroup,
                                  float* parts) {
    uint32_t before = 0;
    wait_for_inputs();
    shares.each(blockIdx.x, [&](uint32_t index, uint32_t first, uint32_t count) {
      Results acc;
      Product::clear(acc);
      Product::accumulate(shared, Stage(before), int(count), warpgroup, acc);
      before += count;
      const int row = Product::row_of(warpgroup);
      if (count == shares.steps)
        typename Product::template Chunks<Operands, Epilogue>(o, epilogue, work.tile(index), row,
                                                              shared.chunks())
            .store(acc);
      else
        store_part(parts + int64_t(stream_part(blockIdx.x, first == 0)) * (BM * BN), acc, row);
    });
  }

  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, void* workspace) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    if (threadIdx.x == Product::kConsumers) {
      prefetch_map(*y_map);
      prefetch_map(*x_map);
    }
    const Work work = Product::work_of(o, 0);
    const Shares shares(work.tiles, o.k);
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    Product::set_up(shared);
    if (warpgroup == Product::kConsumers / 128) {
      Product::give_registers();
      if (threadIdx.x == Product::kConsumers) load(o, x_map, y_map, shared, work, shares);
    } else {
      Product::take_registers();
      multiply(o, shared, work, shares, epilogue, warpgroup, static_cast<float*>(workspace));
    }
  }
};

// Adds the parts of each tile that several blocks share: kThreads groups of eight columns in each block, so
// many blocks for the first border between two shares that lies inside a tile.
template <int BM, int BN, int kBlocks, int kThreads>
struct StreamSum {
  static constexpr uint32_t kPieces = BM * BN / 8 / kThreads;
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, const void* workspace) {
    const uint32_t row_tiles = uint32_t(tiles_of<int>(o.m, BM)),
                   column_tiles = uint32_t(tiles_of<int>(o.n, BN));
    const StreamShares<kBlocks> shares(row_tiles * column_tiles * uint32_t(o.batches), o.k);
    const uint32_t border = blockIdx.x / kPieces + 1, at = border * shares.share;
    if (at >= shares.tiles * shares.steps) return;
    const uint32_t index = at / shares.steps, start = index * shares.steps, first = start / shares.share;
    if (at == start || border != first + 1) return;
    const uint32_t last = (start + shares.steps - 1) / shares.share;
    const MatmulTile tile = tile_at(index, row_tiles, column_tiles);
    const int group = int(blockIdx.x % kPieces) * kThreads + int(threadIdx.x);
    const int r = group / (BN / 8), c = group % (BN / 8) * 8;
    const int row = int(tile.row) * BM + r, column = int(tile.column) * BN + c;
    if (row >= int(o.m) || column >= int(o.n)) return;
    const float* parts = static_cast<const float*>(workspace) + r * BN + c;
    float sum[8];
    for (uint32_t block = first; block <= last; ++block) {
      const auto* part =
          reinterpret_cast<const float4*>(parts + int64_t(stream_part(block, block == first)) * (BM * BN));
      const float4 low = part[0], high = part[1];
      const float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] = block == first ? v[i] : sum[i] + v[i];
    }
    store_columns<8>(epilogue, epilogue.row(int64_t(tile.batch) * o.m + row), column, int(o.n), sum);
  }
};

}  // namespace aicf
