// A product of wgmma.cuh whose persistent blocks have dedicated epilogue warps: the warpgroups that multiply give a tile's
// results as halves to three, four or seven more warps, through shared memory (producer-consumer), and multiply the next tile
// while these run the epilogue. Of a block's last tile the epilogue warps get the first chunk of columns; the others are
// stored by the warps that multiplied. Results are those of WgmmaMatmul, bit for bit.
#pragma once

#include "matmul/cuda/wgmma.cuh"

namespace aicf {

// Product: a WgmmaMatmul of two warpgroups that share a tile's rows. kEpilogueWarps: 3, 4 or 7, what a warpgroup has
// beside the warp that loads, a warpgroup, or both. kKeptSteps: of K, where a block has tiles of one row alone and their x is
// stationary, so that its stages are of y alone; else 0.
template <class Product, int kEpilogueWarps, int kKeptSteps = 0>
struct EpilogueWarpsMatmul : Product {
  using typename Product::Shared;
  using typename Product::Stage;
  using typename Product::Work;
  static constexpr int kWarps = Product::kConsumers / 32, kLoader = kWarps + (kEpilogueWarps == 3 ? 3 : 4);
  static constexpr int kChunksOfLast = 1;  // chunks of a block's last tile that epilogue warps run: a third of 192 columns

  // The warps' results and what says that they are there, and that they have been read: one buffer per warp
  // that multiplies.
  template <class C>
  struct ResultBuffers {
    static constexpr int kChunkBytes = 16 * C::kRowBytes, kBufferBytes = C::kParts * kChunkBytes;
    static constexpr int kAtOnce = kEpilogueWarps == 7 ? 1 : C::kCount;  // chunks that one warp stores after another
    uint32_t base;
    __device__ uint32_t full(int warp) const { return base + warp * 8; }
    __device__ uint32_t empty(int warp) const { return base + (kWarps + warp) * 8; }
    __device__ uint32_t chunk(int warp, int number, int half) const {
      return base + kWarps * 16 + warp * kBufferBytes + (number * C::kHalves + half) * kChunkBytes;
    }
    __device__ void set_up() const {
      for (int i = 0; i < 2 * kWarps; ++i) barrier_init(base + i * 8, i < kWarps ? 1 : C::kCount / kAtOnce);
    }
  };
  static __device__ __forceinline__ void arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }
  using Results = float[Product::kRowBlocks][Product::kResults];
  // The first 16 rows of a warp that multiplies.
  static __device__ __forceinline__ int rows_of(int warp) { return warp / 4 * (Product::kRows / 16) + warp % 4; }

  template <class Operands, class Epilogue, class C = typename Product::template Chunks<Operands, Epilogue>>
  static __device__ void multiply(const Operands& o, const Shared& shared, const Work& work,
                                  const Epilogue& epilogue, int warpgroup) {
    const ResultBuffers<C> buffers{shared.chunks()};
    const int warp = int(threadIdx.x) / 32;
    uint32_t index = work.first, number = 0;  // of the block's tiles
    wait_for_inputs();
    const auto multiplied = [&](Results& acc) {
      Product::clear(acc);
      Product::accumulate_tile(o, shared, Stage(number * uint32_t(work.steps)), work.steps, work.tile(index), warpgroup, acc);
      barrier_wait(buffers.empty(warp), (number & 1) ^ 1);
    };
    const auto put = [&](const Results& acc, int chunk) {
#pragma unroll
      for (int half = 0; half < C::kHalves; ++half)
        C::put_at(buffers.chunk(warp, chunk, half), acc[chunk / C::kAcross], C::first_block(chunk, half));
    };
    for (; index + work.stride < work.tiles; index += work.stride, ++number) {
      Results acc;
      multiplied(acc);
#pragma unroll
      for (int chunk = 0; chunk < C::kCount; ++chunk) put(acc, chunk);
      arrive(buffers.full(warp));
    }
    if (index >= work.tiles) return;
    C chunks(o, epilogue, work.tile(index), rows_of(warp), kChunksOfLast);
    Results acc;
    multiplied(acc);
#pragma unroll
    for (int chunk = 0; chunk < C::kCount; ++chunk) {
      put(acc, chunk);
      if (chunk + 1 == kChunksOfLast) arrive(buffers.full(warp));
    }
    __syncwarp();
    chunks.each(kChunksOfLast, C::kCount,
                [&](int chunk, int half) { chunks.memory = buffers.chunk(warp, chunk, half); });
  }

  // The warps that store share a tile's buffers, or seven of them its chunks, of every tile alike: so nobody waits for a
  // tile before the one before has come.
  template <class Operands, class Epilogue, class C = typename Product::template Chunks<Operands, Epilogue>>
  static __device__ void store(const Operands& o, const Shared& shared, const Work& work, const Epilogue& epilogue,
                               int epilogue_warp) {
    constexpr int kAtOnce = ResultBuffers<C>::kAtOnce;
    const ResultBuffers<C> buffers{shared.chunks()};
    wait_for_inputs();
    uint32_t number = 0;  // of the block's tiles
    for (uint32_t index = work.first; index < work.tiles; index += work.stride, ++number) {
      const int end = index + work.stride < work.tiles ? C::kCount : kChunksOfLast;
#pragma unroll 1
      for (int item = epilogue_warp; item / kWarps * kAtOnce < end; item += kEpilogueWarps) {
        const int warp = item % kWarps, first = item / kWarps * kAtOnce;
        C chunks(o, epilogue, work.tile(index), rows_of(warp), first);
        barrier_wait(buffers.full(warp), number & 1);
        chunks.each(first, min(first + kAtOnce, end),
                    [&](int chunk, int half) { chunks.memory = buffers.chunk(warp, chunk, half); });
        arrive(buffers.empty(warp));
      }
    }
  }

  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, int part_depth) {
    extern __shared__ __align__(1024) char memory[];
    static_assert(sizeof(typename Epilogue::Tile) == 2, "epilogue warps get halves");
    static_assert(Product::kStationaryX == (kKeptSteps > 0) && kKeptSteps <= Product::kMostKept, "what x is kept");
    constexpr int kKept = kKeptSteps > 0 ? Product::kKeptBarriers + kKeptSteps * Product::kKeptBytes : 0;
    const Shared shared{shared_address(memory) + kKept, shared_address(memory)};
    if (threadIdx.x == 32 * kLoader) {
      prefetch_map(*y_map);
      if constexpr (Operands::kDualGemm) prefetch_map(*o.y1_map);
      prefetch_map(*x_map);
    }
    const Work work = Product::work_of(o, part_depth);
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    if (threadIdx.x == 0)
      ResultBuffers<typename Product::template Chunks<Operands, Epilogue>>{shared.chunks()}.set_up();
    Product::set_up(shared);
    const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    // Registers: together what the launch has, 128 of 512 threads each or 168 of 384.
    if (warpgroup < 2) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kEpilogueWarps == 7 ? 136 : 184));
      multiply(o, shared, work, epilogue, warpgroup);
    } else if (kEpilogueWarps != 4 || warpgroup == 2) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kEpilogueWarps == 3 ? 136 : kEpilogueWarps == 4 ? 104 : 120));
      if (warp != kLoader)
        store(o, shared, work, epilogue, warp - kWarps - (warp > kLoader));
      else if (threadIdx.x == 32 * kLoader)
        typename Product::template Loader<Operands>{o, x_map, y_map, shared, work}.run();
    } else {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
      if (threadIdx.x == 32 * kLoader)
        typename Product::template Loader<Operands>{o, x_map, y_map, shared, work}.run();
    }
    Product::leave();
  }
};

}  // namespace aicf
