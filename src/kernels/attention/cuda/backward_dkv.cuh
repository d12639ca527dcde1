// Gradients of keys and values with wgmma on Hopper; see backward_wgmma.cuh.
#pragma once

#include "attention/cuda/backward_hopper.cuh"

namespace aicf::attention {

template <class Traits>
struct DkvShared {
  static constexpr int kKeys = 128, kDepthHalves = (Traits::kDepth + 63) / 64,
                       kValueHalves = (Traits::kValueDepth + 63) / 64;
  // Rows of a step: registers for scores and slopes beside the sums. Where they fit, the next tile's keys come while this
  // one's are in use.
  static constexpr int kStep = kDepthHalves + kValueHalves > 2 ? 64 : 128, kStages = 3,
                       kTileStages = kDepthHalves + kValueHalves > 2 ? 1 : 2;
  static constexpr int kHalf = kKeys * 128, kStepHalf = kStep * 128;
  static constexpr int kV = kTileStages * kDepthHalves * kHalf, kQ = kV + kTileStages * kValueHalves * kHalf,
                       kDout = kQ + kStages * kDepthHalves * kStepHalf,
                       kNumbers = kDout + kStages * kValueHalves * kStepHalf, kBarriers = kNumbers + kStages * kStep * 8;
  static constexpr int kStepBytes = (kDepthHalves + kValueHalves) * kStepHalf + kStep * 8;
  uint32_t base;
  __device__ __forceinline__ uint32_t k(int stage) const { return base + stage * kDepthHalves * kHalf; }
  __device__ __forceinline__ uint32_t v(int stage) const { return base + kV + stage * kValueHalves * kHalf; }
  __device__ __forceinline__ uint32_t q(int stage) const { return base + kQ + stage * kDepthHalves * kStepHalf; }
  __device__ __forceinline__ uint32_t dout(int stage) const { return base + kDout + stage * kValueHalves * kStepHalf; }
  __device__ __forceinline__ uint32_t level(int stage) const { return base + kNumbers + stage * kStep * 8; }
  __device__ __forceinline__ uint32_t along(int stage) const { return level(stage) + kStep * 4; }
  __device__ __forceinline__ uint32_t barrier(int number) const { return base + kBarriers + 8 * number; }
  __device__ __forceinline__ uint32_t keys_full(int stage) const { return barrier(stage); }
  __device__ __forceinline__ uint32_t keys_empty(int stage) const { return barrier(2 + stage); }
  __device__ __forceinline__ uint32_t full(int stage) const { return barrier(4 + stage); }
  __device__ __forceinline__ uint32_t empty(int stage) const { return barrier(7 + stage); }
  __device__ void set_up() const {
    for (int number = 0; number < 10; ++number)
      init_barrier(barrier(number), number / 2 == 1 || number >= 7 ? 8 : 1);
    publish_barriers();
  }
};

// A tile of keys and the rows that see any of them: at least a block of rows, be it one that sees none.
struct KeyJob {
  int32_t head, batch, first;   // head of k and v
  int32_t first_block, blocks;  // [first_block, blocks) of kStep rows
};

template <class Traits>
__device__ __forceinline__ KeyJob key_job(const Call<Traits>& call, int32_t kv_heads, int32_t head, int32_t tile) {
  using Shared = DkvShared<Traits>;
  const int32_t first = tile * Shared::kKeys;
  KeyJob job{head % kv_heads, head / kv_heads, first, first_query(call, first) / Shared::kStep,
             (call.queries + Shared::kStep - 1) / Shared::kStep};
  if constexpr (Traits::kWindow > 0) {
    const int32_t last = first + Shared::kKeys < call.keys ? first + Shared::kKeys - 1 : call.keys - 1;
    const int32_t end = (end_query(call, last) + Shared::kStep - 1) / Shared::kStep;
    if (job.first_block > job.blocks - 1) job.first_block = job.blocks - 1;
    job.blocks = end > job.first_block ? end : job.first_block + 1;
  }
  return job;
}

template <class Traits>
struct DkvLoader {
  using Shared = DkvShared<Traits>;
  const Shared shared;
  const BackwardMaps& maps;
  const BackwardCall<Traits>& call;
  const RowNumbers<float> numbers;
  Ring<Shared::kTileStages> tile_turn;
  Ring<Shared::kStages> turn;

  __device__ __forceinline__ void load(const KeyJob& job) {
    const uint32_t keys_full = shared.keys_full(tile_turn.stage);
    wait_barrier(shared.keys_empty(tile_turn.stage), tile_turn.parity ^ 1);
    expect_bytes(keys_full, (Shared::kDepthHalves + Shared::kValueHalves) * Shared::kHalf);
    load_halves<128, Shared::kDepthHalves>(shared.k(tile_turn.stage), maps.k, keys_full, job.first, job.head, job.batch);
    load_halves<128, Shared::kValueHalves>(shared.v(tile_turn.stage), maps.v, keys_full, job.first, job.head, job.batch);
    tile_turn.next();
    for (int32_t head = job.head * call.group; head < (job.head + 1) * call.group; ++head)
      for (int32_t block = job.first_block; block < job.blocks; ++block, turn.next()) load_step(job, head, block);
  }

  __device__ __forceinline__ void load_step(const KeyJob& job, int32_t head, int32_t block) const {
    const int32_t row = block * Shared::kStep, stage = turn.stage;
    const int64_t number = (int64_t(job.batch) * call.heads + head) * numbers.padded + row;
    const uint32_t full = shared.full(stage);
    wait_barrier(shared.empty(stage), turn.parity ^ 1);
    expect_bytes(full, Shared::kStepBytes);
    load_halves<Shared::kStep, Shared::kDepthHalves>(shared.q(stage), maps.q, full, row, head, job.batch);
    copy_floats(shared.level(stage), numbers.level + number, full, Shared::kStep);
    load_halves<Shared::kStep, Shared::kValueHalves>(shared.dout(stage), maps.dout, full, row, head, job.batch);
    copy_floats(shared.along(stage), numbers.along + number, full, Shared::kStep);
  }
};

template <class Traits>
struct DkvConsumer {
  using T = typename Traits::Element;
  using Shared = DkvShared<Traits>;
  static constexpr float kMultiplier = Scores<Traits>::kMultiplier;
  static constexpr int kStep = Shared::kStep, kSteps = kStep / 16;
  const BackwardCall<Traits>& call;
  const Shared shared;
  int group, lane;
  int32_t key;  // of the lane's first half
  Ring<Shared::kTileStages> tile_turn;
  Ring<Shared::kStages> turn, score_turn;  // of this step, of the next scores
  float dk[Shared::kDepthHalves * 32], dv[Shared::kValueHalves * 32];

  // Issues the products with the next step's rows.
  __device__ __forceinline__ void multiply_rows(float (&s)[kStep / 2]) {
    wait_barrier(shared.full(score_turn.stage), score_turn.parity);
    multiply_tiles<T, Shared::kDepthHalves, 128, kStep>(s, shared.k(tile_turn.stage) + group * 64 * 128,
                                                        shared.q(score_turn.stage));
    score_turn.next();
  }

  // Scores of a key (rows) and a query (columns) to weights; hidden ones become 0.
  template <bool kHides>
  __device__ __forceinline__ void weigh_step(float (&s)[kStep / 2], int32_t from) const {
    const uint32_t level = shared.level(turn.stage) + lane % 4 * 8;
    const int32_t shift = call.keys - call.queries + from + lane % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kStep / 8; ++tile) {
      const float2 pair = shared_pair(level + tile * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = s[tile * 4 + i];
        x = power_of_two(__fmaf_rn(x, kMultiplier, -(i % 2 ? pair.y : pair.x)));
        if constexpr (Traits::kWindow > 0) {
          const int32_t behind = shift + tile * 8 + i % 2 - (key + i / 2 * 8);
          if (kHides && (behind <= -kAhead<Traits> || behind >= Traits::kWindow)) x = 0;
        } else {
          if (kHides && key + i / 2 * 8 > shift + tile * 8 + i % 2) x = 0;
        }
      }
    }
  }

  __device__ __forceinline__ void find_slopes(float (&s)[kStep / 2], const float (&dp)[kStep / 2]) const {
    const uint32_t along = shared.along(turn.stage) + lane % 4 * 8;
#pragma unroll
    for (int tile = 0; tile < kStep / 8; ++tile) {
      const float2 pair = shared_pair(along + tile * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile * 4 + i] *= dp[tile * 4 + i] - (i % 2 ? pair.y : pair.x);
    }
  }

  // Adds what a step of rows gives. On entry `s` are its products, on exit those of the next step, unless it is the last.
  template <bool kHides, bool kLast>
  __device__ __forceinline__ void add_step(float (&s)[kStep / 2], int32_t from) {
    float dp[kStep / 2];
    fence_wgmma();
    multiply_tiles<T, Shared::kValueHalves, 128, kStep>(dp, shared.v(tile_turn.stage) + group * 64 * 128,
                                                        shared.dout(turn.stage));
    weigh_step<kHides>(s, from);
    wait_wgmma<0>();
    hold(dp);
    uint32_t weights[kSteps][4], slopes[kSteps][4];
    pack_products<T>(weights, s);
    find_slopes(s, dp);
    pack_products<T>(slopes, s);
    wait_turn<2>(group);
    fence_wgmma();
    add_products<T>(dv, weights, shared.dout(turn.stage));
    add_products<T>(dk, slopes, shared.q(turn.stage));
    if (!kLast) multiply_rows(s);
    pass_turn<2>(group);
    wait_wgmma<0>();
    hold(dv);
    hold(dk);
    if (!kLast) hold(s);
    __syncwarp();  // all lanes have read the rows' numbers
    if (lane == 0) arrive(shared.empty(turn.stage));
    turn.next();
  }
};

template <class Traits>
__device__ __forceinline__ void consume_keys(DkvConsumer<Traits>& consumer, const KeyJob& job) {
  using Shared = DkvShared<Traits>;
  constexpr int kStep = Shared::kStep;
  const BackwardCall<Traits>& call = consumer.call;
  const int32_t group_key = job.first + consumer.group * 64;
  consumer.key = group_key + int(threadIdx.x) % 128 / 32 * 16 + consumer.lane / 4;
#pragma unroll
  for (float& x : consumer.dk) x = 0;
#pragma unroll
  for (float& x : consumer.dv) x = 0;
  // All rows of blocks from `whole` on, with a window up to `open`, see all of the warpgroup's keys.
  constexpr bool kWindow = Traits::kWindow > 0;
  const int32_t whole = kAhead<Traits> > 0 ? (first_query(call, group_key + 63) + kStep - 1) / kStep : 0;
  const int32_t open = kWindow ? end_query(call, group_key) / kStep : 0;
  int32_t block = job.first_block, left = call.group * (job.blocks - job.first_block);
  float s[kStep / 2];
  wait_barrier(consumer.shared.keys_full(consumer.tile_turn.stage), consumer.tile_turn.parity);
  fence_wgmma();
  consumer.multiply_rows(s);
  wait_wgmma<0>();
  hold(s);
#pragma unroll 1
  while (left > 1) {
#pragma unroll 1
    for (; left > 1 && block < job.blocks && (block < whole || (kWindow && block >= open)); ++block, --left)
      consumer.template add_step<true, false>(s, block * kStep);
#pragma unroll 1
    for (; left > 1 && block < job.blocks && (!kWindow || block < open); ++block, --left)
      consumer.template add_step<false, false>(s, block * kStep);
    if (block == job.blocks) block = job.first_block;
  }
  consumer.template add_step<(kAhead<Traits> > 0), true>(s, block * kStep);
  if (consumer.lane == 0) arrive(consumer.shared.keys_empty(consumer.tile_turn.stage));
  consumer.tile_turn.next();
  store_gradient<Traits::kDepth, Traits::kVectorDk>(consumer.dk, float(Traits::kScale), call.dk, call.dk_view, job.batch,
                                                    job.head, consumer.key, call.keys);
  store_gradient<Traits::kValueDepth, Traits::kVectorDv>(consumer.dv, 1.0f, call.dv, call.dv_view, job.batch, job.head,
                                                         consumer.key, call.keys);
}

// `kv_heads` of one example, `all_heads`: query heads of the whole batch.
template <class Traits>
__device__ __forceinline__ void attention_dkv_hopper(const BackwardCall<Traits>& call, void* workspace, int32_t kv_heads,
                                                     int32_t all_heads, const BackwardMaps& maps) {
  using Shared = DkvShared<Traits>;
  using Tiles = Walk<Traits::kCausal, false>;
  const uint32_t tiles = (uint32_t(call.keys) + Shared::kKeys - 1) / Shared::kKeys, heads = uint32_t(all_heads / call.group);
  run_warpgroups<2, Shared>(
      maps,
      [&](const Shared& shared) {
        DkvLoader<Traits> loader{shared, maps, call, row_numbers<float>(call, workspace, int64_t(all_heads))};
        for (Tiles walk(tiles, heads); !walk.done(); walk.next())
          loader.load(key_job(call, kv_heads, walk.head(), walk.tile()));
      },
      [&](const Shared& shared, int group) {
        DkvConsumer<Traits> consumer{call, shared};
        consumer.group = group;
        consumer.lane = int(threadIdx.x) % 32;
        for (Tiles walk(tiles, heads); !walk.done(); walk.next())
          consume_keys(consumer, key_job(call, kv_heads, walk.head(), walk.tile()));
      });
}

}  // namespace aicf::attention
