// How the results of a whole wgmma tile reach memory, through shared memory and the epilogue.
#pragma once

#include "matmul/cuda/wgmma_instructions.cuh"
#include "tile/cuda/tile_memory.cuh"
#include "tile/cuda/tile_reduce.cuh"

namespace aicf {

// What a kernel's epilogue is for a tile of this batch. That of a group differs by product (grouped.cuh).
template <class Epilogue>
struct EpilogueOf {
  static constexpr bool kByBatch = false;
  using Held = const Epilogue&;
  using Type = Epilogue;
  static __device__ __forceinline__ Held get(const Epilogue& epilogue, uint32_t) { return epilogue; }
};

// The epilogue of a whole tile. Each warp puts 16 rows of a chunk of columns into shared memory, as the element type in
// which the epilogue sees them, and reads them back by rows: neighbouring threads have neighbouring vectors of 16 bytes,
// so that all accesses to memory are whole lines. The operands of a chunk are fetched before it is stored, as
// kEpiloguePrefetch of the product says. The
// loop over chunks stays a loop: a warp that runs through long unrolled code waits for instructions.
// Of a pair a chunk are the same columns of both products, one half after the other in the same memory.
// Product: a WgmmaMatmul.
template <class Product, class Operands, class Given>
struct WgmmaChunks {
  using Of = EpilogueOf<Given>;
  using Epilogue = typename Of::Type;
  using Tile = typename Epilogue::Tile;
  static constexpr int BM = Product::kBlockM, BN = Product::kBlockN, kRowBlocks = Product::kRowBlocks;
  static constexpr int kPrefetch = Product::kEpiloguePrefetch;
  using Row = typename Epilogue::Row;
  static constexpr int kHalves = Operands::kDualGemm ? 2 : 1, kTileColumns = Product::template kTileColumns<Operands>;
  static constexpr int kColumns = kTileColumns % 64 == 0 && sizeof(Tile) == 2 ? 64 : 32;
  static constexpr int kAcross = kTileColumns / kColumns, kCount = kRowBlocks * kAcross, kParts = kCount * kHalves;
  static constexpr int kSumRows = 16;  // of a part of a column's sum
  static constexpr int kVector = 16 / int(sizeof(Tile));  // columns of a thread in a row
  static constexpr int kRowThreads = kColumns / kVector, kRowsAtOnce = 32 / kRowThreads, kVectors = 16 / kRowsAtOnce;
  static constexpr int kRowBytes = kColumns * int(sizeof(Tile)) + 16;  // eight rows lie in different banks
  static constexpr int kStored = Operands::kStoredColumns;
  static constexpr bool kNarrow = kStored < kVector;

  typename Of::Held epilogue;
  int m, n, row, column;  // of the thread's first vector
  int64_t outer;
  uint32_t memory, lane;  // the warp's 16 rows
  Row rows[kRowBlocks][kVectors];
  struct Loaded {
    typename Epilogue::template Shared<kVector> shared;
    typename Epilogue::template Own<kVector> own[kPrefetch > 0 ? kVectors : 1];
  };
  Loaded loaded;

  __device__ __forceinline__ WgmmaChunks(const Operands& o, const Given& e, const MatmulTile& tile, int first_row,
                                         uint32_t shared, int first = 0)
      : WgmmaChunks(o, e, tile, first_row / 16 + int(threadIdx.x) / 32 % 4, first) {
    memory = shared + uint32_t(int(threadIdx.x) / 32 * 16 * kRowBytes);
  }
  // The 16 rows of the tile from 16 · `rows_of` on, beginning with chunk `first`; `memory` is still open.
  __device__ __forceinline__ WgmmaChunks(const Operands& o, const Given& e, const MatmulTile& tile, int rows_of,
                                    int first = 0)
      : epilogue(Of::get(e, tile.batch)),
        m(int(o.m)),
        n(int(o.n)),
        outer(Of::kByBatch ? 0 : int64_t(tile.batch) * o.m),
        lane(threadIdx.x % 32) {
    row = int(tile.row) * BM + rows_of * 16 + int(lane) / kRowThreads;
    column = int(tile.column) * kTileColumns + int(lane) % kRowThreads * kVector;
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
      for (int v = 0; v < kVectors; ++v) rows[i][v] = epilogue.row(outer + (has_row(i, v) ? row_of(i, v) : 0));
    if (kPrefetch == 2 && !kNarrow) fetch(loaded, first);
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
  __device__ __forceinline__ bool has_columns(int c) const { return Operands::kWholeTiles || c + kVector <= n; }

  __device__ __forceinline__ void fetch_own(Loaded& to, int chunk, int v) const {
    const int block = chunk / kAcross, c = column_of(chunk);
    if (has_row(block, v) && has_columns(c)) epilogue.fetch(to.own[kPrefetch > 0 ? v : 0], row_at(block, v), c);
  }
  __device__ __forceinline__ void fetch(Loaded& to, int chunk) const {
    const int c = column_of(chunk);
    if (has_columns(c)) epilogue.fetch(to.shared, c);
#pragma unroll
    for (int v = 0; kPrefetch > 0 && v < kVectors; ++v) fetch_own(to, chunk, v);
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
  // Of a chunk, among a thread's blocks of 8 columns.
  static __device__ __forceinline__ int first_block(int chunk, int half) {
    return (half * kAcross + chunk % kAcross) * (kColumns / 8);
  }
  __device__ __forceinline__ void put(const float (&acc)[kRowBlocks][BN / 2], int chunk, int half) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i == chunk) put_at(memory, acc[i / kAcross], first_block(i, half));
  }
  __device__ __forceinline__ void get(tile::Vec<Tile, kVector>& values, int v) const {
    const uint32_t at = memory + (lane / kRowThreads + v * kRowsAtOnce) * kRowBytes + lane % kRowThreads * 16;
    reinterpret_cast<uint4&>(values) = load_shared(at);
  }

  // A chunk that lies in `memory`, few columns of a row by each thread.
  __device__ __forceinline__ void store_narrow(int chunk) const {
    const int first = row - int(lane) / kRowThreads + chunk / kAcross * 64;
    const int left = column_of(chunk) - int(lane) % kRowThreads * kVector;
    store_narrow_rows<kStored, kColumns>(epilogue, outer + first, m - first, left, n, int(lane), [&](int r, int c) {
      tile::Vec<Tile, kStored> values;
      load_shared(memory + r * kRowBytes + c * int(sizeof(Tile)), values);
      return values;
    });
  }

  // Chunks from `first` to `end`, each half after ready(chunk, half) has seen to it that its results lie in `memory`.
  template <class Ready>
  __device__ __forceinline__ void each(int first, int end, const Ready& ready) {
#pragma unroll 1
    for (int chunk = first; chunk < end; ++chunk) {
      Loaded next;
      if constexpr (kNarrow) {
        ready(chunk, 0);
        store_narrow(chunk);
        __syncwarp();
        continue;
      }
      if (kPrefetch < 2) fetch(loaded, chunk);
      if (kPrefetch == 2 && chunk + 1 < end) fetch(next, chunk + 1);
      ready(chunk, 0);
      const int block = chunk / kAcross, c = column_of(chunk);
      // Of whole tiles and of pairs all vectors at once, in one piece of code; else one after another.
      constexpr bool kAll = Operands::kDualGemm || (kPrefetch > 0 && Operands::kWholeTiles);
      tile::Vec<Tile, kVector> values[kAll ? kVectors : 1], others[Operands::kDualGemm ? kVectors : 1];
#pragma unroll
      for (int v = 0; kAll && v < kVectors; ++v) get(values[v], v);
      if constexpr (Operands::kDualGemm) {
        __syncwarp();
        ready(chunk, 1);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) get(others[v], v);
      }
      float sums[kVector] = {};  // of the thread's rows, where the epilogue wants them
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (!has_row(block, v) || (!Operands::kWholeTiles && c >= n)) continue;
        if (kPrefetch == 0) fetch_own(loaded, chunk, v);
        if (!kAll) get(values[0], v);
        const Row at = row_at(block, v);
        const auto& own = loaded.own[kPrefetch > 0 ? v : 0];
        if constexpr (Operands::kDualGemm) {
          static_assert(!Epilogue::kSumsRows, "sums are of one product");
          if (has_columns(c))
            epilogue.apply(at, c, values[v].at, others[v].at, loaded.shared, own);
          else if (!Operands::kWholeGroups)
            store_columns<kVector>(epilogue, at, c, n, values[v].at, others[v].at);
        } else if constexpr (Epilogue::kSumsRows)
          epilogue.apply(at, c, values[kAll ? v : 0].at, loaded.shared, own, sums);
        else if (has_columns(c))
          epilogue.apply(at, c, values[kAll ? v : 0].at, loaded.shared, own);
        else if (!Operands::kWholeGroups)
          store_columns<kVector>(epilogue, at, c, n, values[kAll ? v : 0].at);
      }
      if constexpr (Epilogue::kSumsRows) store_sums(chunk, sums);
      __syncwarp();
      if (kPrefetch == 2) loaded = next;
    }
  }

  // Sums over the thread's rows become those over the warp's 16: of neighbouring rows, then of these in pairs.
  __device__ __forceinline__ void store_sums(int chunk, float (&sums)[kVector]) const {
#pragma unroll
    for (int e = 0; e < kVector; ++e)
#pragma unroll
      for (int distance = kRowThreads; distance < 32; distance *= 2)
        sums[e] = tile::add(sums[e], tile::exchange(sums[e], distance));
    const int first = row - int(lane) / kRowThreads + chunk / kAcross * 64, c = column_of(chunk);
    if (int(lane) < kRowThreads && first < m && has_columns(c)) epilogue.store_sums(first / kSumRows, c, sums);
  }

  __device__ __forceinline__ void store(const float (&acc)[kRowBlocks][BN / 2]) {
    keep_in_register(m);
    each(0, kCount, [&](int chunk, int half) {
      put(acc, chunk, half);
      __syncwarp();
    });
  }
};

}  // namespace aicf
