// Attention of half types for few rows or short sequences (sm_80): the keys are split among blocks, and each
// tile of kKeys keys among the block's four warps. The queries of all heads that share a head of k and v are
// rows of one tile of 16, so that keys are read once. If one block holds all keys it stores the result. Else,
// on Hopper, the eight blocks of a cluster take tiles in turn and combine their parts through shared memory;
// or parts of a few tiles each go to the workspace and a second launch combines them.
//
// Order, for every row alone: a warp adds up its quarters of the block's tiles; the four warps' parts are
// added in order; the eight blocks of a cluster in order, or parts in the workspace in four interleaved
// chains, these in order. So bits depend on the number of keys, on kKeys and on the way of splitting.
#pragma once

#include "attention/mma.cuh"
#include "cluster_sends.cuh"

namespace aicf::attention {

// The workspace: sums of values [row][split][columns], then the pairs maximum, sum of weights [row][split].
template <class Traits>
struct Parts {
  static constexpr int kColumns = HalfTile<Traits::kValueDepth>::kPadded;
  float* values;
  float* stats;
  int32_t splits;
  __device__ __forceinline__ Parts(void* workspace, int64_t rows, int32_t count)
      : values(static_cast<float*>(workspace)), stats(values + rows * count * kColumns), splits(count) {}
};

template <class Traits, int kKeys>
__device__ __forceinline__ int32_t split_count(const Call<Traits>& call) {
  return call.keys > 0 ? (call.keys + kKeys - 1) / kKeys : 1;
}

__device__ __forceinline__ float reference_of(float maximum) {
  return maximum == minus_infinity() ? 0.0f : maximum;
}

// Stores four neighbouring columns of one row of the result.
template <class Traits>
__device__ __forceinline__ void store_four(const Call<Traits>& call, int64_t batch, int32_t head, int32_t row,
                                           int column, const float (&x)[4]) {
  using T = typename Traits::Element;
  T* out = call.out + batch * call.out_view.batch + head * call.out_view.head + row * call.out_view.row;
  if constexpr (Traits::kVectorOut) {
    if (column < Traits::kValueDepth)
      *reinterpret_cast<uint2*>(out + column) = make_uint2(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (column + i < Traits::kValueDepth) out[(column + i) * call.out_view.column] = from_float<T>(x[i]);
  }
}

// Queries and keys are what they are; see roped.cuh for another way.
struct AsTheyAre {
  static constexpr bool kRopes = false, kEarly = false;
};

enum class Split { kSingle, kCluster, kWorkspace };  // who has all the keys of a row

constexpr int kClusterBlocks = 8;

// What the blocks of a cluster send the one that adds their parts: four columns each of every kClusterBlocks-th group
// of them, with the row's maximum and sum of weights.
template <int kGroups>
struct Sent {
  static constexpr int kOwn = kGroups / kClusterBlocks, kBytes = 6 * sizeof(float);
  float values[kClusterBlocks][kOwn][4], stats[kClusterBlocks][kOwn][2];
  uint64_t barrier;

  // By all threads; `groups`: that have a row. The cluster has met at the end of meet().
  __device__ __forceinline__ void set_up(int groups, int split) {
    if (threadIdx.x == 0) {
      const int own = groups > split ? (groups - split + kClusterBlocks - 1) / kClusterBlocks : 0;
      expect_sends(shared_address(&barrier), kClusterBlocks * own * kBytes);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  }
  static __device__ __forceinline__ void meet() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

  __device__ __forceinline__ void send(int group, int split, const float (&x)[4], float top, float sum) {
    const int rank = group % kClusterBlocks, slot = group / kClusterBlocks;
    const uint32_t there = in_block(shared_address(&barrier), rank);
    send_four(in_block(shared_address(values[split][slot]), rank), there, x[0], x[1], x[2], x[3]);
    send_two(in_block(shared_address(stats[split][slot]), rank), there, top, sum);
  }
  __device__ __forceinline__ void wait() const { wait_for_sends(shared_address(&barrier)); }
};

// Parts of four columns of one row, each relative to its own maximum, added up relative to the largest.
struct Sum4 {
  float top = 0, sum = 0, x[4] = {0, 0, 0, 0};

  template <class Traits>
  __device__ __forceinline__ void add(const float2& stat, const float4& part) {
    const float factor = power_of_two(Scores<Traits>::kMultiplier * (stat.x - reference_of(top)));
    sum = __fmaf_rn(factor, stat.y, sum);
    x[0] = __fmaf_rn(factor, part.x, x[0]);
    x[1] = __fmaf_rn(factor, part.y, x[1]);
    x[2] = __fmaf_rn(factor, part.z, x[2]);
    x[3] = __fmaf_rn(factor, part.w, x[3]);
  }
  __device__ __forceinline__ void divide() {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = sum == 0 ? 0.0f : __fdiv_rn(x[i], sum);
  }
};

template <class Traits>
__device__ __forceinline__ void store_sum(const Call<Traits>& call, Sum4& total, int64_t batch, int32_t head,
                                          int32_t query, int column) {
  total.divide();
  store_four(call, batch, head, query, column, total.x);
  if (call.lse != nullptr && column == 0)
    call.lse[(batch * call.heads + head) * call.queries + query] =
        total.sum == 0 ? minus_infinity() : natural_maximum<Traits>(total.top) + logf(total.sum);
}

// kTiles: tiles of keys per part of the workspace. kStages: tiles in flight.
template <class Traits, int kKeys, Split kSplit, int kTiles, int kStages, class Rope = AsTheyAre>
__device__ __forceinline__ void attend_split(const Call<Traits>& call, void* workspace, const Rope& rope = Rope()) {
  using T = typename Traits::Element;
  constexpr int kDepth = Traits::kDepth, kValueDepth = Traits::kValueDepth, kWarps = 4,
                kWarpKeys = kKeys / kWarps;
  constexpr int kColumns = HalfTile<kValueDepth>::kPadded, kThreads = 32 * kWarps, kQuads = kColumns / 4;
  constexpr int kSumStride = kColumns + 8;  // floats; keeps the fragments of a warp on different banks
  constexpr int kStageBytes = kKeys * (HalfTile<kDepth>::kBytesPerRow + HalfTile<kValueDepth>::kBytesPerRow);
  extern __shared__ __align__(16) char shared[];
  char* const q_tile = shared;
  char* const stages = q_tile + 16 * HalfTile<kDepth>::kBytesPerRow;
  float* const sums =
      reinterpret_cast<float*>(stages);  // once keys and values have been used: [warp][row][column]
  float* const stats = sums + kWarps * 16 * kSumStride;  // maximum, sum [warp][row]

  const int32_t tiles = split_count<Traits, kKeys>(call);
  const int32_t splits = kSplit == Split::kSingle    ? 1
                         : kSplit == Split::kCluster ? kClusterBlocks
                                                     : split_count<Traits, kKeys * kTiles>(call);
  const int32_t all_rows = call.group * call.queries, row_tiles = (all_rows + 15) / 16;
  uint32_t index = blockIdx.x;
  const int32_t split = int32_t(index % uint32_t(splits));
  index /= uint32_t(splits);
  const int32_t first = int32_t(index % uint32_t(row_tiles)) * 16;
  index /= uint32_t(row_tiles);
  const int32_t kv_heads = call.heads / call.group;
  const int32_t kv_head = int32_t(index % uint32_t(kv_heads));
  const int64_t b = index / uint32_t(kv_heads);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const auto head_of = [&](int32_t row) { return kv_head * call.group + row / call.queries; };

  const T* const k = call.k + b * call.k_view.batch + kv_head * call.k_view.head;
  const T* const v = call.v + b * call.v_view.batch + kv_head * call.v_view.head;
  const auto k_tile = [&](int stage) { return stages + stage * kStageBytes; };
  const auto v_tile = [&](int stage) { return k_tile(stage) + kKeys * HalfTile<kDepth>::kBytesPerRow; };
  // One group of copies for the keys and one for the values, empty past the end.
  constexpr int32_t kStep = kSplit == Split::kCluster ? kClusterBlocks : 1;
  const int32_t first_tile = kSplit == Split::kWorkspace ? split * kTiles : split;
  const int32_t end_tile =
      kSplit == Split::kWorkspace && first_tile + kTiles < tiles ? first_tile + kTiles : tiles;
  const auto copy_tile = [&](int32_t tile, int stage) {
    const int32_t from = tile * kKeys;
    if (tile < end_tile)
      copy_rows<kDepth, kKeys, kThreads, Traits::kVectorK>(
          k_tile(stage), k + from * call.k_view.row, call.k_view.row, call.k_view.column, call.keys - from);
    commit_copies();
    if (tile < end_tile)
      copy_rows<kValueDepth, kKeys, kThreads, Traits::kVectorV>(
          v_tile(stage), v + from * call.v_view.row, call.v_view.row, call.v_view.column, call.keys - from);
    commit_copies();
  };

  __shared__ Sent<kSplit == Split::kCluster ? 16 * kQuads : kClusterBlocks> sent;
  if constexpr (kSplit == Split::kCluster) sent.set_up(min(16, all_rows - first) * kQuads, split);

  // Loaded before the keys, the mask's values arrive while they do.
  float mask_values[kWarpKeys / 8][2];
  const auto load_mask = [&](int32_t tile) {
    if constexpr (Traits::kMaskPerKey) {
      const typename Traits::Mask* mask =
          call.mask + b * call.mask_view.batch + kv_head * call.group * call.mask_view.head;
#pragma unroll
      for (int i = 0; i < kWarpKeys / 4; ++i) {
        const int32_t at = tile * kKeys + warp * kWarpKeys + lane % 4 * 2 + i / 2 * 8 + i % 2;
        mask_values[i / 2][i % 2] = 0;
        if (at < call.keys)
          mask_values[i / 2][i % 2] = Scores<Traits>::template mask_value<float>(mask[at * call.mask_view.column]);
      }
    }
  };
  const auto copy_first_tiles = [&] {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) copy_tile(first_tile + stage * kStep, stage);
  };
  // Row `row` of the caches is written by this launch, in the block that has its tile.
  const auto holds = [&](int32_t row) {
    const int32_t tile = row / kKeys;
    return kSplit == Split::kSingle || (kSplit == Split::kCluster ? tile % kClusterBlocks : tile / kTiles) == split;
  };
  if constexpr (!Rope::kEarly) {
    wait_for_inputs();
    launch_dependents();
  }
  {
    constexpr int kChunks = HalfTile<kDepth>::kPadded / 8;
    const T* q = call.q + b * call.q_view.batch;
    for (int at = int(threadIdx.x); at < 16 * kChunks; at += kThreads) {
      const int32_t row = first + at / kChunks;
      const bool inside = row < all_rows;
      if (Rope::kRopes && inside) continue;
      const T* line = inside ? q + head_of(row) * call.q_view.head + row % call.queries * call.q_view.row : q;
      copy_chunk<kDepth, Traits::kVectorQ>(shared_address(q_tile), q_tile, at / kChunks, at % kChunks, line,
                                           call.q_view.column, inside);
    }
  }
  if constexpr (Rope::kEarly) {
    copy_first_tiles();
    load_mask(first_tile);
    const int32_t row = rope.row(b), turn = (row / kKeys - first_tile) / kStep;
    const bool own = holds(row);
    wait_for_inputs();
    launch_dependents();
    if (own && turn < kStages) {  // its tile has come without the row
      wait_copies<0>();
      __syncthreads();
      rope.template put_row<kThreads>(reinterpret_cast<T*>(k_tile(turn)) + row % kKeys * HalfTile<kDepth>::kStride,
                                      reinterpret_cast<T*>(v_tile(turn)) + row % kKeys * HalfTile<kValueDepth>::kStride,
                                      b, kv_head);
    }
    rope.template run<kThreads>(reinterpret_cast<T*>(q_tile), HalfTile<kDepth>::kStride, b, kv_head, call.group, own);
  } else if constexpr (Rope::kRopes) {
    const bool own = holds(rope.row(b));
    if (!own) copy_first_tiles();
    rope.template run<kThreads>(reinterpret_cast<T*>(q_tile), HalfTile<kDepth>::kStride, b, kv_head, call.group, own);
    if (own) {
      __syncthreads();
      copy_first_tiles();
    }
  } else {
    copy_first_tiles();
  }

  int32_t visible[2];
  const typename Traits::Mask* mask[2] = {nullptr, nullptr};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = first + lane / 4 + 8 * half;
    visible[half] = row < all_rows ? visible_keys(call, row % call.queries) : 0;
    if (Traits::kHasMask && row < all_rows)
      mask[half] = call.mask + b * call.mask_view.batch + head_of(row) * call.mask_view.head +
                   row % call.queries * call.mask_view.row;
  }
  Rows state;
  float o[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) o[i] = 0;
  const uint32_t q_address = shared_address(q_tile) + lane_rows_first<kDepth>();

  int stage = 0;
  for (int32_t tile = first_tile; tile < end_tile; tile += kStep) {
    float s[kWarpKeys / 2];
#pragma unroll
    for (int i = 0; i < kWarpKeys / 2; ++i) s[i] = 0;
    const int32_t warp_key = tile * kKeys + warp * kWarpKeys, key = warp_key + lane % 4 * 2;
    if (!Rope::kEarly || tile != first_tile) load_mask(tile);
    wait_copies<2 * kStages - 1>();
    __syncthreads();
    const uint32_t k_address = shared_address(k_tile(stage)) +
                               warp * kWarpKeys * HalfTile<kDepth>::kBytesPerRow +
                               lane_columns_first<kDepth>();
#pragma unroll
    for (int d = 0; d < HalfTile<kDepth>::kPadded / 16; ++d) {
      uint32_t a[4];
      load_matrices(a, q_address + d * 32);
#pragma unroll
      for (int n = 0; n < kWarpKeys / 16; ++n) {
        uint32_t keys[4];
        load_matrices(keys, k_address + n * 16 * HalfTile<kDepth>::kBytesPerRow + d * 32);
        multiply_add<T>(s + n * 8, a, keys[0], keys[1]);
        multiply_add<T>(s + n * 8 + 4, a, keys[2], keys[3]);
      }
    }
    const bool hides =
        __any_sync(0xffffffffu, visible[0] < warp_key + kWarpKeys || visible[1] < warp_key + kWarpKeys);
    if constexpr (Traits::kMaskPerKey)
      finish_scores<Traits>(
          s, [&](int tile) { return make_float2(mask_values[tile][0], mask_values[tile][1]); }, key, visible,
          hides);
    else
      finish_scores<Traits>(s, mask, call.mask_view.column, key, visible, hides);
    float scale[2];
    weigh<Traits>(s, state, scale);
    rescale(o, scale);

    wait_copies<2 * kStages - 2>();
    __syncthreads();
    const uint32_t v_address = shared_address(v_tile(stage)) +
                               warp * kWarpKeys * HalfTile<kValueDepth>::kBytesPerRow +
                               lane_rows_first<kValueDepth>();
#pragma unroll
    for (int key = 0; key < kWarpKeys / 16; ++key) {
      uint32_t a[4];
      pack_weights<T>(a, s + key * 8);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t values[4];
        load_matrices_transposed(values, v_address + key * 16 * HalfTile<kValueDepth>::kBytesPerRow + n * 32);
        multiply_add<T>(o + n * 8, a, values[0], values[1]);
        multiply_add<T>(o + n * 8 + 4, a, values[2], values[3]);
      }
    }
    __syncthreads();
    copy_tile(tile + kStages * kStep, stage);
    stage = stage + 1 < kStages ? stage + 1 : 0;
  }
  total_sums(state);

  // The four warps' parts meet in shared memory, which no copy writes any more.
  wait_copies<0>();
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + lane / 4 + 8 * half;
    if (lane % 4 == 0)
      *reinterpret_cast<float2*>(stats + 2 * row) = make_float2(state.maximum[half], state.sum[half]);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
      *reinterpret_cast<float2*>(sums + row * kSumStride + n * 8 + lane % 4 * 2) =
          make_float2(o[n * 4 + 2 * half], o[n * 4 + 2 * half + 1]);
  }
  __syncthreads();
  if constexpr (kSplit == Split::kCluster) sent.meet();
#pragma unroll 1
  for (int at = int(threadIdx.x); at < 16 * kQuads; at += kThreads) {
    const int local = at / kQuads, column = at % kQuads * 4;
    const int32_t row = first + local;
    if (row >= all_rows) break;
    Sum4 total;
    total.top = minus_infinity();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total.top = fmaxf(total.top, stats[2 * (w * 16 + local)]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      total.add<Traits>(*reinterpret_cast<const float2*>(stats + 2 * (w * 16 + local)),
                        *reinterpret_cast<const float4*>(sums + (w * 16 + local) * kSumStride + column));
    const int32_t head = head_of(row), query = row % call.queries;
    if constexpr (kSplit == Split::kSingle) {
      store_sum(call, total, b, head, query, column);
    } else if constexpr (kSplit == Split::kCluster) {
      sent.send(at, split, total.x, total.top, total.sum);
    } else {
      const int64_t all = int64_t(gridDim.x) / splits / row_tiles * all_rows;
      const Parts<Traits> parts(workspace, all, splits);
      const int64_t part = ((b * call.heads + head) * call.queries + query) * splits + split;
      *reinterpret_cast<float4*>(parts.values + part * kColumns + column) =
          make_float4(total.x[0], total.x[1], total.x[2], total.x[3]);
      if (column == 0) *reinterpret_cast<float2*>(parts.stats + part * 2) = make_float2(total.top, total.sum);
    }
  }

  if constexpr (kSplit == Split::kCluster) {
#pragma unroll 1
    for (int at = int(threadIdx.x) * kClusterBlocks + split; at < 16 * kQuads; at += kThreads * kClusterBlocks) {
      const int32_t row = first + at / kQuads;
      if (row >= all_rows) break;
      sent.wait();
      const int slot = at / kClusterBlocks;
      Sum4 total;
      total.top = minus_infinity();
#pragma unroll
      for (int rank = 0; rank < kClusterBlocks; ++rank) total.top = fmaxf(total.top, sent.stats[rank][slot][0]);
#pragma unroll
      for (int rank = 0; rank < kClusterBlocks; ++rank)
        total.add<Traits>(*reinterpret_cast<const float2*>(sent.stats[rank][slot]),
                          *reinterpret_cast<const float4*>(sent.values[rank][slot]));
      store_sum(call, total, b, head_of(row), row % call.queries, at % kQuads * 4);
    }
  }
}

// One block of 128 threads per row adds the row's parts.
// kKeys: of a part.
template <class Traits, int kKeys>
__device__ __forceinline__ void combine_splits(const Call<Traits>& call, void* workspace) {
  constexpr int kColumns = HalfTile<Traits::kValueDepth>::kPadded, kHeld = (kColumns + 31) / 32;
  constexpr float kMultiplier = Scores<Traits>::kMultiplier;
  __shared__ float tops[4], chain_sums[4], chain_values[4][kHeld * 32];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int32_t splits = split_count<Traits, kKeys>(call);
  wait_for_inputs();
  launch_dependents();
  const Parts<Traits> parts(workspace, gridDim.x, splits);
  const int64_t first = int64_t(blockIdx.x) * splits;

  float top = minus_infinity();
  for (int32_t split = int32_t(threadIdx.x); split < splits; split += 128)
    top = fmaxf(top, parts.stats[(first + split) * 2]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));

  float sum = 0, x[kHeld] = {};
  for (int32_t split = warp; split < splits; split += 4) {
    const float2 stat = *reinterpret_cast<const float2*>(parts.stats + (first + split) * 2);
    const float factor = power_of_two(kMultiplier * (stat.x - reference_of(top)));
    sum = __fmaf_rn(factor, stat.y, sum);
#pragma unroll
    for (int c = 0; c < kHeld; ++c)
      if (lane + 32 * c < kColumns)
        x[c] = __fmaf_rn(factor, parts.values[(first + split) * kColumns + lane + 32 * c], x[c]);
  }
  if (lane == 0) chain_sums[warp] = sum;
#pragma unroll
  for (int c = 0; c < kHeld; ++c) chain_values[warp][lane + 32 * c] = x[c];
  __syncthreads();

  sum = ((chain_sums[0] + chain_sums[1]) + chain_sums[2]) + chain_sums[3];
  const int32_t query = int32_t(blockIdx.x % uint32_t(call.queries));
  const uint32_t rest = blockIdx.x / uint32_t(call.queries);
  const int column = int(threadIdx.x) * 4;
  if (column < kColumns) {
    float y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float total =
          ((chain_values[0][column + i] + chain_values[1][column + i]) + chain_values[2][column + i]) +
          chain_values[3][column + i];
      y[i] = sum == 0 ? 0.0f : __fdiv_rn(total, sum);
    }
    store_four(call, rest / uint32_t(call.heads), int32_t(rest % uint32_t(call.heads)), query, column, y);
  }
  if (call.lse != nullptr && threadIdx.x == 0)
    call.lse[blockIdx.x] = sum == 0 ? minus_infinity() : natural_maximum<Traits>(top) + logf(sum);
}

}  // namespace aicf::attention
