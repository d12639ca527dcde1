// Attention of half types with wgmma on Hopper (sm_90a) where one tile holds all keys: no running maxima, no
// ring. A block is one warpgroup; the copy engine brings its queries, keys and values once, then it takes 64
// query rows after another. Three or four blocks share a multiprocessor, so that one's loads and
// exponentials run beside another's products.
//
// Order, for every row alone: all keys at once.
#pragma once

#include "attention/cuda/mma.cuh"
#include "attention/cuda/wgmma.cuh"

namespace aicf::attention {

// d[64 × 32] += a b, a in registers, b in shared memory with one row per step of the reduction.
#define AICF_WGMMA_32(type)                                                                                 \
  __device__ __forceinline__ void wgmma_registers(float(&d)[16], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." #type "." #type                              \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                \
                 "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;"                                                   \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),      \
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),  \
                   "+f"(d[14]), "+f"(d[15])                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                     \
  }
AICF_WGMMA_32(f16)
AICF_WGMMA_32(bf16)
#undef AICF_WGMMA_32

// Tiles of rows of kWidth columns, swizzled over whole rows; then a mask that is the same for all rows, and
// the barriers.
template <class Traits>
struct ShortShared {
  static constexpr int kKeys = Traits::kKeys;
  static constexpr int kWidth = Traits::kDepth <= 32 && Traits::kValueDepth <= 32 ? 32 : 64;
  static constexpr int kRowBytes = 2 * kWidth;
  static constexpr int kK = Traits::kRows * kRowBytes, kV = kK + kKeys * kRowBytes;
  static constexpr int kMask = kV + kKeys * kRowBytes;
  static constexpr int kBarriers = kMask + (Traits::kMaskPerKey ? 4 * kKeys : 0);
  uint32_t base;
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k() const { return base + kK; }
  __device__ __forceinline__ uint32_t v() const { return base + kV; }
  __device__ __forceinline__ uint32_t k_full() const { return base + kBarriers; }  // and the queries
  __device__ __forceinline__ uint32_t v_full() const { return base + kBarriers + 8; }
  // Of rows from `address` on, eight of them a swizzled block; one block holds all columns.
  static __device__ __forceinline__ uint64_t descriptor(uint32_t address) {
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(8 * kRowBytes >> 4) << 32 |
           uint64_t(kWidth == 64 ? 1 : 2) << 62;
  }
};

// Sums of a row's weights as they are multiplied with the values, by products with ones in four chains: every
// lane gets those of its two rows.
template <class T, int kSteps>
__device__ __forceinline__ void sum_weights(const uint32_t (&weights)[kSteps][4], Rows& rows) {
  constexpr int kChains = 4;
  const uint32_t ones = pack<T>(1.0f, 1.0f);
  float sums[kChains][4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) multiply_add<T>(sums[step % kChains], weights[step], ones, ones);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    rows.sum[half] = (sums[0][2 * half] + sums[1][2 * half]) + (sums[2][2 * half] + sums[3][2 * half]);
}

// Issues the products of 64 rows of queries, `tile` of those in shared memory, with all keys. Shared: as
// ShortShared says where tiles are.
template <class Traits, class Shared>
__device__ __forceinline__ void multiply_keys(float (&s)[Shared::kKeys / 2], const Shared& shared, int tile) {
  fence_wgmma();
#pragma unroll
  for (int step = 0; step < (Traits::kDepth + 15) / 16; ++step)
    wgmma_shared(s, Shared::descriptor(shared.q() + tile * 64 * Shared::kRowBytes + step * 32),
                 Shared::descriptor(shared.k() + step * 32), step > 0, typename Traits::Element());
  commit_wgmma();
}

// The lane's first row of them.
template <class Traits>
__device__ __forceinline__ int32_t row_of(const Place& place, int tile) {
  const int thread = int(threadIdx.x) % 128;
  return place.tile * Traits::kRows + tile * 64 + thread / 32 * 16 + thread % 32 / 4;
}

// Products become weights, with their maxima and sums.
template <class Traits, int kCount>
__device__ __forceinline__ void weigh_rows(const Call<Traits>& call, float (&s)[kCount], Rows& rows,
                                           const float* mask_tile, const Place& place, int tile) {
  constexpr int kKeys = 2 * kCount;
  const int32_t row = row_of<Traits>(place, tile);
  SeenKeys<Traits> seen;
  seen.set(0, call, row, row < call.queries);
  seen.set(1, call, row + 8, row + 8 < call.queries);
  const bool hides = __any_sync(0xffffffffu, seen.hides_any(0, kKeys));
  const int32_t key = int(threadIdx.x) % 4 * 2;
  if constexpr (Traits::kMaskPerKey) {
    finish_scores<Traits>(
        s, [&](int at) { return *reinterpret_cast<const float2*>(mask_tile + key + at * 8); }, key, seen,
        hides);
  } else {
    const typename Traits::Mask* mask = call.mask;
    if (Traits::kHasMask)
      mask +=
          place.batch * call.mask_view.batch + place.head * call.mask_view.head + row * call.mask_view.row;
    const typename Traits::Mask* const line[2] = {mask, mask + 8 * call.mask_view.row};
    finish_scores<Traits>(s, line, call.mask_view.column, key, seen, hides);
  }
  float scale[2];
  weigh<Traits>(s, rows, scale);
}

template <class T, int kCount>
__device__ __forceinline__ void pack_rows(uint32_t (&weights)[kCount / 8][4], const float (&s)[kCount]) {
#pragma unroll
  for (int step = 0; step < kCount / 8; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[step][i] = pack<T>(s[step * 8 + 2 * i], s[step * 8 + 2 * i + 1]);
}

// Issues the sums of values weighted so, and totals the weights meanwhile.
template <class Traits, class Shared>
__device__ __forceinline__ void add_values(const Call<Traits>& call, const Shared& shared,
                                           const uint32_t (&weights)[Shared::kKeys / 16][4],
                                           float (&o)[Shared::kWidth / 2], Rows& rows) {
  using T = typename Traits::Element;
#pragma unroll
  for (float& x : o) x = 0;
  fence_wgmma();
#pragma unroll
  for (int step = 0; step < Shared::kKeys / 16; ++step)
    wgmma_registers(o, weights[step], Shared::descriptor(shared.v() + step * 16 * Shared::kRowBytes), T());
  commit_wgmma();
  // Fewer instructions and registers; deeper heads are better off with fewer blocks on a multiprocessor.
  if (Shared::kWidth == 32 && call.lse == nullptr)
    sum_weights<T>(weights, rows);
  else
    total_sums(rows);
}

template <class Traits, int kCount>
__device__ __forceinline__ void store_tile(const Call<Traits>& call, const float (&o)[kCount],
                                           const Rows& rows, const Place& place, int tile) {
  const int64_t b = place.batch, h = place.head;
  const int32_t row = row_of<Traits>(place, tile);
  store_rows<Traits>(o, rows, call, call.out + b * call.out_view.batch + h * call.out_view.head, row);
  store_lse(rows, call, b * call.heads + h, row);
}

// 64 rows of the block's head; `tile`: of the block.
template <class Traits>
__device__ __forceinline__ void attend_rows(const Call<Traits>& call, const ShortShared<Traits>& shared,
                                            const float* mask_tile, const Place& place, int tile) {
  using Shared = ShortShared<Traits>;
  float s[Shared::kKeys / 2], o[Shared::kWidth / 2];
  multiply_keys<Traits>(s, shared, tile);
  wait_wgmma<0>();
  hold(s);
  Rows rows;
  weigh_rows(call, s, rows, mask_tile, place, tile);
  uint32_t weights[Shared::kKeys / 16][4];
  pack_rows<typename Traits::Element>(weights, s);
  wait_barrier(shared.v_full(), 0);
  add_values(call, shared, weights, o, rows);
  wait_wgmma<0>();
  hold(o);
  store_tile(call, o, rows, place, tile);
}

template <class Traits>
__device__ __forceinline__ void attend_short(const Call<Traits>& call, const CUtensorMap& q_map,
                                             const CUtensorMap& k_map, const CUtensorMap& v_map) {
  using Shared = ShortShared<Traits>;
  static_assert(Traits::kKeys == 128 && Traits::kRows % 64 == 0 && Traits::kDepth <= 64 &&
                Traits::kValueDepth <= 64);
  extern __shared__ __align__(1024) char memory[];
  const uint32_t start = address_of(memory);
  const Shared shared{(start + 1023) & ~1023u};
  float* const mask_tile = reinterpret_cast<float*>(memory + (shared.base - start) + Shared::kMask);
  const Place place = place_of_block(call);
  if (threadIdx.x == 0) {
    prefetch_map(q_map);
    prefetch_map(k_map);
    prefetch_map(v_map);
    init_barrier(shared.k_full(), 1);
    init_barrier(shared.v_full(), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  wait_for_inputs();
  launch_dependents();

  const int32_t kv_head = place.head / call.group;
  if (threadIdx.x == 0) {
    expect_bytes(shared.k_full(), (Traits::kRows + Traits::kKeys) * Shared::kRowBytes);
    copy_box(shared.k(), k_map, shared.k_full(), 0, 0, kv_head, place.batch);
    copy_box(shared.q(), q_map, shared.k_full(), 0, place.tile * Traits::kRows, place.head, place.batch);
    expect_bytes(shared.v_full(), Traits::kKeys * Shared::kRowBytes);
    copy_box(shared.v(), v_map, shared.v_full(), 0, 0, kv_head, place.batch);
  }
  if constexpr (Traits::kMaskPerKey) {
    const int32_t key = int(threadIdx.x);
    const typename Traits::Mask* const mask =
        call.mask + place.batch * call.mask_view.batch + place.head * call.mask_view.head;
    mask_tile[key] = key < call.keys
                         ? Scores<Traits>::template mask_value<float>(mask[key * call.mask_view.column])
                         : 0.0f;
    __syncthreads();
  }
  wait_barrier(shared.k_full(), 0);
#pragma unroll 1
  for (int tile = 0; tile < Traits::kRows / 64; ++tile) {
    if (place.tile * Traits::kRows + tile * 64 >= call.queries) break;
    attend_rows(call, shared, mask_tile, place, tile);
  }
}

}  // namespace aicf::attention
