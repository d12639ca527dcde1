// The end of a wgmma tile whose K the blocks of a cluster have in parts (split-K): a reduce-scatter in distributed shared
// memory. Each block gets some groups of eight columns, or some chunks, adds their parts in order and runs the epilogue on
// them.
#pragma once

#include "matmul/cuda/few_rows.cuh"
#include "matmul/cuda/wgmma_epilogue.cuh"
#include "matmul/cuda/wgmma_instructions.cuh"

namespace aicf {

// Neighbouring chunks to each block, where there is shared memory for the parts beside the pipeline: each block sends the
// others their chunks' parts as soon as its own products are done, and a barrier counts the bytes that have come. No
// barrier of the cluster stands at the end. Product: a WgmmaMatmul with Split::kCluster.
template <class Product, class Operands, class Epilogue>
struct WgmmaReduceScatter {
  using Chunks = WgmmaChunks<Product, Operands, Epilogue>;
  static constexpr int kParts = Product::kBlocksOfTile, kOwn = Chunks::kCount / kParts;
  static constexpr int kThreads = Product::kConsumers, kVectors = Chunks::kColumns / 8;  // of a thread in a chunk
  static constexpr int kChunkBytes = kThreads / 32 * 16 * Chunks::kRowBytes;
  static_assert(kOwn * kParts == Chunks::kCount, "as many chunks to every block");
  uint32_t base;  // the warps' rows as Chunks has them, a barrier, the parts

  __device__ uint32_t barrier() const { return base + kChunkBytes; }
  __device__ uint32_t place(int part, int chunk, int vector) const {
    return barrier() + 16 + uint32_t((((part * kOwn + chunk) * kVectors + vector) * kThreads + int(threadIdx.x)) * 16);
  }
  // Its place among the parts that `to` gets from the others.
  static __device__ __forceinline__ int part_of(int from, int to) { return from < to ? from : from - 1; }

#if __CUDA_ARCH__ >= 900
  // By one thread, before the cluster's first barrier.
  __device__ void set_up() const {
    barrier_init(barrier(), 1);
    barrier_expect(barrier(), (kParts - 1) * kOwn * kVectors * kThreads * 16);
  }
  __device__ __forceinline__ void send(const float (&acc)[Product::kRowBlocks][Product::kResults], int own) const {
#pragma unroll
    for (int c = 0; c < Chunks::kCount; ++c) {
      const int to = c / kOwn;
      if (to == own) continue;
      uint32_t at, counted;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(place(part_of(own, to), c % kOwn, 0)), "r"(to));
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(barrier()), "r"(to));
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const float* x = &acc[c / Chunks::kAcross][(c % Chunks::kAcross * kVectors + i) * 4];
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                at + i * kThreads * 16),
            "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(counted)
            : "memory");
      }
    }
  }
  // Where the chunk's results are the sums of all parts; elsewhere they are of no use.
  __device__ __forceinline__ void add_parts(float (&acc)[Product::kResults], int own, int c) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float sum[4];
      float* x = &acc[(c % Chunks::kAcross * kVectors + i) * 4];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        float v[4] = {x[0], x[1], x[2], x[3]};
        if (part != own)
          asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                       : "r"(place(part_of(part, own), c % kOwn, i))
                       : "memory");
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[e] = part == 0 ? v[e] : sum[e] + v[e];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = sum[e];
    }
  }
  __device__ __forceinline__ void finish(Chunks& chunks, float (&acc)[Product::kRowBlocks][Product::kResults], int own) const {
    send(acc, own);
    wait_for_cluster(barrier());
    chunks.each(own * kOwn, own * kOwn + kOwn, [&](int chunk, int) {
#pragma unroll
      for (int c = 0; c < Chunks::kCount; ++c)
        if (c == chunk) {
          add_parts(acc[c / Chunks::kAcross], own, c);
          Chunks::put_at(chunks.memory, acc[c / Chunks::kAcross], c % Chunks::kAcross * (Chunks::kColumns / 8));
        }
      __syncwarp();
    });
  }
#endif
};

// The place of a thread's groups in its tile: 8 columns from `column` + 32 · quad on of rows `row` + 64 · block + 8 · half.
// Product: a WgmmaMatmul with parts of K, or Split::kSum.
template <class Product, class Operands, class Epilogue>
struct WgmmaPlace {
  using Row = typename Epilogue::Row;
  using Shared = typename Product::Shared;
  static constexpr int kRowBlocks = Product::kRowBlocks, kQuadBlocks = Product::kQuadBlocks;
  static constexpr int kGroups = kRowBlocks * kQuadBlocks * 2, kParts = Product::kBlocksOfTile;
  static constexpr bool kFewRows = Product::kFewRows;
  struct Loaded {
    typename Epilogue::template Shared<8> shared;
    typename Epilogue::template Own<8> own;
  };
  const Epilogue& epilogue;
  int m, n, row, column;
  int64_t outer;

  __device__ WgmmaPlace(const Operands& o, const Epilogue& e, const MatmulTile& tile, int first_row)
      : WgmmaPlace(o, e, tile, first_row, int(threadIdx.x)) {}
  __device__ WgmmaPlace(const Operands& o, const Epilogue& e, const MatmulTile& tile, int first_row, int thread)
      : epilogue(e), m(int(o.m)), n(int(o.n)), outer(int64_t(tile.batch) * o.m) {
    const int lane = thread % 32;
    row = int(tile.row) * Product::kBlockM + first_row + thread % 128 / 32 * 16 + lane / 4;
    column = int(tile.column) * Product::kBlockN + lane % 4 * 8;
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
  // Of what this block stores first: a group, or a quad of the first half.
  __device__ __forceinline__ void fetch_first(Loaded& first) const {
    const int own = int(blockIdx.x % kParts), i = kFewRows ? 0 : half_block_of(own);
    if (own < (kFewRows ? kQuadBlocks : kGroups))
      fetch(first, row_at(i), i, kFewRows ? own : own / 2 % kQuadBlocks);
  }
  __device__ __forceinline__ void store(const Loaded& loaded, const Row& at, int i, int quad, const float (&values)[8]) const {
    const int c = column + quad * 32;
    if (!has_row(i)) return;
    if (c + 8 <= n)
      epilogue.apply(at, c, values, loaded.shared, loaded.own);
    else if (!Operands::kWholeGroups && c < n)
      store_columns<8>(epilogue, at, c, n, values);
  }

  static __device__ __forceinline__ int half_block_of(int g) { return g / (kQuadBlocks * 2) * 2 + g % 2; }
  // Those of a thread of one group, and as the epilogue takes them: after an exchange among the lanes of a quad.
  static __device__ __forceinline__ void elements(const float (&acc)[kRowBlocks][Product::kResults], int g,
                                                  float (&values)[8]) {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      values[e] = acc[g / (kQuadBlocks * 2)][(g / 2 % kQuadBlocks * 4 + e / 2) * 4 + g % 2 * 2 + e % 2];
  }
  static __device__ __forceinline__ void group(const float (&acc)[kRowBlocks][Product::kResults], int g,
                                               float (&values)[8]) {
    elements(acc, g, values);
    transpose_quad(values);
  }

  __device__ __forceinline__ void finish_groups(const float (&acc)[kRowBlocks][Product::kResults], const Loaded& first,
                                                char* memory) const {
#if __CUDA_ARCH__ >= 900
    constexpr int kThreads = Product::kConsumers;
    float groups[kGroups][8];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) group(acc, g, groups[g]);
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");  // all stages have been read
    const int own = int(cluster_rank());
    finish_cluster<kThreads, kParts>(groups, int(threadIdx.x), reinterpret_cast<AccVector<float>*>(memory),
                                     [&](int g, const float(&values)[8]) {
                                       const int i = half_block_of(g), quad = g / 2 % kQuadBlocks;
                                       const Row at = row_at(i);
                                       Loaded loaded = first;
                                       if (g != own) fetch(loaded, at, i, quad);
                                       store(loaded, at, i, quad, values);
                                     },
                                     [&](int g) { return has_row(half_block_of(g)); });
#endif
  }

  // The same where one warp has all rows.
  __device__ __forceinline__ void finish_few(const float (&acc)[kRowBlocks][Product::kResults], const Loaded& first,
                                             const Shared& shared) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x >= 32) return;
    const int own = int(cluster_rank());
    Product::Few::finish(shared.chunks(), m, [&](int quad, float(&values)[8]) { group(acc, 2 * quad, values); },
                         [&](int quad, const float(&values)[8]) {
                           const Row at = row_at(0);
                           Loaded loaded = first;
                           if (quad != own) fetch(loaded, at, 0, quad);
                           store(loaded, at, 0, quad, values);
                         });
#endif
  }
  __device__ __forceinline__ void finish(const float (&acc)[kRowBlocks][Product::kResults], const Loaded& first,
                                         const Shared& shared, char* memory) const {
    if constexpr (kFewRows)
      finish_few(acc, first, shared);
    else
      finish_groups(acc, first, memory);
  }
};

}  // namespace aicf
