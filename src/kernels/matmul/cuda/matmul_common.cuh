// What the contractions share: operands, the order of tiles, and the end of a tile, which hands groups of consecutive
// columns to the epilogue, after adding the parts of a split K in order where there are any.
#pragma once

#include "prelude.cuh"

namespace aicf {

// x [M, K] and y [K, N] of one batch. Index is int32_t where every offset inside a matrix fits.
template <class T, class I>
struct MatmulOperands {
  using Element = T;
  using Index = I;
  static constexpr bool kSumsX = false;  // whether it has what row_sums.cuh asks for
  // Whether x is multiplied by a second matrix, y1, whose results stand beside those of y in the epilogue (matmul_pair).
  static constexpr bool kDualGemm = false;
  // Columns of a row of results that one thread stores: fewer than 8 where rows start anywhere.
  static constexpr int kStoredColumns = 8;
  const T* x;
  const T* y;
  Index m, n, k;
  Index x_row, x_column, y_row, y_column;  // strides
};

template <class I>
__device__ __forceinline__ I tiles_of(I size, I tile) {
  return (size + tile - 1) / tile;
}

struct MatmulTile {
  uint32_t batch, row, column;  // in tiles
};

// Tiles of one batch run in groups of kTileRowGroup row tiles, rows fastest: tiles that run at the same time share their
// parts of x and y, which then stay in the L2 cache.
constexpr uint32_t kTileRowGroup = 8;

__device__ __forceinline__ MatmulTile tile_at(uint32_t index, uint32_t row_tiles, uint32_t column_tiles) {
  const uint32_t per_batch = row_tiles * column_tiles;
  MatmulTile tile;
  tile.batch = index / per_batch;
  index -= tile.batch * per_batch;
  const uint32_t group = index / (kTileRowGroup * column_tiles);
  const uint32_t first = group * kTileRowGroup;
  const uint32_t rows = min(kTileRowGroup, row_tiles - first);
  index -= first * column_tiles;
  tile.column = index / rows;
  tile.row = first + (index - tile.column * rows);
  return tile;
}

// Tiles of one row of tiles follow one another.
__device__ __forceinline__ MatmulTile row_tile_at(uint32_t index, uint32_t row_tiles, uint32_t column_tiles) {
  const uint32_t row = index / column_tiles;
  return {row / row_tiles, row % row_tiles, index - row * column_tiles};
}

// 16 bytes of accumulators.
template <class Acc>
struct alignas(16) AccVector {
  static constexpr int kLength = 16 / sizeof(Acc);
  Acc values[kLength];
};
// At a multiple of 16 bytes.
template <class Acc>
__device__ __forceinline__ void read_four(const Acc* from, Acc* to) {
  using Vector = AccVector<Acc>;
#pragma unroll
  for (int i = 0; i < 4 / Vector::kLength; ++i) {
    const Vector v = reinterpret_cast<const Vector*>(from)[i];
#pragma unroll
    for (int e = 0; e < Vector::kLength; ++e) to[i * Vector::kLength + e] = v.values[e];
  }
}

// Columns col … col+V-1 of a row, as far as they are less than n.
template <int V, class Epilogue, class A>
__device__ __forceinline__ void store_columns(const Epilogue& epilogue, const typename Epilogue::Row& row, int64_t col,
                                              int64_t n, const A (&acc)[V]) {
  if (col + V <= n) {
    epilogue.template apply<V>(row, col, acc);
    return;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const A one[1] = {acc[i]};
    if (col + i < n) epilogue.template apply<1>(row, col + i, one);
  }
}

// The same of two products.
template <int V, class Epilogue, class A>
__device__ __forceinline__ void store_columns(const Epilogue& epilogue, const typename Epilogue::Row& row, int64_t col,
                                              int64_t n, const A (&acc)[V], const A (&acc1)[V]) {
  if (col + V <= n) {
    epilogue.template apply<V>(row, col, acc, acc1);
    return;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const A one[1] = {acc[i]}, other[1] = {acc1[i]};
    if (col + i < n) epilogue.template apply<1>(row, col + i, one, other);
  }
}

// A warp stores kRows rows of kColumns columns, as far as there are `rows` and n columns. Rows begin anywhere in memory, so
// neighbouring threads take neighbouring columns, kStored each. A thread fetches the operands of several pieces before it
// stores the first: one after another each would wait for memory. read(row, column) gives the product's values there.
template <int kStored, int kColumns, int kRows = 16, class Epilogue, class Read>
__device__ __forceinline__ void store_narrow_rows(const Epilogue& epilogue, int64_t outer, int64_t rows, int64_t column,
                                                  int64_t n, int lane, const Read& read) {
  constexpr int kLanes = kColumns / kStored < 32 ? kColumns / kStored : 32, kAtOnce = 32 / kLanes;
  constexpr int kPieces = kColumns / (kLanes * kStored), kBatch = 8 / kPieces < kRows / kAtOnce ? 8 / kPieces : kRows / kAtOnce;
  const auto column_of = [&](int piece) { return (lane % kLanes + piece * kLanes) * kStored; };
  const auto has = [&](int r, int piece) { return r < rows && column + column_of(piece) < n; };
  typename Epilogue::template Shared<kStored> shared[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (column + column_of(p) < n) epilogue.fetch(shared[p], column + column_of(p));
#pragma unroll 1
  for (int first = lane / kLanes; first < kRows; first += kBatch * kAtOnce) {
    typename Epilogue::Row at[kBatch];
    typename Epilogue::template Own<kStored> own[kBatch][kPieces];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int r = first + b * kAtOnce;
      at[b] = epilogue.row(outer + (r < rows ? r : 0));
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        if (has(r, p)) epilogue.fetch(own[b][p], at[b], column + column_of(p));
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        if (const int r = first + b * kAtOnce; has(r, p))
          epilogue.apply(at[b], column + column_of(p), read(r, column_of(p)).at, shared[p], own[b][p]);
  }
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

#if __CUDA_ARCH__ >= 900
// All blocks of the cluster; shared memory written before is visible to all after.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint4 load_cluster_shared(uint32_t address, uint32_t rank) {
  uint4 v;
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(remote)
               : "memory");
  return v;
}
#endif

// How the parts of a K that is split among blocks come together, and what the blocks of a cluster share.
enum class Split {
  kNone,       // not split
  kCluster,    // the blocks of a cluster hold one part each and read each other's shared memory
  kWorkspace,  // parts go to the workspace; the kernel of Split::kSum adds them
  kSum,        // see kWorkspace and kStream
  kRow,        // not split: the blocks of a cluster have the tiles of whole rows (row_epilogue.cuh)
  kStream,     // blocks have equal shares of the steps of all tiles (stream-K), whose parts go to the workspace, too
  kMulticast,  // not split: the blocks of a cluster have tiles of one column, and each loads a part of y for all
};

// Of the groups of a thread: those that lie inside the result, where that saves something.
struct EveryGroup {
  __device__ __forceinline__ bool operator()(int) const { return true; }
};

// Puts them in memory of kGroups × V × kThreads accumulators, neighbouring threads side by side.
template <int kThreads, int kGroups, int V, class Acc, class Wanted = EveryGroup>
__device__ __forceinline__ void write_part(const Acc (&acc)[kGroups][V], int thread, AccVector<Acc>* part,
                                           const Wanted& wanted = Wanted()) {
  constexpr int kVectors = V / AccVector<Acc>::kLength;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (!wanted(g)) continue;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      AccVector<Acc> v;
#pragma unroll
      for (int e = 0; e < v.kLength; ++e) v.values[e] = acc[g][i * v.kLength + e];
      part[(g * kVectors + i) * kThreads + thread] = v;
    }
  }
}

// The accumulators of a thread as kGroups groups of V consecutive columns. `store(g, values)` gets each group's sum in
// exactly one block. kThreads threads take part, numbered `thread`. shared: kGroups × V × kThreads accumulators, free to
// be overwritten once all threads of the block have arrived. Parts are added in order. The threads of the block that take
// no part call cluster_barrier twice. Groups that are not `wanted` are left out.
template <int kThreads, int kParts, int kGroups, int V, class Acc, class Store, class Wanted = EveryGroup>
__device__ __forceinline__ void finish_cluster(const Acc (&acc)[kGroups][V], int thread, AccVector<Acc>* shared,
                                               const Store& store, const Wanted& wanted = Wanted()) {
#if __CUDA_ARCH__ >= 900
  constexpr int kLength = AccVector<Acc>::kLength, kVectors = V / kLength;
  write_part<kThreads>(acc, thread, shared, wanted);
  cluster_barrier();
#pragma unroll 1  // the epilogue's code once: it may be long
  for (int g = int(cluster_rank()); g < kGroups; g += kParts) {
    if (!wanted(g)) continue;
    union Vector {
      uint4 bits;
      Acc values[kLength];
    };
    Vector parts[kParts][kVectors];
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        parts[part][i].bits =
            load_cluster_shared(shared_address(&shared[(g * kVectors + i) * kThreads + thread]), uint32_t(part));
    Acc sum[V];
#pragma unroll
    for (int e = 0; e < V; ++e) {
      sum[e] = parts[0][e / kLength].values[e % kLength];
#pragma unroll
      for (int part = 1; part < kParts; ++part) sum[e] += parts[part][e / kLength].values[e % kLength];
    }
    store(g, sum);
  }
  cluster_barrier();  // no block may leave while others read its shared memory
#endif
}

// What a block does with its groups: Split::kNone stores them, kCluster adds the cluster's parts, kWorkspace writes them to
// `part` for PartsSum.
template <int kThreads, Split kSplit, int kParts, int kGroups, int V, class Acc, class Store>
__device__ __forceinline__ void finish_groups(const Acc (&groups)[kGroups][V], int thread, char* shared, AccVector<Acc>* part,
                                              const Store& store) {
  if constexpr (kSplit == Split::kNone) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) store(g, groups[g]);
  } else if constexpr (kSplit == Split::kCluster) {
    finish_cluster<kThreads, kParts>(groups, thread, reinterpret_cast<AccVector<Acc>*>(shared), store);
  } else {
    write_part<kThreads>(groups, thread, part);
  }
}

// The warps of a block of Split::kSum, each of which adds at most eight of so many parts (sum_warps in matmul_ways.h).
constexpr int kPartsOfWarp = 8;
constexpr int warps_of_parts(int parts) { return (parts + kPartsOfWarp - 1) / kPartsOfWarp; }

// The kernel of Split::kSum, of tiles whose kThreads threads left kGroups groups each by write_part, parts of a tile one after
// another. A block has one group of 32 neighbouring threads. Each of its kWarps warps adds as many parts in order, and the first
// one what the warps have, in order.
template <int kThreads, int kWarps, int kGroups, int V, class Acc>
struct PartsSum {
  using Vector = AccVector<Acc>;
  static constexpr int kLength = Vector::kLength, kVectors = V / kLength, kWarpsOfTile = kThreads / 32;
  static constexpr int kBlocksOfTile = kWarpsOfTile * kGroups;
  static constexpr int64_t kDistance = int64_t(kGroups) * kVectors * kThreads;  // of parts
  uint32_t tile;
  int group, thread;

  __device__ __forceinline__ explicit PartsSum(uint32_t block)
      : tile(block / kBlocksOfTile),
        group(int(block % kBlocksOfTile) / kWarpsOfTile),
        thread(int(block % kWarpsOfTile) * 32 + int(threadIdx.x) % 32) {}

  static __device__ __forceinline__ void add(const Vector& v, int at, Acc (&sum)[V]) {
#pragma unroll
    for (int e = 0; e < kLength; ++e) sum[at * kLength + e] += v.values[e];
  }

  // Of so many parts from `first_part` of all on; `store` gets the sum, once.
  template <class Store>
  __device__ __forceinline__ void run(const void* workspace, int64_t first_part, int count, const Store& store) const {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int of_warp = (count + kWarps - 1) / kWarps, first = warp * of_warp, end = min(count, first + of_warp);
    const Vector* const from =
        static_cast<const Vector*>(workspace) + first_part * kDistance + group * kVectors * kThreads + thread;
    Acc sum[V];
#pragma unroll
    for (int e = 0; e < V; ++e) sum[e] = Acc(0);
#pragma unroll 1
    for (int at = first; at < end; at += kPartsOfWarp) {
      Vector parts[kPartsOfWarp][kVectors];
#pragma unroll
      for (int p = 0; p < kPartsOfWarp; ++p)
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
          if (at + p < end) parts[p][i] = from[(at + p) * kDistance + i * kThreads];
#pragma unroll
      for (int p = 0; p < kPartsOfWarp; ++p)
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
          if (at + p < end) add(parts[p][i], i, sum);
    }
    if constexpr (kWarps > 1) {
      __shared__ Vector sums[kWarps][kVectors][32];
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
#pragma unroll
        for (int e = 0; e < kLength; ++e) sums[warp][i][lane].values[e] = sum[i * kLength + e];
      sync_threads<kWarps * 32>();
      if (warp > 0) return;
#pragma unroll
      for (int w = 1; w < kWarps; ++w)
#pragma unroll
        for (int i = 0; i < kVectors; ++i) add(sums[w][i][lane], i, sum);
    }
    store(sum);
  }
};

// Adds the parts that write_part put at `first`, one every `distance` vectors.
template <int kThreads, int kParts, int kGroups, int V, class Acc, class Store>
__device__ __forceinline__ void sum_parts(const AccVector<Acc>* first, int64_t distance, int thread, const Store& store) {
  constexpr int kLength = AccVector<Acc>::kLength, kVectors = V / kLength;
#pragma unroll 1
  for (int g = 0; g < kGroups; ++g) {
    Acc sum[V];
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const AccVector<Acc> v = first[part * distance + (g * kVectors + i) * kThreads + thread];
#pragma unroll
        for (int e = 0; e < kLength; ++e) {
          Acc& to = sum[i * kLength + e];
          to = part == 0 ? v.values[e] : to + v.values[e];
        }
      }
    store(g, sum);
  }
}

// Among the four lanes of a quad: lane t holds values[j] = columns 8j + 2t, 8j + 2t + 1 of four blocks of 8 columns, as
// the matrix instructions leave them; afterwards block t, columns 8t … 8t + 7.
__device__ __forceinline__ void transpose_quad(float (&values)[8]) {
  const int lane = int(threadIdx.x) & 3;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & bit) continue;
      const bool upper = (lane & bit) != 0;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& low = values[2 * j + e];
        float& high = values[2 * (j | bit) + e];
        const float received = __shfl_xor_sync(0xffffffffu, upper ? low : high, bit);
        low = upper ? received : low;
        high = upper ? high : received;
      }
    }
}

}  // namespace aicf
