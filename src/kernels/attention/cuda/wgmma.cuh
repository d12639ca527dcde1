// Attention of half types with wgmma on Hopper (sm_90a): FlashAttention-3 (Shah et al. 2024). The launch is persistent:
// a block takes one tile of rows after another. One warpgroup lets the copy engine bring blocks of 128 keys and values
// into a ring in shared memory, running ahead into the next tile; two or three warpgroups of 64 query rows each take
// turns on the matrix units, so that one computes weights while another multiplies, and each computes the products of
// the next keys while it turns the last ones into weights. A warpgroup leaves out the blocks that its rows do not see.
//
// Order, for every row alone: blocks of 128 keys from the last visible one to the first.
#pragma once

#include "attention/cuda/hopper.cuh"

namespace aicf::attention {

// Shared memory: tiles of 128 rows as 64-column halves of 16 KiB each, at multiples of 1,024 bytes; then the
// barriers.
template <class Traits>
struct HopperShared {
  static constexpr int kGroups = Traits::kRows / 64;  // warpgroups that multiply
  static constexpr int kKeys = 128, kStages = 2, kHalf = kKeys * 128, kQHalf = Traits::kRows * 128;
  static constexpr int kDepthHalves = (Traits::kDepth + 63) / 64,
                       kValueHalves = (Traits::kValueDepth + 63) / 64;
  static constexpr int kK = kStages * kDepthHalves * kQHalf, kV = kK + kStages * kDepthHalves * kHalf;
  static constexpr int kBarriers = kV + kStages * kValueHalves * kHalf;
  uint32_t base;
  __device__ __forceinline__ uint32_t q(int stage) const { return base + stage * kDepthHalves * kQHalf; }
  __device__ __forceinline__ uint32_t k(int stage) const { return base + kK + stage * kDepthHalves * kHalf; }
  __device__ __forceinline__ uint32_t v(int stage) const { return base + kV + stage * kValueHalves * kHalf; }
  __device__ __forceinline__ uint32_t barrier(int number) const { return base + kBarriers + 8 * number; }
  __device__ __forceinline__ uint32_t q_full(int stage) const { return barrier(stage); }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return barrier(2 + stage); }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return barrier(4 + stage); }
  __device__ __forceinline__ uint32_t q_empty(int stage) const { return barrier(6 + stage); }
  __device__ __forceinline__ uint32_t k_empty(int stage) const { return barrier(8 + stage); }
  __device__ __forceinline__ uint32_t v_empty(int stage) const { return barrier(10 + stage); }
  __device__ void set_up() const {
    for (int number = 0; number < 12; ++number) init_barrier(barrier(number), number < 6 ? 1 : 4 * kGroups);
    publish_barriers();
  }
};

// Of a product with values so deep.
template <int kDepth>
constexpr int kProductColumns = kDepth <= 48 ? 48 : kDepth <= 64 ? 64 : kDepth <= 80 ? 80 : kDepth <= 96 ? 96 : 128;

template <class Traits>
struct Consumer {
  using T = typename Traits::Element;
  using Shared = HopperShared<Traits>;
  static constexpr int kKeys = Shared::kKeys, kColumns = kProductColumns<Traits::kValueDepth>;
  // What a lane holds of a row's mask while products run; beside more columns there are too few registers.
  static constexpr bool kHoldsMask = Traits::kHasMask && kColumns <= 64;
  using Held = typename HeldMask<kHoldsMask, Traits, kKeys / 2>::Type;

  const Call<Traits>& call;
  const Shared shared;
  const typename Traits::Mask* mask[2];
  SeenKeys<Traits> seen;
  int group, lane;
  Rows rows;
  Ring<Shared::kStages> row_turn, key_turn, value_turn;
  float o[kColumns / 2];
  uint32_t weights[kKeys / 16][4];

  // Issues the products with the next block of keys.
  __device__ __forceinline__ void multiply_keys(float (&s)[kKeys / 2]) {
    const uint32_t q = shared.q(row_turn.stage) + group * 64 * 128, k = shared.k(key_turn.stage);
#pragma unroll
    for (int step = 0; step < (Traits::kDepth + 15) / 16; ++step) {
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

  // Of the block of keys; its products need not wait for it.
  __device__ __forceinline__ void load_mask(Held& held, int32_t block) const {
    if constexpr (kHoldsMask)
      held.load(mask, call.mask_view.column, block * kKeys + lane % 4 * 2, seen);
  }
  template <bool kHides>
  __device__ __forceinline__ void weigh_block(float (&s)[kKeys / 2], const Held& held, int32_t block,
                                              float (&scale)[2]) {
    const int32_t key = block * kKeys + lane % 4 * 2;
    if constexpr (kHoldsMask)
      finish_scores<Traits>(s, held, key, seen, kHides);
    else
      finish_scores<Traits>(s, mask, call.mask_view.column, key, seen, kHides);
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

  __device__ __forceinline__ void release_keys() {
    if (lane == 0) arrive(shared.k_empty(key_turn.stage));
    key_turn.next();
  }
  __device__ __forceinline__ void release_values() {
    if (lane == 0) arrive(shared.v_empty(value_turn.stage));
    value_turn.next();
  }

  // A block that none of the warpgroup's rows sees. It waits for what it leaves out, so that it stays in step.
  __device__ __forceinline__ void skip_block() {
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    release_keys();
    wait_turn<Shared::kGroups>(group);
    pass_turn<Shared::kGroups>(group);
    wait_barrier(shared.v_full(value_turn.stage), value_turn.parity);
    release_values();
  }

  __device__ __forceinline__ void first_block(int32_t block) {
    float s[kKeys / 2];
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    wait_turn<Shared::kGroups>(group);
    fence_wgmma();
    multiply_keys(s);
    Held held;
    load_mask(held, block);
    wait_wgmma<0>();
    hold(s);
    pass_turn<Shared::kGroups>(group);
    release_keys();
    float scale[2];
    weigh_block<true>(s, held, block, scale);
    keep_weights(s);
  }

  template <bool kHides>
  __device__ __forceinline__ void next_block(int32_t block) {
    float s[kKeys / 2], scale[2];
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    wait_turn<Shared::kGroups>(group);
    fence_wgmma();
    multiply_keys(s);
    wait_barrier(shared.v_full(value_turn.stage), value_turn.parity);
    add_values();
    Held held;
    load_mask(held, block);
    wait_wgmma<1>();
    hold(s);
    pass_turn<Shared::kGroups>(group);
    release_keys();
    weigh_block<kHides>(s, held, block, scale);
    wait_wgmma<0>();
    hold(o);
    release_values();
    keep_weights(s);
    rescale(o, scale);
  }

  __device__ __forceinline__ void last_values() {
    wait_barrier(shared.v_full(value_turn.stage), value_turn.parity);
    fence_wgmma();
    add_values();
    wait_wgmma<0>();
    hold(o);
    release_values();
  }
};

// A tile of rows, and where the blocks of keys that they see end.
struct Job {
  int32_t head, batch, first, blocks;
};

// Where the blocks of keys that rows from `first` on see begin.
template <class Traits>
__device__ __forceinline__ int32_t first_visible_block(const Call<Traits>& call, int32_t first) {
  return first_key(call, first) / HopperShared<Traits>::kKeys;
}
// Where those that rows [first, last) see end; 0 if they see none.
template <class Traits>
__device__ __forceinline__ int32_t visible_blocks(const Call<Traits>& call, int32_t first, int32_t last) {
  if (first >= call.queries) return 0;
  const int32_t end = visible_keys(call, (last < call.queries ? last : call.queries) - 1);
  return end > 0 ? (end + HopperShared<Traits>::kKeys - 1) / HopperShared<Traits>::kKeys : 0;
}

template <class Traits>
__device__ __forceinline__ Job job_of(const Call<Traits>& call, int32_t head, int32_t tile) {
  const int32_t first = tile * Traits::kRows;
  return {head % call.heads, head / call.heads, first, visible_blocks(call, first, first + Traits::kRows)};
}

// Brings what the consumers need, in the order in which they need it.
template <class Traits>
struct Producer {
  using Shared = HopperShared<Traits>;
  const Shared shared;
  const CUtensorMap &q_map, &k_map, &v_map;
  int32_t group;  // query heads per head of k and v
  Ring<Shared::kStages> row_turn, key_turn, value_turn;

  __device__ __forceinline__ void load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int halves,
                                       int half_bytes, int32_t row, int32_t head, int32_t batch) const {
    expect_bytes(barrier, halves * half_bytes);
    for (int half = 0; half < halves; ++half)
      copy_box(to + half * half_bytes, map, barrier, half * 64, row, head, batch);
  }

  // `begin`: of the job's blocks.
  __device__ __forceinline__ void load_tile(const Job& job, int32_t begin) {
    if (job.blocks == 0) return;
    const int32_t kv_head = job.head / group, batch = job.batch;
    wait_barrier(shared.q_empty(row_turn.stage), row_turn.parity ^ 1);
    load(shared.q(row_turn.stage), q_map, shared.q_full(row_turn.stage), Shared::kDepthHalves, Shared::kQHalf,
         job.first, job.head, batch);
    row_turn.next();
    constexpr bool kWindow = Traits::kWindow > 0;
    for (int32_t block = job.blocks - 1; block >= (kWindow ? begin - 1 : -1); --block) {
      if (block >= (kWindow ? begin : 0)) {
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
  const int64_t b = job.batch, h = job.head;
  const int32_t group_row = job.first + consumer.group * 64;
  const int32_t row = group_row + int(threadIdx.x) % 128 / 32 * 16 + consumer.lane / 4;
  consumer.rows = Rows();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t at = row + 8 * half;
    consumer.seen.set(half, call, at, at < call.queries);
    if (Traits::kHasMask)
      consumer.mask[half] =
          call.mask + b * call.mask_view.batch + h * call.mask_view.head + at * call.mask_view.row;
  }
#pragma unroll
  for (float& x : consumer.o) x = 0;
  if (job.blocks > 0) {
    const int32_t begin = first_visible_block(call, group_row), job_begin = first_visible_block(call, job.first);
    int32_t block = job.blocks - 1, blocks = visible_blocks(call, group_row, group_row + 64);
#pragma unroll 1
    for (; block >= (Traits::kWindow > 0 && blocks == 0 ? job_begin : blocks); --block) consumer.skip_block();
    wait_barrier(consumer.shared.q_full(consumer.row_turn.stage), consumer.row_turn.parity);
    if (blocks > 0) {
      consumer.first_block(block--);
      constexpr bool kWindow = Traits::kWindow > 0;
      const OpenBlocks<Traits> open(call, group_row, visible_keys(call, group_row));
#pragma unroll 1
      do {
#pragma unroll 1
        for (; (!kWindow || block >= begin) && !open.holds(block); --block) consumer.template next_block<true>(block);
#pragma unroll 1
        for (; block >= begin && (!kWindow || open.holds(block)); --block) consumer.template next_block<false>(block);
      } while (kWindow && block >= begin);
    }
    if (consumer.lane == 0) arrive(consumer.shared.q_empty(consumer.row_turn.stage));
    consumer.row_turn.next();
    if (blocks > 0) consumer.last_values();
    if constexpr (Traits::kWindow > 0) {
#pragma unroll 1
      for (; block >= job_begin; --block) consumer.skip_block();
    }
  }
  total_sums(consumer.rows);
  store_rows<Traits>(consumer.o, consumer.rows, call,
                     call.out + b * call.out_view.batch + h * call.out_view.head, row);
  store_lse(consumer.rows, call, b * call.heads + h, row);
}

struct ForwardMaps {
  const CUtensorMap &q, &k, &v;
  __device__ __forceinline__ void prefetch() const {
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
  }
};

// `all_heads`: query heads of the whole batch.
template <class Traits>
__device__ __forceinline__ void attend_hopper(const Call<Traits>& call, int32_t all_heads, const ForwardMaps& maps) {
  using Shared = HopperShared<Traits>;
  static_assert(Traits::kRows == 128 || Traits::kRows == 192);
  using Tiles = Walk<Traits::kCausal, true>;
  const uint32_t tiles = (uint32_t(call.queries) + Traits::kRows - 1) / Traits::kRows;
  run_warpgroups<Shared::kGroups, Shared>(
      maps,
      [&](const Shared& shared) {
        Producer<Traits> producer{shared, maps.q, maps.k, maps.v, call.group};
        for (Tiles walk(tiles, all_heads); !walk.done(); walk.next()) {
          const Job job = job_of(call, walk.head(), walk.tile());
          producer.load_tile(job, first_visible_block(call, job.first));
        }
      },
      [&](const Shared& shared, int group) {
        Consumer<Traits> consumer{call, shared, {nullptr, nullptr}};
        consumer.group = group;
        consumer.lane = int(threadIdx.x) % 32;
        for (Tiles walk(tiles, all_heads); !walk.done(); walk.next())
          consume_tile(consumer, job_of(call, walk.head(), walk.tile()));
      });
}

}  // namespace aicf::attention
