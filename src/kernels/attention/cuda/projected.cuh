// Attention of sequences of 128 positions on sm_90a together with the product that makes its queries, keys
// and values: a tile of the product is 128 rows, one sequence, by 64 columns each of q, k and v, one head or
// two. The warpgroups that multiply hand it on as halves through shared memory, where one more warpgroup
// attends as short.cuh does, while they multiply the next tile. Results are those of the product and of
// short.cuh apart, but never leave the multiprocessor between.
#pragma once

#include "attention/cuda/short.cuh"
#include "matmul/cuda/wgmma.cuh"

namespace aicf {

// q, k and v of a tile, each 128 rows of 128 bytes, swizzled, as short.cuh reads those of a head: `base` is
// where the head's columns begin.
template <class Traits>
struct ProjectedTile {
  static constexpr int kKeys = 128, kRowBytes = 128, kPart = kKeys * kRowBytes;
  static constexpr int kWidth = Traits::kDepth, kHeads = 64 / kWidth;
  static_assert(Traits::kDepth == Traits::kValueDepth && (kWidth == 32 || kWidth == 64) &&
                Traits::kKeys == kKeys);
  uint32_t base;
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k() const { return base + kPart; }
  __device__ __forceinline__ uint32_t v() const { return base + 2 * kPart; }
  static __device__ uint64_t descriptor(uint32_t address) { return attention::descriptor(address, 16); }
};

// Product: a WgmmaMatmul of two warpgroups that share a tile of 128 x 192. Operands: those of a product, and
// column_of(c): the column of y and of the bias that column c, a multiple of 2, of a row of tiles stands for.
template <class Product, class Traits>
struct ProjectedAttention : Product {
  using typename Product::Shared;
  using typename Product::Stage;
  using typename Product::Work;
  using T = typename Traits::Element;
  using Tile = ProjectedTile<Traits>;
  // Registers of a thread that multiplies, attends, loads: four items of 32 columns take more than two of 64.
  static constexpr int kMultiplies = Tile::kHeads > 1 ? 128 : 136, kAttends = Tile::kHeads > 1 ? 232 : 208,
                       kLoads = Tile::kHeads > 1 ? 24 : 32;
  static_assert(2 * kMultiplies + kAttends + kLoads == 4 * 128, "what a launch of 512 threads has");
  static constexpr int kWarps = Product::kConsumers / 32, kColumns = 2 * Product::kResults;
  static_assert(kColumns == 3 * 64 && Product::kRowBlocks == 1, "q, k and v of 64 columns");

  // Behind the stages: the stages' barriers, the tile, masks that are the same for all rows, the tile's bias,
  // and what says that the tile is there, and that it has been read and the next one's bias is there.
  struct Places {
    uint32_t base;
    char* memory;
    __device__ Places(const Shared& shared, char* memory)
        : base(shared.full(0) + kBarrierBytes), memory(memory + (base - shared.base)) {}
    static constexpr int kBarrierBytes = 1024, kMasks = 3 * Tile::kPart,
                         kBias = kMasks + 4 * Tile::kHeads * Tile::kKeys, kFull = kBias + 2 * kColumns;
    __device__ float* masks() const { return reinterpret_cast<float*>(memory + kMasks); }
    __device__ uint32_t bias() const { return base + kBias; }
    __device__ uint32_t full() const { return base + kFull; }
    __device__ uint32_t empty() const { return base + kFull + 8; }
  };
  static __device__ __forceinline__ void arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }

  // Of blocks 2 · pair and 2 · pair + 1 of 8 columns, those of the lane.
  struct Bias {
    uint32_t words[2];
    __device__ __forceinline__ void load(const Places& places, int pair) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        asm volatile("ld.shared.b32 %0, [%1];"
                     : "=r"(words[i])
                     : "r"(places.bias() + (pair * 16 + i * 8 + threadIdx.x % 4 * 2) * 2)
                     : "memory");
    }
  };

  // The warp's 16 rows, as halves with their bias.
  template <bool kHasBias>
  static __device__ __forceinline__ void put(const Places& places, const float (&acc)[Product::kResults]) {
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    Bias bias, next;
    if constexpr (kHasBias) bias.load(places, 0);
#pragma unroll
    for (int pair = 0; pair < kColumns / 16; ++pair) {
      if (kHasBias && pair + 1 < kColumns / 16) next.load(places, pair + 1);
      uint32_t halves[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        halves[i] = tile::pack<T>(acc[pair * 8 + i * 2], acc[pair * 8 + i * 2 + 1]);
        if constexpr (kHasBias) halves[i] = tile::add_halves(T(), halves[i], bias.words[i / 2]);
      }
      const uint32_t block = pair % 4 * 2 + lane / 16;
      store_matrices(places.base + pair / 4 * Tile::kPart + row * Tile::kRowBytes + ((block ^ lane % 8) << 4),
                     halves);
      bias = next;
    }
  }

  template <bool kHasBias>
  static __device__ void multiply(const Shared& shared, const Places& places, const Work& work,
                                  int warpgroup) {
    wait_for_inputs();
    uint32_t number = 0;  // of the block's tiles
    for (uint32_t index = work.first; index < work.tiles; index += work.stride, ++number) {
      float acc[1][Product::kResults];
#pragma unroll
      for (int j = 0; j < Product::kResults; ++j) acc[0][j] = 0.0f;
      Product::accumulate(shared, Stage(number * uint32_t(work.steps)), work.steps, warpgroup, acc);
      barrier_wait(places.empty(), number & 1);
      put<kHasBias>(places, acc[0]);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      arrive(places.full());
    }
  }

  // A tile's bias, two columns a thread.
  template <class Operands>
  static __device__ __forceinline__ uint32_t fetch_bias(const T* bias, const Work& work, uint32_t index) {
    const int column = int(threadIdx.x) % 128 * 2;
    if (!Operands::kHasBias || column >= kColumns || index >= work.tiles) return 0;
    return *reinterpret_cast<const uint32_t*>(
        bias + Operands::column_of(int(work.tile(index).column) * kColumns + column));
  }
  static __device__ __forceinline__ void put_bias(const Places& places, uint32_t word) {
    if (threadIdx.x % 128 * 2 < kColumns)
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(places.bias() + threadIdx.x % 128 * 4), "r"(word)
                   : "memory");
  }

  // What each key adds, for every head of the tile.
  static __device__ __forceinline__ void load_masks(const attention::Call<Traits>& call, float* masks,
                                                    const MatmulTile& tile) {
    if constexpr (Traits::kMaskPerKey) {
      const int key = int(threadIdx.x) % 128;
      float values[Tile::kHeads];
#pragma unroll
      for (int head = 0; head < Tile::kHeads; ++head)
        values[head] = attention::Scores<Traits>::template mask_value<float>(
            call.mask[tile.row * call.mask_view.batch +
                      (tile.column * Tile::kHeads + head) * call.mask_view.head +
                      key * call.mask_view.column]);
      attention::sync_named(1, 128);  // those before have been read
#pragma unroll
      for (int head = 0; head < Tile::kHeads; ++head) masks[head * Tile::kKeys + key] = values[head];
      attention::sync_named(1, 128);
    }
  }

  // The heads of a tile, each 64 rows and 64 rows. The matrix units are busy with the product: what is issued
  // to them waits. So products with keys are issued two items ahead, and values are added behind the next
  // item's weights.
  static __device__ __forceinline__ void attend_tile(const attention::Call<Traits>& call, uint32_t base,
                                                     const float* masks, const MatmulTile& tile) {
    constexpr int kItems = 2 * Tile::kHeads;
    const auto shared_of = [&](int item) { return Tile{base + item / 2 * Tile::kWidth * 2}; };
    const auto place_of = [&](int item) {
      return attention::Place{0, int32_t(tile.column) * Tile::kHeads + item / 2, int32_t(tile.row)};
    };
    float s[2][Tile::kKeys / 2], o[Tile::kWidth / 2];
    uint32_t weights[Tile::kKeys / 16][4];
    attention::Rows before;
    attention::multiply_keys<Traits>(s[0], shared_of(0), 0);
    attention::multiply_keys<Traits>(s[1], shared_of(1), 1);
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      // Behind this item's keys: the values before and the keys after.
      if (item == 0 || item + 1 == kItems)
        attention::wait_wgmma<1>();
      else
        attention::wait_wgmma<2>();
      attention::hold(s[item % 2]);
      attention::Rows rows;
      attention::weigh_rows(call, s[item % 2], rows, masks + item / 2 * Tile::kKeys, place_of(item),
                            item % 2);
      if (item > 0) {
        if (item + 1 == kItems)
          attention::wait_wgmma<0>();
        else
          attention::wait_wgmma<1>();
        attention::hold(o);
        attention::store_tile(call, o, before, place_of(item - 1), (item - 1) % 2);
      }
      attention::pack_rows<T>(weights, s[item % 2]);
      attention::add_values(call, shared_of(item), weights, o, rows);
      before = rows;
      if (item + 2 < kItems) attention::multiply_keys<Traits>(s[item % 2], shared_of(item + 2), item % 2);
    }
    attention::wait_wgmma<0>();
    attention::hold(o);
    attention::store_tile(call, o, before, place_of(kItems - 1), 1);
  }

  template <class Operands>
  static __device__ void attend(const attention::Call<Traits>& call, const T* bias, const Places& places,
                                const Work& work) {
    wait_for_inputs();
    put_bias(places, fetch_bias<Operands>(bias, work, work.first));
    arrive(places.empty());
    uint32_t number = 0;
    for (uint32_t index = work.first; index < work.tiles; index += work.stride, ++number) {
      const MatmulTile tile = work.tile(index);
      load_masks(call, places.masks(), tile);
      const uint32_t next_bias = fetch_bias<Operands>(bias, work, index + work.stride);
      barrier_wait(places.full(), number & 1);
      attend_tile(call, places.base, places.masks(), tile);
      put_bias(places, next_bias);
      arrive(places.empty());
    }
  }

  template <class Operands>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const T* bias, const attention::Call<Traits>& call) {
    extern __shared__ __align__(1024) char memory[];
    const Shared shared{shared_address(memory)};
    const Places places(shared, memory);
    constexpr int kLoader = Product::kConsumers + 128;
    if (threadIdx.x == kLoader) {
      prefetch_map(*y_map);
      prefetch_map(*x_map);
    }
    const Work work = Product::work_of(o, int(o.k));
    const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
    if (threadIdx.x == 0) {
      barrier_init(places.full(), kWarps);
      barrier_init(places.empty(), 4);
    }
    Product::set_up(shared);
    if (warpgroup < 2) {
      if (kMultiplies > 128) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMultiplies));
      multiply<Operands::kHasBias>(shared, places, work, warpgroup);
    } else if (warpgroup == 2) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kAttends));
      attend<Operands>(call, bias, places, work);
    } else {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kLoads));
      if (threadIdx.x == kLoader)
        typename Product::template Loader<Operands>{o, x_map, y_map, shared, work}.run();
    }
  }
};

}  // namespace aicf
