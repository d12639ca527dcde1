// Gradients of attention of half types with wgmma on Hopper (sm_90a), for scores that are a positive scale times the product
// (no mask but the causal one, no softcap). The roles are those of wgmma.cuh: one warpgroup lets the copy engine bring tiles
// into a ring in shared memory, two multiply. Weights and slopes go from accumulators to left operands in registers; the
// arrangement of products follows FlashAttention-3 (Shah et al. 2024), but dq has a launch of its own: it needs no atomics.
//
// Order: of dq, for every row alone, blocks of 128 keys from the last visible one to key 0, those of the row's level
// likewise; of dk and dv, for every key alone, blocks of kStep rows from the first that sees the tile, head by head of the
// group. Inside a block steps of 16. `along` is 32 lanes (column mod 32), combined pairwise.
#pragma once

#include "attention/backward_call.cuh"
#include "attention/wgmma.cuh"

namespace aicf::attention {

template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// `count` floats (a multiple of 4).
__device__ __forceinline__ void copy_floats(uint32_t to, const float* from, uint32_t barrier, int count) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(count * 4), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ float2 shared_pair(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
  return pair;
}

// A tile of kRows rows as 64-column halves into shared memory.
template <int kRows, int kHalves>
__device__ __forceinline__ void load_halves(uint32_t to, const CUtensorMap& map, uint32_t barrier, int32_t row, int32_t head,
                                            int32_t batch) {
  for (int half = 0; half < kHalves; ++half) copy_box(to + half * kRows * 128, map, barrier, half * 64, row, head, batch);
}

// d = a b^T over kHalves halves of 64 columns; tiles of kARows and kBRows rows.
template <class T, int kHalves, int kARows, int kBRows, int kCount>
__device__ __forceinline__ void multiply_tiles(float (&d)[kCount], uint32_t a, uint32_t b) {
#pragma unroll
  for (int step = 0; step < kHalves * 4; ++step) {
    const uint32_t half = step / 4, at = step % 4 * 32;
    wgmma_shared(d, descriptor(a + half * kARows * 128 + at, 16), descriptor(b + half * kBRows * 128 + at, 16), step > 0, T());
  }
  commit_wgmma();
}

// d += a b, a in registers, b a tile of kSteps · 16 rows.
template <class T, int kSteps, int kCount>
__device__ __forceinline__ void add_products(float (&d)[kCount], const uint32_t (&a)[kSteps][4], uint32_t b) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    wgmma_registers(d, a[step], descriptor(b + step * 16 * 128, kSteps * 16 * 128), T());
  commit_wgmma();
}

// Accumulators as left operands.
template <class T, int kSteps, int kCount>
__device__ __forceinline__ void pack_products(uint32_t (&a)[kSteps][4], const float (&s)[kCount]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[step][i] = pack<T>(s[step * 8 + 2 * i], s[step * 8 + 2 * i + 1]);
}

// Stores a lane's two rows of sums times `factor`; `to` is the address of row 0, column 0.
template <int kColumns, bool kVector, class T, int kCount>
__device__ __forceinline__ void store_gradient(const float (&sums)[kCount], float factor, T* to, const View& view, int32_t row,
                                               int32_t rows) {
  const int lane = int(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool inside = row + 8 * half < rows;
    T* line = to + (row + 8 * half) * view.row;
#pragma unroll
    for (int tile = 0; tile < kCount / 4; tile += 4) {
      float value[4][2];
      uint32_t word[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        value[t][0] = sums[(tile + t) * 4 + 2 * half] * factor;
        value[t][1] = sums[(tile + t) * 4 + 2 * half + 1] * factor;
        word[t] = pack<T>(value[t][0], value[t][1]);
      }
      if constexpr (kVector) {
        const uint4 eight = gather_tile(word);
        const int column = (tile + lane) * 8;
        if (inside && column < kColumns) *reinterpret_cast<uint4*>(line + column) = eight;
      } else {
#pragma unroll
        for (int t = 0; t < 4; ++t)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int column = (tile + t) * 8 + 2 * lane + e;
            if (inside && column < kColumns) line[column * view.column] = from_float<T>(value[t][e]);
          }
      }
    }
  }
}

__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <bool kMultiplies>
__device__ __forceinline__ void share_registers() {
  if constexpr (kMultiplies)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}

// ---- dq ----

template <class Traits>
struct DqShared {
  static constexpr int kRows = 128, kKeys = 128, kStages = 2, kHalf = 128 * 128;
  static constexpr int kDepthHalves = (Traits::kDepth + 63) / 64, kValueHalves = (Traits::kValueDepth + 63) / 64;
  static constexpr int kDout = kDepthHalves * kHalf, kK = kDout + kValueHalves * kHalf,
                       kV = kK + kStages * kDepthHalves * kHalf, kBarriers = kV + kStages * kValueHalves * kHalf;
  uint32_t base;
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t dout() const { return base + kDout; }
  __device__ __forceinline__ uint32_t k(int stage) const { return base + kK + stage * kDepthHalves * kHalf; }
  __device__ __forceinline__ uint32_t v(int stage) const { return base + kV + stage * kValueHalves * kHalf; }
  __device__ __forceinline__ uint32_t rows_full() const { return base + kBarriers; }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return base + kBarriers + 8 + 8 * stage; }
  __device__ __forceinline__ uint32_t k_empty(int stage) const { return base + kBarriers + 24 + 8 * stage; }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return base + kBarriers + 40 + 8 * stage; }
  __device__ __forceinline__ uint32_t v_empty(int stage) const { return base + kBarriers + 56 + 8 * stage; }
  __device__ void set_up() const {
    init_barrier(rows_full(), 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(k_full(stage), 1);
      init_barrier(v_full(stage), 1);
      init_barrier(k_empty(stage), 8);
      init_barrier(v_empty(stage), 8);
    }
    publish_barriers();
  }
};

struct BackwardMaps {
  const CUtensorMap &q, &k, &v, &dout;
  __device__ __forceinline__ void prefetch() const {
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
    prefetch_map(dout);
  }
};

// Keys twice: for the rows' levels, unless they are known, then with the values for the slopes.
template <class Traits>
__device__ __forceinline__ void load_for_dq(const DqShared<Traits>& shared, const BackwardMaps& maps, const Job& job,
                                            int32_t group) {
  using Shared = DqShared<Traits>;
  const int32_t kv_head = job.place.head / group, batch = job.place.batch;
  expect_bytes(shared.rows_full(), (Shared::kDepthHalves + Shared::kValueHalves) * Shared::kHalf);
  load_halves<128, Shared::kDepthHalves>(shared.q(), maps.q, shared.rows_full(), job.first, job.place.head, batch);
  load_halves<128, Shared::kValueHalves>(shared.dout(), maps.dout, shared.rows_full(), job.first, job.place.head, batch);
  Ring<Shared::kStages> key_turn, value_turn;
  for (int pass = Traits::kHasSums ? 1 : 0; pass < 2; ++pass)
    for (int32_t block = job.blocks - 1; block >= 0; --block) {
      wait_barrier(shared.k_empty(key_turn.stage), key_turn.parity ^ 1);
      expect_bytes(shared.k_full(key_turn.stage), Shared::kDepthHalves * Shared::kHalf);
      load_halves<128, Shared::kDepthHalves>(shared.k(key_turn.stage), maps.k, shared.k_full(key_turn.stage),
                                             block * Shared::kKeys, kv_head, batch);
      key_turn.next();
      if (pass == 0) continue;
      wait_barrier(shared.v_empty(value_turn.stage), value_turn.parity ^ 1);
      expect_bytes(shared.v_full(value_turn.stage), Shared::kValueHalves * Shared::kHalf);
      load_halves<128, Shared::kValueHalves>(shared.v(value_turn.stage), maps.v, shared.v_full(value_turn.stage),
                                             block * Shared::kKeys, kv_head, batch);
      value_turn.next();
    }
}

template <class Traits>
struct DqConsumer {
  using T = typename Traits::Element;
  using Shared = DqShared<Traits>;
  static constexpr float kMultiplier = Scores<Traits>::kMultiplier;
  static constexpr int kDepthColumns = Shared::kDepthHalves * 64;
  const BackwardCall<Traits>& call;
  const Shared shared;
  int group, lane;
  int32_t row;         // of the lane's first half
  int32_t visible[2];  // keys
  Ring<Shared::kStages> key_turn, value_turn;
  Rows rows;
  float level[2], along[2];
  float dq[kDepthColumns / 2];

  __device__ __forceinline__ void multiply_keys(float (&s)[64]) const {
    multiply_tiles<T, Shared::kDepthHalves, 128, 128>(s, shared.q() + group * 64 * 128, shared.k(key_turn.stage));
  }

  // The rows' maxima and sums take in a block of keys.
  template <bool kHides>
  __device__ __forceinline__ void measure(int32_t block) {
    float s[64], scale[2];
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    fence_wgmma();
    multiply_keys(s);
    wait_wgmma<0>();
    hold(s);
    if (lane == 0) arrive(shared.k_empty(key_turn.stage));
    key_turn.next();
    if (kHides) hide(s, block * Shared::kKeys + lane % 4 * 2, visible);
    weigh<Traits>(s, rows, scale);
  }

  template <bool kHides>
  __device__ __forceinline__ void add_block(int32_t block) {
    float s[64], dp[64];
    wait_barrier(shared.k_full(key_turn.stage), key_turn.parity);
    fence_wgmma();
    multiply_keys(s);
    wait_barrier(shared.v_full(value_turn.stage), value_turn.parity);
    multiply_tiles<T, Shared::kValueHalves, 128, 128>(dp, shared.dout() + group * 64 * 128, shared.v(value_turn.stage));
    wait_wgmma<1>();
    hold(s);
    if (kHides) hide(s, block * Shared::kKeys + lane % 4 * 2, visible);
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] = power_of_two(__fmaf_rn(s[i], kMultiplier, -level[i / 2 % 2]));
    wait_wgmma<0>();
    hold(dp);
    if (lane == 0) arrive(shared.v_empty(value_turn.stage));
    value_turn.next();
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] *= dp[i] - along[i / 2 % 2];
    uint32_t slopes[8][4];
    pack_products<T>(slopes, s);
    fence_wgmma();
    add_products<T>(dq, slopes, shared.k(key_turn.stage));
    wait_wgmma<0>();
    hold(dq);
    if (lane == 0) arrive(shared.k_empty(key_turn.stage));
    key_turn.next();
  }

  // Sums of dout · out: a warp takes its 16 rows one after the other.
  __device__ __forceinline__ void find_along(int32_t first, const T* dout, const T* result) {
#pragma unroll 4
    for (int r = 0; r < 16; ++r) {
      const int32_t at = first + r;
      float sum = 0;
      if (at < call.queries)
#pragma unroll
        for (int c = 0; c < Shared::kValueHalves * 64; c += 32)
          if (c + lane < Traits::kValueDepth)
            sum = __fmaf_rn(to_float(dout[at * call.dout_view.row + (c + lane) * call.dout_view.column]),
                            to_float(result[at * call.out_view.row + (c + lane) * call.out_view.column]), sum);
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (r == lane / 4) along[0] = sum;
      if (r == lane / 4 + 8) along[1] = sum;
    }
  }

  __device__ __forceinline__ void keep_numbers(const RowNumbers<float>& numbers, int64_t head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (Traits::kHasSums) {
        const bool inside = row + 8 * half < call.queries;
        const float sum = inside ? call.sums[head * call.queries + row + 8 * half] : minus_infinity();
        level[half] = sum == minus_infinity() ? -minus_infinity() : float(kLog2E) * sum;
      } else {
        level[half] =
            rows.sum[half] == 0 ? -minus_infinity() : kMultiplier * rows.maximum[half] + log2f(rows.sum[half]);
      }
      const int64_t at = head * numbers.padded + row + 8 * half;
      if (lane % 4 == 0) {
        numbers.level[at] = level[half];
        numbers.along[at] = along[half];
      }
    }
  }
};

template <class Traits>
__device__ __forceinline__ void consume_for_dq(DqConsumer<Traits>& consumer, const Job& job, const RowNumbers<float>& numbers) {
  using Shared = DqShared<Traits>;
  const BackwardCall<Traits>& call = consumer.call;
  const int64_t b = job.place.batch, h = job.place.head;
  const int32_t group_row = job.first + consumer.group * 64, warp_row = group_row + int(threadIdx.x) % 128 / 32 * 16;
  consumer.row = warp_row + consumer.lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t at = consumer.row + 8 * half;
    consumer.visible[half] = at < call.queries ? visible_keys(call, at) : 0;
  }
#pragma unroll
  for (float& x : consumer.dq) x = 0;
  consumer.find_along(warp_row, call.dout + b * call.dout_view.batch + h * call.dout_view.head,
                      call.result + b * call.out_view.batch + h * call.out_view.head);
  if (job.blocks > 0) wait_barrier(consumer.shared.rows_full(), 0);
  // The keys that even the first of this warpgroup's rows sees need no comparison; rows beyond the last see none.
  const int32_t seen = group_row + 64 <= call.queries ? visible_keys(call, group_row) : 0;
  const int32_t all_visible = (seen > 0 ? seen : 0) / Shared::kKeys;
  int32_t block = job.blocks - 1;
  if constexpr (!Traits::kHasSums) {
#pragma unroll 1
    for (; block >= all_visible; --block) consumer.template measure<true>(block);
#pragma unroll 1
    for (; block >= 0; --block) consumer.template measure<false>(block);
    total_sums(consumer.rows);
  }
  consumer.keep_numbers(numbers, b * call.heads + h);
  block = job.blocks - 1;
#pragma unroll 1
  for (; block >= all_visible; --block) consumer.template add_block<true>(block);
#pragma unroll 1
  for (; block >= 0; --block) consumer.template add_block<false>(block);
  store_gradient<Traits::kDepth, Traits::kVectorDq>(consumer.dq, float(Traits::kScale),
                                                    call.dq + b * call.dq_view.batch + h * call.dq_view.head, call.dq_view,
                                                    consumer.row, call.queries);
}

template <class Traits>
__device__ __forceinline__ void attention_dq_hopper(const BackwardCall<Traits>& call, void* workspace,
                                                    const BackwardMaps& maps) {
  using Shared = DqShared<Traits>;
  static_assert(Traits::kRows == 128 && Scores<Traits>::kPlain && !Traits::kHasMask);
  extern __shared__ __align__(1024) char memory[];
  const Shared shared{(address_of(memory) + 1023) & ~1023u};
  const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
  Job job;
  job.place = place_of_block(call);
  job.first = job.place.tile * Shared::kRows;
  const int32_t left = call.queries - job.first;
  const int32_t end = visible_keys(call, job.first + (left < Shared::kRows ? left : Shared::kRows) - 1);
  job.blocks = end > 0 ? (end + Shared::kKeys - 1) / Shared::kKeys : 0;
  if (threadIdx.x == 0) {
    maps.prefetch();
    shared.set_up();
  }
  __syncthreads();
  wait_for_inputs();
  launch_dependents();
  if (warpgroup == 0) {
    share_registers<false>();
    if (threadIdx.x == 0 && job.blocks > 0) load_for_dq(shared, maps, job, call.group);
  } else {
    share_registers<true>();
    const uint32_t tiles = (uint32_t(call.queries) + Shared::kRows - 1) / Shared::kRows;
    DqConsumer<Traits> consumer{call, shared};
    consumer.group = warpgroup - 1;
    consumer.lane = int(threadIdx.x) % 32;
    consume_for_dq(consumer, job, row_numbers<float>(call, workspace, gridDim.x / tiles));
  }
}

// ---- dk and dv ----

template <class Traits>
struct DkvShared {
  static constexpr int kKeys = 128, kDepthHalves = (Traits::kDepth + 63) / 64,
                       kValueHalves = (Traits::kValueDepth + 63) / 64;
  // Rows of a step: registers for scores and slopes beside the sums.
  static constexpr int kStep = kDepthHalves + kValueHalves > 2 ? 64 : 128, kStages = 2;
  static constexpr int kHalf = kKeys * 128, kStepHalf = kStep * 128;
  static constexpr int kV = kDepthHalves * kHalf, kQ = kV + kValueHalves * kHalf, kDout = kQ + kStages * kDepthHalves * kStepHalf,
                       kNumbers = kDout + kStages * kValueHalves * kStepHalf, kBarriers = kNumbers + kStages * kStep * 8;
  static constexpr int kStepBytes = (kDepthHalves + kValueHalves) * kStepHalf + kStep * 8;
  uint32_t base;
  __device__ __forceinline__ uint32_t k() const { return base; }
  __device__ __forceinline__ uint32_t v() const { return base + kV; }
  __device__ __forceinline__ uint32_t q(int stage) const { return base + kQ + stage * kDepthHalves * kStepHalf; }
  __device__ __forceinline__ uint32_t dout(int stage) const { return base + kDout + stage * kValueHalves * kStepHalf; }
  __device__ __forceinline__ uint32_t level(int stage) const { return base + kNumbers + stage * kStep * 8; }
  __device__ __forceinline__ uint32_t along(int stage) const { return level(stage) + kStep * 4; }
  __device__ __forceinline__ uint32_t keys_full() const { return base + kBarriers; }
  __device__ __forceinline__ uint32_t full(int stage) const { return base + kBarriers + 8 + 8 * stage; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return base + kBarriers + 8 + 8 * (kStages + stage); }
  __device__ void set_up() const {
    init_barrier(keys_full(), 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(full(stage), 1);
      init_barrier(empty(stage), 8);
    }
    publish_barriers();
  }
};

// A block's tile of keys and the rows that see any of them.
struct KeyJob {
  int32_t first, head, batch;        // head of k and v
  int32_t first_block, blocks;       // of kStep rows
};

template <class Traits>
__device__ __forceinline__ KeyJob key_job_of_block(const Call<Traits>& call, uint32_t kv_heads) {
  using Shared = DkvShared<Traits>;
  const uint32_t tiles = (uint32_t(call.keys) + Shared::kKeys - 1) / Shared::kKeys;
  // As place_of_block: with the causal mask the first tiles have most to do.
  constexpr uint32_t kGroup = Traits::kHeadGroup;
  const uint32_t all = gridDim.x / tiles, wave = kGroup * tiles;
  const uint32_t begin = blockIdx.x / wave * kGroup, rest = blockIdx.x % wave;
  const uint32_t count = all - begin < kGroup ? all - begin : kGroup;
  const uint32_t head = begin + rest % count;
  KeyJob job;
  job.first = int32_t(rest / count) * Shared::kKeys;
  job.head = int32_t(head % kv_heads);
  job.batch = int32_t(head / kv_heads);
  job.first_block = first_query(call, job.first) / Shared::kStep;
  job.blocks = (call.queries + Shared::kStep - 1) / Shared::kStep;
  return job;
}

template <class Traits>
__device__ __forceinline__ void load_for_dkv(const DkvShared<Traits>& shared, const BackwardMaps& maps, const KeyJob& job,
                                             const BackwardCall<Traits>& call, const RowNumbers<float>& numbers) {
  using Shared = DkvShared<Traits>;
  expect_bytes(shared.keys_full(), (Shared::kDepthHalves + Shared::kValueHalves) * Shared::kHalf);
  load_halves<128, Shared::kDepthHalves>(shared.k(), maps.k, shared.keys_full(), job.first, job.head, job.batch);
  load_halves<128, Shared::kValueHalves>(shared.v(), maps.v, shared.keys_full(), job.first, job.head, job.batch);
  Ring<Shared::kStages> turn;
  for (int32_t head = job.head * call.group; head < (job.head + 1) * call.group; ++head)
    for (int32_t block = job.first_block; block < job.blocks; ++block, turn.next()) {
      const int32_t row = block * Shared::kStep;
      const int64_t number = (int64_t(job.batch) * call.heads + head) * numbers.padded + row;
      wait_barrier(shared.empty(turn.stage), turn.parity ^ 1);
      expect_bytes(shared.full(turn.stage), Shared::kStepBytes);
      load_halves<Shared::kStep, Shared::kDepthHalves>(shared.q(turn.stage), maps.q, shared.full(turn.stage), row, head,
                                                       job.batch);
      load_halves<Shared::kStep, Shared::kValueHalves>(shared.dout(turn.stage), maps.dout, shared.full(turn.stage), row, head,
                                                       job.batch);
      copy_floats(shared.level(turn.stage), numbers.level + number, shared.full(turn.stage), Shared::kStep);
      copy_floats(shared.along(turn.stage), numbers.along + number, shared.full(turn.stage), Shared::kStep);
    }
}

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
  Ring<Shared::kStages> turn;
  float dk[Shared::kDepthHalves * 32], dv[Shared::kValueHalves * 32];

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
        if (kHides && key + i / 2 * 8 > shift + tile * 8 + i % 2) x = 0;
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

  template <bool kHides>
  __device__ __forceinline__ void add_step(int32_t from) {
    float s[kStep / 2], dp[kStep / 2];
    wait_barrier(shared.full(turn.stage), turn.parity);
    fence_wgmma();
    multiply_tiles<T, Shared::kDepthHalves, 128, kStep>(s, shared.k() + group * 64 * 128, shared.q(turn.stage));
    multiply_tiles<T, Shared::kValueHalves, 128, kStep>(dp, shared.v() + group * 64 * 128, shared.dout(turn.stage));
    wait_wgmma<1>();
    hold(s);
    weigh_step<kHides>(s, from);
    uint32_t operand[kSteps][4];
    pack_products<T>(operand, s);
    fence_wgmma();
    add_products<T>(dv, operand, shared.dout(turn.stage));
    wait_wgmma<1>();
    hold(dp);
    find_slopes(s, dp);
    uint32_t slopes[kSteps][4];
    pack_products<T>(slopes, s);
    fence_wgmma();
    add_products<T>(dk, slopes, shared.q(turn.stage));
    wait_wgmma<0>();
    hold(dv);
    hold(dk);
    __syncwarp();  // all lanes have read the rows' numbers
    if (lane == 0) arrive(shared.empty(turn.stage));
    turn.next();
  }
};

template <class Traits>
__device__ __forceinline__ void consume_for_dkv(DkvConsumer<Traits>& consumer, const KeyJob& job) {
  using Shared = DkvShared<Traits>;
  const BackwardCall<Traits>& call = consumer.call;
  const int32_t group_key = job.first + consumer.group * 64;
  consumer.key = group_key + int(threadIdx.x) % 128 / 32 * 16 + consumer.lane / 4;
#pragma unroll
  for (float& x : consumer.dk) x = 0;
#pragma unroll
  for (float& x : consumer.dv) x = 0;
  wait_barrier(consumer.shared.keys_full(), 0);
  // From this block on all rows see all of the warpgroup's keys.
  const int32_t whole = Traits::kCausal ? (first_query(call, group_key + 63) + Shared::kStep - 1) / Shared::kStep : 0;
  for (int32_t head = 0; head < call.group; ++head) {
    int32_t block = job.first_block;
#pragma unroll 1
    for (; block < job.blocks && block < whole; ++block) consumer.template add_step<true>(block * Shared::kStep);
#pragma unroll 1
    for (; block < job.blocks; ++block) consumer.template add_step<false>(block * Shared::kStep);
  }
  store_gradient<Traits::kDepth, Traits::kVectorDk>(consumer.dk, float(Traits::kScale),
                                                    call.dk + job.batch * call.dk_view.batch + job.head * call.dk_view.head,
                                                    call.dk_view, consumer.key, call.keys);
  store_gradient<Traits::kValueDepth, Traits::kVectorDv>(consumer.dv, 1.0f,
                                                         call.dv + job.batch * call.dv_view.batch + job.head * call.dv_view.head,
                                                         call.dv_view, consumer.key, call.keys);
}

template <class Traits>
__device__ __forceinline__ void attention_dkv_hopper(const BackwardCall<Traits>& call, void* workspace, int32_t kv_heads,
                                                     const BackwardMaps& maps) {
  using Shared = DkvShared<Traits>;
  extern __shared__ __align__(1024) char memory[];
  const Shared shared{(address_of(memory) + 1023) & ~1023u};
  const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
  const KeyJob job = key_job_of_block(call, uint32_t(kv_heads));
  if (threadIdx.x == 0) {
    maps.prefetch();
    shared.set_up();
  }
  __syncthreads();
  wait_for_inputs();
  launch_dependents();
  if (warpgroup == 0) {
    share_registers<false>();
    const uint32_t tiles = (uint32_t(call.keys) + Shared::kKeys - 1) / Shared::kKeys;
    if (threadIdx.x == 0)
      load_for_dkv(shared, maps, job, call, row_numbers<float>(call, workspace, int64_t(gridDim.x / tiles) * call.group));
  } else {
    share_registers<true>();
    DkvConsumer<Traits> consumer{call, shared};
    consumer.group = warpgroup - 1;
    consumer.lane = int(threadIdx.x) % 32;
    consume_for_dkv(consumer, job);
  }
}

}  // namespace aicf::attention
