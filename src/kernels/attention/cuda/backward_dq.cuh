// Gradient of queries with wgmma on Hopper; see backward_wgmma.cuh.
#pragma once

#include "attention/cuda/backward_hopper.cuh"

namespace aicf::attention {

template <class Traits>
struct DqShared {
  static constexpr int kRows = 128, kKeys = 128, kHalf = 128 * 128;
  static constexpr int kDepthHalves = (Traits::kDepth + 63) / 64, kValueHalves = (Traits::kValueDepth + 63) / 64;
  // Where they fit, the next tile's rows come while this one's are in use, and more blocks of keys and values are on their
  // way.
  static constexpr bool kShallow = kDepthHalves + kValueHalves == 2;
  static constexpr int kRowStages = kShallow ? 2 : 1, kKeyStages = kShallow ? 4 : 3, kValueStages = kShallow ? 4 : 2;
  static constexpr int kDout = kRowStages * kDepthHalves * kHalf, kK = kDout + kRowStages * kValueHalves * kHalf,
                       kV = kK + kKeyStages * kDepthHalves * kHalf, kBarriers = kV + kValueStages * kValueHalves * kHalf;
  uint32_t base;
  __device__ __forceinline__ uint32_t q(int stage) const { return base + stage * kDepthHalves * kHalf; }
  __device__ __forceinline__ uint32_t dout(int stage) const { return base + kDout + stage * kValueHalves * kHalf; }
  __device__ __forceinline__ uint32_t k(int stage) const { return base + kK + stage * kDepthHalves * kHalf; }
  __device__ __forceinline__ uint32_t v(int stage) const { return base + kV + stage * kValueHalves * kHalf; }
  __device__ __forceinline__ uint32_t barrier(int number) const { return base + kBarriers + 8 * number; }
  static constexpr int kFulls = kRowStages + kKeyStages + kValueStages;
  __device__ __forceinline__ uint32_t rows_full(int stage) const { return barrier(stage); }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return barrier(kRowStages + stage); }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return barrier(kRowStages + kKeyStages + stage); }
  __device__ __forceinline__ uint32_t rows_empty(int stage) const { return barrier(kFulls + stage); }
  __device__ __forceinline__ uint32_t k_empty(int stage) const { return barrier(kFulls + kRowStages + stage); }
  __device__ __forceinline__ uint32_t v_empty(int stage) const { return barrier(kFulls + kRowStages + kKeyStages + stage); }
  __device__ void set_up() const {
    for (int number = 0; number < 2 * kFulls; ++number) init_barrier(barrier(number), number < kFulls ? 1 : 8);
    publish_barriers();
  }
};

// A tile of rows, and where the blocks of keys that they see end.
struct RowJob {
  int32_t head, batch, first, blocks;
};

template <class Traits>
__device__ __forceinline__ RowJob row_job(const Call<Traits>& call, int32_t head, int32_t tile) {
  using Shared = DqShared<Traits>;
  RowJob job{head % call.heads, head / call.heads, tile * Shared::kRows};
  const int32_t left = call.queries - job.first;
  const int32_t end = visible_keys(call, job.first + (left < Shared::kRows ? left : Shared::kRows) - 1);
  job.blocks = end > 0 ? (end + Shared::kKeys - 1) / Shared::kKeys : 0;
  return job;
}

// Where they begin.
template <class Traits>
__device__ __forceinline__ int32_t first_visible_block(const Call<Traits>& call, const RowJob& job) {
  return first_key(call, job.first) / DqShared<Traits>::kKeys;
}

template <class Traits>
struct DqLoader {
  using Shared = DqShared<Traits>;
  const Shared shared;
  const BackwardMaps& maps;
  int32_t group;
  Ring<Shared::kRowStages> row_turn;
  Ring<Shared::kKeyStages> key_turn;
  Ring<Shared::kValueStages> value_turn;

  // Keys twice: for the rows' levels, unless they are known, then with the values for the slopes.
  // `begin`: of the job's blocks.
  __device__ __forceinline__ void load(const RowJob& job, int32_t begin) {
    if (job.blocks == 0) return;
    const int32_t kv_head = job.head / group;
    const uint32_t rows_full = shared.rows_full(row_turn.stage);
    wait_barrier(shared.rows_empty(row_turn.stage), row_turn.parity ^ 1);
    expect_bytes(rows_full, (Shared::kDepthHalves + Shared::kValueHalves) * Shared::kHalf);
    load_halves<128, Shared::kDepthHalves>(shared.q(row_turn.stage), maps.q, rows_full, job.first, job.head, job.batch);
    load_halves<128, Shared::kValueHalves>(shared.dout(row_turn.stage), maps.dout, rows_full, job.first, job.head,
                                           job.batch);
    row_turn.next();
    for (int pass = Traits::kHasSums ? 1 : 0; pass < 2; ++pass)
      for (int32_t block = job.blocks - 1; block >= begin; --block) {
        const uint32_t k_full = shared.k_full(key_turn.stage), v_full = shared.v_full(value_turn.stage);
        wait_barrier(shared.k_empty(key_turn.stage), key_turn.parity ^ 1);
        expect_bytes(k_full, Shared::kDepthHalves * Shared::kHalf);
        load_halves<128, Shared::kDepthHalves>(shared.k(key_turn.stage), maps.k, k_full, block * Shared::kKeys, kv_head,
                                               job.batch);
        key_turn.next();
        if (pass == 0) continue;
        wait_barrier(shared.v_empty(value_turn.stage), value_turn.parity ^ 1);
        expect_bytes(v_full, Shared::kValueHalves * Shared::kHalf);
        load_halves<128, Shared::kValueHalves>(shared.v(value_turn.stage), maps.v, v_full, block * Shared::kKeys, kv_head,
                                               job.batch);
        value_turn.next();
      }
  }
};

template <class Traits>
struct DqConsumer {
  using T = typename Traits::Element;
  using Shared = DqShared<Traits>;
  static constexpr float kMultiplier = Scores<Traits>::kMultiplier;
  const BackwardCall<Traits>& call;
  const Shared shared;
  int group, lane;
  int32_t row;         // of the lane's first half
  SeenKeys<Traits> seen;
  Ring<Shared::kRowStages> row_turn;
  Ring<Shared::kKeyStages> key_turn, slope_turn;  // of the next scores, of the next slopes
  Ring<Shared::kValueStages> value_turn;
  float level[2], along[2];
  float dq[Shared::kDepthHalves * 32];

  // Issues the products with the next block of keys.
  __device__ __forceinline__ void multiply_keys(float (&s)[64]) {
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    multiply_tiles<T, Shared::kDepthHalves, 128, 128>(s, shared.q(row_turn.stage) + group * 64 * 128,
                                                      shared.k(key_turn.stage));
    key_turn.next();
  }

  // Keys of a block are used up.
  __device__ __forceinline__ void release_keys() {
    if (lane == 0) arrive(shared.k_empty(slope_turn.stage));
    slope_turn.next();
  }

  // The rows' maxima and sums take in a block of keys.
  template <bool kHides>
  __device__ __forceinline__ void measure(Rows& rows, int32_t block) {
    float s[64], scale[2];
    fence_wgmma();
    multiply_keys(s);
    wait_wgmma<0>();
    hold(s);
    release_keys();
    if (kHides) hide(s, block * Shared::kKeys + lane % 4 * 2, seen);
    weigh<Traits>(s, rows, scale);
  }

  // Issues the products of dout with the next block of values.
  __device__ __forceinline__ void multiply_values(float (&dp)[64]) {
    wait_barrier(shared.v_full(value_turn.stage), value_turn.parity);
    fence_wgmma();
    multiply_tiles<T, Shared::kValueHalves, 128, 128>(dp, shared.dout(row_turn.stage) + group * 64 * 128,
                                                      shared.v(value_turn.stage));
  }

  // Scores of a block to weights while its other products run.
  template <bool kHides>
  __device__ __forceinline__ void weigh_block(float (&s)[64], float (&dp)[64], int32_t block) {
    if (kHides) hide(s, block * Shared::kKeys + lane % 4 * 2, seen);
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] = power_of_two(__fmaf_rn(s[i], kMultiplier, -level[i / 2 % 2]));
    wait_wgmma<0>();
    hold(dp);
    if (lane == 0) arrive(shared.v_empty(value_turn.stage));
    value_turn.next();
  }

  // Adds what a block of keys gives, from its weights `s` and products `dp`. Unless it is the last, these are of block
  // `next` afterwards, and the turn goes on when the next scores are there: from then on this warpgroup computes weights.
  template <bool kHides, bool kLast>
  __device__ __forceinline__ void add_block(float (&s)[64], float (&dp)[64], int32_t next) {
    uint32_t slopes[8][4];
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] *= dp[i] - along[i / 2 % 2];
    pack_products<T>(slopes, s);
    wait_turn<2>(group);
    fence_wgmma();
    add_products<T>(dq, slopes, shared.k(slope_turn.stage));
    if (!kLast) multiply_keys(s);
    wait_wgmma<kLast ? 0 : 1>();
    hold(dq);
    release_keys();
    if (!kLast) {
      multiply_values(dp);
      wait_wgmma<1>();
      hold(s);
    }
    pass_turn<2>(group);
    if (!kLast) weigh_block<kHides>(s, dp, next);
  }

  // What the rows' numbers are made of, fetched early: parts of dout and out, and the sums of the forward pass.
  struct Facts {
    static constexpr int kLanes = Shared::kValueHalves * 8, kRowsAtOnce = 32 / kLanes, kTurns = 16 / kRowsAtOnce;
    Eight<T> dout[kTurns], result[kTurns];
    float sums[2];
  };
  // Registers for the next tile's beside this one's products.
  static constexpr bool kFetchesAhead = Shared::kDepthHalves + Shared::kValueHalves == 2;

  __device__ __forceinline__ int32_t warp_row(const RowJob& job) const {
    return job.first + group * 64 + int(threadIdx.x) % 128 / 32 * 16;
  }
  __device__ __forceinline__ int64_t head_of(const RowJob& job) const { return int64_t(job.batch) * call.heads + job.head; }

  __device__ __forceinline__ void fetch(Facts& facts, const RowJob& job) const {
    const T* dout = call.dout + job.batch * call.dout_view.batch + job.head * call.dout_view.head;
    const T* result = call.result + job.batch * call.out_view.batch + job.head * call.out_view.head;
    const int32_t first = warp_row(job);
    const int column = lane % Facts::kLanes * 8;
#pragma unroll
    for (int turn = 0; turn < Facts::kTurns; ++turn) {
      const int32_t at = first + turn * Facts::kRowsAtOnce + lane / Facts::kLanes;
      facts.dout[turn] = Eight<T>();
      facts.result[turn] = Eight<T>();
      if (at >= call.queries || column >= Traits::kValueDepth) continue;
      facts.dout[turn].template load<Traits::kVectorDout>(dout + at * call.dout_view.row, column, Traits::kValueDepth,
                                                          call.dout_view.column);
      facts.result[turn].template load<Traits::kVectorResult>(result + at * call.out_view.row, column, Traits::kValueDepth,
                                                              call.out_view.column);
    }
    if constexpr (Traits::kHasSums) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t at = first + lane / 4 + 8 * half;
        facts.sums[half] = at < call.queries ? call.sums[head_of(job) * call.queries + at] : minus_infinity();
      }
    }
  }

  // Sums of dout · out: lane l of those that share a row adds columns 8 l to 8 l + 7 in order, then they are combined
  // pairwise. And the levels, if the forward pass left the sums.
  __device__ __forceinline__ void take(const Facts& facts) {
#pragma unroll
    for (int turn = 0; turn < Facts::kTurns; ++turn) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = __fmaf_rn(facts.dout[turn].get(i), facts.result[turn].get(i), sum);
#pragma unroll
      for (int step = Facts::kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      sum = __shfl_sync(0xffffffffu, sum, lane / 4 % Facts::kRowsAtOnce * Facts::kLanes);
      if (turn == lane / 4 / Facts::kRowsAtOnce) along[0] = sum;
      if (turn == (lane / 4 + 8) / Facts::kRowsAtOnce) along[1] = sum;
    }
    if constexpr (Traits::kHasSums) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        level[half] = facts.sums[half] == minus_infinity() ? -minus_infinity() : float(kLog2E) * facts.sums[half];
    }
  }

  __device__ __forceinline__ void keep_numbers(const RowNumbers<float>& numbers, int64_t head) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = head * numbers.padded + row + 8 * half;
      if (lane % 4 == 0) {
        numbers.level[at] = level[half];
        numbers.along[at] = along[half];
      }
    }
  }

  // The levels from all scores.
  __device__ __forceinline__ void find_levels(const RowJob& job, const OpenBlocks<Traits>& open) {
    constexpr bool kWindow = Traits::kWindow > 0;
    Rows rows;
    const int32_t begin = first_visible_block(call, job);
    int32_t block = job.blocks - 1;
#pragma unroll 1
    do {
#pragma unroll 1
      for (; (!kWindow || block >= begin) && !open.holds(block); --block) measure<true>(rows, block);
#pragma unroll 1
      for (; block >= begin && (!kWindow || open.holds(block)); --block) measure<false>(rows, block);
    } while (kWindow && block >= begin);
    total_sums(rows);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      level[half] = rows.sum[half] == 0 ? -minus_infinity() : kMultiplier * rows.maximum[half] + log2f(rows.sum[half]);
  }
};

// `facts` are the job's where they are fetched ahead, and those of job `next` afterwards.
template <class Traits>
__device__ __forceinline__ void consume_rows(DqConsumer<Traits>& consumer, const RowJob& job, const RowJob& next,
                                             typename DqConsumer<Traits>::Facts& facts,
                                             const RowNumbers<float>& numbers) {
  using Shared = DqShared<Traits>;
  constexpr bool kFetchesAhead = DqConsumer<Traits>::kFetchesAhead;
  const BackwardCall<Traits>& call = consumer.call;
  const int32_t group_row = job.first + consumer.group * 64;
  if constexpr (!kFetchesAhead) consumer.fetch(facts, job);
  consumer.row = consumer.warp_row(job) + consumer.lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t at = consumer.row + 8 * half;
    consumer.seen.set(half, call, at, at < call.queries);
  }
#pragma unroll
  for (float& x : consumer.dq) x = 0;
  if (job.blocks > 0) {
    constexpr bool kWindow = Traits::kWindow > 0;
    // Rows beyond the last see no key.
    const OpenBlocks<Traits> open(call, group_row, group_row + 64 <= call.queries ? visible_keys(call, group_row) : 0);
    const int32_t begin = first_visible_block(call, job);
    int32_t block = job.blocks - 1;
    wait_barrier(consumer.shared.rows_full(consumer.row_turn.stage), consumer.row_turn.parity);
    if constexpr (!Traits::kHasSums) consumer.find_levels(job, open);
    float s[64];
    fence_wgmma();
    consumer.multiply_keys(s);
    consumer.take(facts);
    consumer.keep_numbers(numbers, consumer.head_of(job));
    float dp[64];
    consumer.multiply_values(dp);
    wait_wgmma<1>();
    hold(s);
    consumer.template weigh_block<true>(s, dp, block);
#pragma unroll 1
    do {
#pragma unroll 1
      for (; block > begin && !open.holds(block - 1); --block) consumer.template add_block<true, false>(s, dp, block - 1);
#pragma unroll 1
      for (; block > begin && (!kWindow || open.holds(block - 1)); --block)
        consumer.template add_block<false, false>(s, dp, block - 1);
    } while (kWindow && block > begin);
    if (consumer.lane == 0) arrive(consumer.shared.rows_empty(consumer.row_turn.stage));
    if constexpr (kFetchesAhead) consumer.fetch(facts, next);
    consumer.template add_block<false, true>(s, dp, -1);
    consumer.row_turn.next();
  } else {
    consumer.take(facts);
    consumer.level[0] = consumer.level[1] = -minus_infinity();
    consumer.keep_numbers(numbers, consumer.head_of(job));
    if constexpr (kFetchesAhead) consumer.fetch(facts, next);
  }
  store_gradient<Traits::kDepth, Traits::kVectorDq>(consumer.dq, float(Traits::kScale), call.dq, call.dq_view, job.batch,
                                                    job.head, consumer.row, call.queries);
}

// `all_heads`: of the whole batch.
template <class Traits>
__device__ __forceinline__ void attention_dq_hopper(const BackwardCall<Traits>& call, void* workspace, int32_t all_heads,
                                                    const BackwardMaps& maps) {
  using Shared = DqShared<Traits>;
  static_assert(Traits::kRows == 128 && Scores<Traits>::kPlain && !Traits::kHasMask);
  using Tiles = Walk<Traits::kCausal, true>;
  const uint32_t tiles = (uint32_t(call.queries) + Shared::kRows - 1) / Shared::kRows;
  run_warpgroups<2, Shared>(
      maps,
      [&](const Shared& shared) {
        DqLoader<Traits> loader{shared, maps, call.group};
        for (Tiles walk(tiles, all_heads); !walk.done(); walk.next()) {
          const RowJob job = row_job(call, walk.head(), walk.tile());
          loader.load(job, first_visible_block(call, job));
        }
      },
      [&](const Shared& shared, int group) {
        DqConsumer<Traits> consumer{call, shared};
        consumer.group = group;
        consumer.lane = int(threadIdx.x) % 32;
        const RowNumbers<float> numbers = row_numbers<float>(call, workspace, int64_t(all_heads));
        typename DqConsumer<Traits>::Facts facts;
        Tiles walk(tiles, all_heads);
        if constexpr (DqConsumer<Traits>::kFetchesAhead)
          if (!walk.done()) consumer.fetch(facts, row_job(call, walk.head(), walk.tile()));
        while (!walk.done()) {
          const RowJob job = row_job(call, walk.head(), walk.tile());
          walk.next();
          consume_rows(consumer, job, walk.done() ? job : row_job(call, walk.head(), walk.tile()), facts, numbers);
        }
      });
}

}  // namespace aicf::attention
