// Attention of half types with wgmma on Hopper (sm_90a): FlashAttention-3 (Shah et al. 2024). One warpgroup
// lets the copy engine bring blocks of 128 keys and values into a ring in shared memory; two or three
// warpgroups of 64 query rows each take turns on the matrix units, so that one computes weights while another
// multiplies, and each computes the products of the next keys while it turns the last ones into weights.
//
// Order, for every row alone: blocks of 128 keys from the last visible one to key 0.
#pragma once

#include "attention/fragments.cuh"

namespace aicf::attention {

// ---- copy engine and its barriers ----

__device__ __forceinline__ uint32_t address_of(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits until the phase of the given parity is over.
__device__ __forceinline__ void wait_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int column,
                                         int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6}], "
      "[%2];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void sync_named(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_named(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- wgmma ----

// Descriptor of a tile in shared memory (PTX ISA, "matrix descriptor"): rows of 128 bytes, 128-byte swizzle,
// 8 rows are 1,024 bytes; `leading` is the distance in bytes between 64-column halves of an operand whose
// rows are the reduction.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(1024 >> 4) << 32 |
         uint64_t(1) << 62;
}
__device__ __forceinline__ void fence_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Accumulators may not be touched while a wgmma is in flight: the compiler must not move their uses across
// this.
template <int kCount>
__device__ __forceinline__ void hold(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define AICF_ACCUMULATORS_64                                                                                \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),           \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
      "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),            \
      "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),            \
      "+f"(d[30]), "+f"(d[31])
#define AICF_WGMMA_64(type)                                                                                 \
  /* d[64 × 64] = or += a b^T, both in shared memory with the reduction along rows. */                      \
  __device__ __forceinline__ void wgmma_shared(float(&d)[32], uint64_t a, uint64_t b, bool adds, type) {    \
    asm volatile(                                                                                           \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                        \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type                                       \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                          \
        "%32, %33, p, 1, 1, 0, 0;\n}"                                                                       \
        : AICF_ACCUMULATORS_64                                                                              \
        : "l"(a), "l"(b), "r"(int(adds)));                                                                  \
  }                                                                                                         \
  /* d[64 × 64] += a b, a in registers, b in shared memory with one row per step of the reduction. */       \
  __device__ __forceinline__ void wgmma_registers(float(&d)[32], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type                              \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "  \
                 "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                       \
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                                   \
                 : AICF_ACCUMULATORS_64                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                     \
  }
AICF_WGMMA_64(f16)
AICF_WGMMA_64(bf16)
#undef AICF_WGMMA_64
#undef AICF_ACCUMULATORS_64

#define AICF_ACCUMULATORS_128                                                                               \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),           \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
      "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),            \
      "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),            \
      "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),            \
      "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),            \
      "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),            \
      "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),            \
      "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define AICF_WGMMA_128(type)                                                                                \
  /* d[64 × 128] = or += a b^T, both in shared memory with the reduction along rows. */                     \
  __device__ __forceinline__ void wgmma_shared(float(&d)[64], uint64_t a, uint64_t b, bool adds, type) {    \
    asm volatile(                                                                                           \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                        \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type                                      \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "   \
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "   \
        "%59, %60, %61, %62, %63}, "                                                                        \
        "%64, %65, p, 1, 1, 0, 0;\n}"                                                                       \
        : AICF_ACCUMULATORS_128                                                                             \
        : "l"(a), "l"(b), "r"(int(adds)));                                                                  \
  }                                                                                                         \
  /* d[64 × 128] += a b, a in registers, b in shared memory with one row per step of the reduction. */      \
  __device__ __forceinline__ void wgmma_registers(float(&d)[64], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type                             \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "  \
                 "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "    \
                 "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "    \
                 "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                                 \
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                                                   \
                 : AICF_ACCUMULATORS_128                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                     \
  }
AICF_WGMMA_128(f16)
AICF_WGMMA_128(bf16)
#undef AICF_WGMMA_128
#undef AICF_ACCUMULATORS_128

// ---- the kernel ----

// Shared memory: tiles of 128 rows as 64-column halves of 16 KiB each, at multiples of 1,024 bytes; then the
// barriers.
template <class Traits>
struct HopperShared {
  static constexpr int kGroups = Traits::kRows / 64;  // warpgroups that multiply
  static constexpr int kKeys = 128, kStages = 2, kHalf = kKeys * 128, kQHalf = Traits::kRows * 128;
  static constexpr int kDepthHalves = (Traits::kDepth + 63) / 64,
                       kValueHalves = (Traits::kValueDepth + 63) / 64;
  static constexpr int kQ = 0, kK = kQ + kDepthHalves * kQHalf, kV = kK + kStages * kDepthHalves * kHalf;
  static constexpr int kBarriers = kV + kStages * kValueHalves * kHalf;
  uint32_t base;
  __device__ __forceinline__ uint32_t q() const { return base + kQ; }
  __device__ __forceinline__ uint32_t k(int stage) const { return base + kK + stage * kDepthHalves * kHalf; }
  __device__ __forceinline__ uint32_t v(int stage) const { return base + kV + stage * kValueHalves * kHalf; }
  __device__ __forceinline__ uint32_t q_full() const { return base + kBarriers; }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return base + kBarriers + 8 + 8 * stage; }
  __device__ __forceinline__ uint32_t k_empty(int stage) const { return base + kBarriers + 24 + 8 * stage; }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return base + kBarriers + 40 + 8 * stage; }
  __device__ __forceinline__ uint32_t v_empty(int stage) const { return base + kBarriers + 56 + 8 * stage; }
};

// Where in the ring the next block is, and the parity of its barriers' phase.
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    stage ^= 1;
    if (stage == 0) parity ^= 1;
  }
};

template <class Traits>
struct Consumer {
  using T = typename Traits::Element;
  using Shared = HopperShared<Traits>;
  static constexpr int kKeys = Shared::kKeys, kColumns = Shared::kValueHalves * 64;

  const Call<Traits>& call;
  const Shared shared;
  const typename Traits::Mask* mask[2];
  int32_t visible[2];
  int group, lane;
  Rows rows;
  Turn key_turn, value_turn;
  float o[kColumns / 2];
  uint32_t weights[kKeys / 16][4];

  // Issues the products with the next block of keys.
  __device__ __forceinline__ void multiply_keys(float (&s)[kKeys / 2]) {
    const uint32_t q = shared.q() + group * 64 * 128, k = shared.k(key_turn.stage);
#pragma unroll
    for (int step = 0; step < Shared::kDepthHalves * 4; ++step) {
      const uint32_t half = step / 4, at = step % 4 * 32;
      wgmma_shared(s, descriptor(q + half * Shared::kQHalf + at, 16),
                   descriptor(k + half * Shared::kHalf + at, 16), step > 0, T());
    }
    commit_wgmma();
  }

  // Issues the sums of values weighted by `weights`.
  __device__ __forceinline__ void add_values() {
    const uint32_t v = shared.v(value_turn.stage);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      wgmma_registers(o, weights[step], descriptor(v + step * 16 * 128, Shared::kHalf), T());
    commit_wgmma();
  }

  template <bool kHides>
  __device__ __forceinline__ void weigh_block(float (&s)[kKeys / 2], int32_t block, float (&scale)[2]) {
    const int32_t key = block * kKeys + lane % 4 * 2;
    finish_scores<Traits>(s, mask, call.mask_view.column, key, visible, kHides);
    weigh<Traits>(s, rows, scale);
  }

  __device__ __forceinline__ void keep_weights(const float (&s)[kKeys / 2]) {
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      weights[step][0] = pack<T>(s[step * 8 + 0], s[step * 8 + 1]);
      weights[step][1] = pack<T>(s[step * 8 + 2], s[step * 8 + 3]);
      weights[step][2] = pack<T>(s[step * 8 + 4], s[step * 8 + 5]);
      weights[step][3] = pack<T>(s[step * 8 + 6], s[step * 8 + 7]);
    }
  }

  // A warpgroup may issue its products when the one before has issued its own (named barriers from 1 on).
  __device__ __forceinline__ void wait_turn() const { sync_named(1 + group, 256); }
  __device__ __forceinline__ void pass_turn() const {
    arrive_named(group + 1 < Shared::kGroups ? 2 + group : 1, 256);
  }

  __device__ __forceinline__ void first_block(int32_t block) {
    float s[kKeys / 2];
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    wait_turn();
    fence_wgmma();
    multiply_keys(s);
    pass_turn();
    wait_wgmma<0>();
    hold(s);
    if (lane == 0) arrive(shared.k_empty(key_turn.stage));
    key_turn.next();
    float scale[2];
    weigh_block<true>(s, block, scale);
    keep_weights(s);
  }

  template <bool kHides>
  __device__ __forceinline__ void next_block(int32_t block) {
    float s[kKeys / 2], scale[2];
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    wait_turn();
    fence_wgmma();
    multiply_keys(s);
    wait_barrier(shared.v_full(value_turn.stage), value_turn.parity);
    add_values();
    pass_turn();
    wait_wgmma<1>();
    hold(s);
    if (lane == 0) arrive(shared.k_empty(key_turn.stage));
    key_turn.next();
    weigh_block<kHides>(s, block, scale);
    wait_wgmma<0>();
    hold(o);
    if (lane == 0) arrive(shared.v_empty(value_turn.stage));
    value_turn.next();
    keep_weights(s);
    rescale(o, scale);
  }

  __device__ __forceinline__ void last_values() {
    wait_barrier(shared.v_full(value_turn.stage), value_turn.parity);
    fence_wgmma();
    add_values();
    wait_wgmma<0>();
    hold(o);
  }
};

// A block's tile of rows and how many blocks of keys they see.
struct Job {
  Place place;
  int32_t first, blocks;
};

template <class Traits>
__device__ __forceinline__ Job job_of_block(const Call<Traits>& call) {
  constexpr int kKeys = HopperShared<Traits>::kKeys;
  Job job;
  job.place = place_of_block(call);
  job.first = job.place.tile * Traits::kRows;
  const int32_t left = call.queries - job.first;
  const int32_t end = visible_keys(call, job.first + (left < Traits::kRows ? left : Traits::kRows) - 1);
  job.blocks = end > 0 ? (end + kKeys - 1) / kKeys : 0;
  return job;
}

// Brings what the consumers need, in the order in which they need it.
template <class Traits>
struct Producer {
  using Shared = HopperShared<Traits>;
  const Shared shared;
  const CUtensorMap &q_map, &k_map, &v_map;
  int32_t group;  // query heads per head of k and v
  Turn key_turn, value_turn;

  __device__ __forceinline__ void load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int halves,
                                       int half_bytes, int32_t row, int32_t head, int32_t batch) const {
    expect_bytes(barrier, halves * half_bytes);
    for (int half = 0; half < halves; ++half)
      copy_box(to + half * half_bytes, map, barrier, half * 64, row, head, batch);
  }

  __device__ __forceinline__ void load_tile(const Job& job) {
    const int32_t kv_head = job.place.head / group, batch = job.place.batch;
    load(shared.q(), q_map, shared.q_full(), Shared::kDepthHalves, Shared::kQHalf, job.first, job.place.head,
         batch);
    for (int32_t block = job.blocks - 1; block >= -1; --block) {
      if (block >= 0) {
        wait_barrier(shared.k_empty(key_turn.stage), key_turn.parity ^ 1);
        load(shared.k(key_turn.stage), k_map, shared.k_full(key_turn.stage), Shared::kDepthHalves,
             Shared::kHalf, block * Shared::kKeys, kv_head, batch);
        key_turn.next();
      }
      if (block + 1 < job.blocks) {
        wait_barrier(shared.v_empty(value_turn.stage), value_turn.parity ^ 1);
        load(shared.v(value_turn.stage), v_map, shared.v_full(value_turn.stage), Shared::kValueHalves,
             Shared::kHalf, (block + 1) * Shared::kKeys, kv_head, batch);
        value_turn.next();
      }
    }
  }
};

template <class Traits>
__device__ __forceinline__ void consume_tile(Consumer<Traits>& consumer, const Job& job) {
  using Shared = HopperShared<Traits>;
  using T = typename Traits::Element;
  const Call<Traits>& call = consumer.call;
  const int64_t b = job.place.batch, h = job.place.head;
  const int32_t group_row = job.first + consumer.group * 64;
  const int32_t row = group_row + int(threadIdx.x) % 128 / 32 * 16 + consumer.lane / 4;
  consumer.rows = Rows();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t at = row + 8 * half;
    consumer.visible[half] = at < call.queries ? visible_keys(call, at) : 0;
    if (Traits::kHasMask)
      consumer.mask[half] =
          call.mask + b * call.mask_view.batch + h * call.mask_view.head + at * call.mask_view.row;
  }
#pragma unroll
  for (float& x : consumer.o) x = 0;
  if (job.blocks > 0) {
    wait_barrier(consumer.shared.q_full(), 0);
    int32_t block = job.blocks - 1;
    consumer.first_block(block--);
    // The keys that even the first of this warpgroup's rows sees need no comparison.
    const int32_t seen = visible_keys(call, group_row);
    const int32_t all_visible = (seen > 0 ? seen : 0) / Shared::kKeys;
#pragma unroll 1
    for (; block >= all_visible; --block) consumer.template next_block<true>(block);
#pragma unroll 1
    for (; block >= 0; --block) consumer.template next_block<false>(block);
    consumer.last_values();
  }
  total_sums(consumer.rows);
  store_rows<Traits>(consumer.o, consumer.rows, call,
                     call.out + b * call.out_view.batch + h * call.out_view.head, row);
  store_lse(consumer.rows, call, b * call.heads + h, row);
}

template <class Traits>
__device__ __forceinline__ void attend_hopper(const Call<Traits>& call, const CUtensorMap& q_map,
                                              const CUtensorMap& k_map, const CUtensorMap& v_map) {
  using Shared = HopperShared<Traits>;
  static_assert(Traits::kRows == 128 || Traits::kRows == 192);
  extern __shared__ __align__(1024) char memory[];
  const Shared shared{(address_of(memory) + 1023) & ~1023u};
  // From one lane, so that the compiler sees that a warp does not diverge: it would serialise wgmma.
  const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
  const Job job = job_of_block(call);

  if (threadIdx.x == 0) {
    prefetch_map(q_map);
    prefetch_map(k_map);
    prefetch_map(v_map);
    constexpr int kWarps = 4 * Shared::kGroups;  // that consume
    init_barrier(shared.q_full(), 1);
    for (int stage = 0; stage < Shared::kStages; ++stage) {
      init_barrier(shared.k_full(stage), 1);
      init_barrier(shared.v_full(stage), 1);
      init_barrier(shared.k_empty(stage), kWarps);
      init_barrier(shared.v_empty(stage), kWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  wait_for_inputs();
  launch_dependents();

  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shared::kGroups == 2 ? 24 : 32));
    if (threadIdx.x == 0 && job.blocks > 0)
      Producer<Traits>{shared, q_map, k_map, v_map, call.group}.load_tile(job);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Shared::kGroups == 2 ? 240 : 160));
    Consumer<Traits> consumer{call, shared, {nullptr, nullptr}};
    consumer.group = warpgroup - 1;
    consumer.lane = int(threadIdx.x) % 32;
    if (consumer.group == Shared::kGroups - 1) consumer.pass_turn();
    consume_tile(consumer, job);
  }
}

}  // namespace aicf::attention
