// Attention of half types for few rows or short sequences (sm_80): the keys are split among blocks, and each
// tile of kKeys keys among the block's four warps. The queries of all heads that share a head of k and v are
// rows of one tile of 16, so that keys are read once. If one block has all keys it stores the result. Else,
// on Hopper, the blocks of a cluster take tiles in turn and combine their parts through shared memory;
// or parts of a few tiles each go to the workspace and a second launch combines them.
//
// Order, for every row alone: a warp adds up its quarters of the block's tiles; the four warps' parts are
// added in order; the blocks of a cluster in order, or parts in the workspace in four interleaved
// chains, these in order. So bits depend on the number of keys, on kKeys and on the way of splitting.
#pragma once

#include "attention/cuda/split_parts.cuh"

namespace aicf::attention {

// Queries and keys are what they are; see roped.cuh for another way.
struct AsTheyAre {
  static constexpr bool kRopes = false, kEarly = false;
};

enum class Split { kSingle, kCluster, kWorkspace };  // who has all the keys of a row

// What a block of the kernel does, in the order of run(). kBlocks: of the cluster. kTiles: tiles of keys per part of the
// workspace. kStages: tiles in flight.
template <class Traits, int kKeys, Split kSplit, int kBlocks, int kTiles, int kStages, class Rope>
struct SplitAttention {
  using T = typename Traits::Element;
  using Mask = typename Traits::Mask;
  static constexpr int kDepth = Traits::kDepth, kValueDepth = Traits::kValueDepth, kWarps = 4, kThreads = 32 * kWarps,
                       kWarpKeys = kKeys / kWarps;
  static constexpr int kRowBytes = HalfTile<kDepth>::kBytesPerRow, kValueBytes = HalfTile<kValueDepth>::kBytesPerRow,
                       kStageBytes = kKeys * (kRowBytes + kValueBytes);
  static constexpr int kColumns = HalfTile<kValueDepth>::kPadded, kQuads = kColumns / 4;
  static constexpr int kSumStride = kColumns + 8;  // floats; keeps the fragments of a warp on different banks
  static constexpr int32_t kStep = kBlocks;  // from one of its tiles to the next
  static_assert(!Rope::kRopes || Traits::kWindow == 0, "tiles that begin where the cache begins");
  static_assert((kSplit == Split::kCluster) == (kBlocks > 1));
  using Sends = Sent<kBlocks, kSplit == Split::kCluster ? 16 * kQuads : 1>;

  const Call<Traits>& call;
  const Rope& rope;
  void* const workspace;
  Sends& sent;
  char *const q_tile, *const stages;
  const int warp, lane;
  int32_t all_rows, row_tiles, splits, split, first, kv_head;  // rows [first, first + 16) of all that share keys
  int32_t first_tile, end_tile;                                // of keys
  int64_t batch;
  const T *k, *v;
  float mask_values[kWarpKeys / 8][2];
  const Mask* mask[2];  // of the lane's two rows
  SeenKeys<Traits> seen;
  Rows state;
  float o[kColumns / 2];

  __device__ __forceinline__ SplitAttention(const Call<Traits>& call, const Rope& rope, void* workspace, char* shared,
                                            Sends& sent)
      : call(call),
        rope(rope),
        workspace(workspace),
        sent(sent),
        q_tile(shared),
        stages(shared + 16 * kRowBytes),
        warp(int(threadIdx.x) / 32),
        lane(int(threadIdx.x) % 32) {
    const int32_t tiles = tile_count<Traits, kKeys>(call);
    splits = kSplit == Split::kWorkspace ? part_count<Traits, kKeys, kTiles>(call) : kBlocks;
    all_rows = call.group * call.queries;
    row_tiles = (all_rows + 15) / 16;
    uint32_t index = blockIdx.x;
    split = int32_t(index % uint32_t(splits));
    index /= uint32_t(splits);
    first = int32_t(index % uint32_t(row_tiles)) * 16;
    index /= uint32_t(row_tiles);
    const int32_t kv_heads = call.heads / call.group;
    kv_head = int32_t(index % uint32_t(kv_heads));
    batch = index / uint32_t(kv_heads);
    k = call.k + batch * call.k_view.batch + kv_head * call.k_view.head;
    v = call.v + batch * call.v_view.batch + kv_head * call.v_view.head;
    first_tile = kSplit == Split::kWorkspace ? split * kTiles : split;
    if constexpr (Traits::kWindow > 0) first_tile += first_tile_of<Traits, kKeys>(call);
    end_tile = kSplit == Split::kWorkspace && first_tile + kTiles < tiles ? first_tile + kTiles : tiles;
  }
  __device__ __forceinline__ int32_t head_of(int32_t row) const { return kv_head * call.group + row / call.queries; }
  __device__ __forceinline__ char* k_tile(int stage) const { return stages + stage * kStageBytes; }
  __device__ __forceinline__ char* v_tile(int stage) const { return k_tile(stage) + kKeys * kRowBytes; }
  // Of the four warps, where keys and values were once they have been used: [warp][row][column], and maximum and sum
  // [warp][row].
  __device__ __forceinline__ float* sums() const { return reinterpret_cast<float*>(stages); }
  __device__ __forceinline__ float* stats() const { return sums() + kWarps * 16 * kSumStride; }

  // ---- into shared memory ----

  // Of the warp's quarter of a tile, which no other warp reads: one group of copies for the keys and one for the values,
  // empty past the end.
  __device__ __forceinline__ void copy_tile(int32_t tile, int stage) const {
    const int32_t from = tile * kKeys + warp * kWarpKeys, left = call.keys - from;
    const int64_t row = left > 0 ? from : 0;
    if (tile < end_tile)
      copy_rows<kDepth, kWarpKeys, 32, Traits::kVectorK>(k_tile(stage) + warp * kWarpKeys * kRowBytes,
                                                         k + row * call.k_view.row, call.k_view.row, call.k_view.column,
                                                         left, lane);
    commit_copies();
    if (tile < end_tile)
      copy_rows<kValueDepth, kWarpKeys, 32, Traits::kVectorV>(v_tile(stage) + warp * kWarpKeys * kValueBytes,
                                                              v + row * call.v_view.row, call.v_view.row,
                                                              call.v_view.column, left, lane);
    commit_copies();
  }
  __device__ __forceinline__ void copy_first_tiles() const {
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) copy_tile(first_tile + stage * kStep, stage);
  }
  // Those that the rope makes are left out.
  __device__ __forceinline__ void copy_queries() const {
    constexpr int kChunks = HalfTile<kDepth>::kPadded / 8;
    const T* q = call.q + batch * call.q_view.batch;
    for (int at = int(threadIdx.x); at < 16 * kChunks; at += kThreads) {
      const int32_t row = first + at / kChunks;
      const bool inside = row < all_rows;
      if (Rope::kRopes && inside) continue;
      const T* line = inside ? q + head_of(row) * call.q_view.head + row % call.queries * call.q_view.row : q;
      copy_chunk<kDepth, Traits::kVectorQ>(shared_address(q_tile), q_tile, at / kChunks, at % kChunks, line,
                                           call.q_view.column, inside);
    }
  }
  // Loaded before the keys, the mask's values arrive while they do.
  __device__ __forceinline__ void load_mask(int32_t tile) {
    if constexpr (Traits::kMaskPerKey) {
      const Mask* from = call.mask + batch * call.mask_view.batch + kv_head * call.group * call.mask_view.head;
#pragma unroll
      for (int i = 0; i < kWarpKeys / 4; ++i) {
        const int32_t at = tile * kKeys + warp * kWarpKeys + lane % 4 * 2 + i / 2 * 8 + i % 2;
        mask_values[i / 2][i % 2] = 0;
        if (at < call.keys)
          mask_values[i / 2][i % 2] = Scores<Traits>::template mask_value<float>(from[at * call.mask_view.column]);
      }
    }
  }

  // ---- the rope ----

  // Row `row` of the caches is written by this launch, in the block that has its tile.
  __device__ __forceinline__ bool holds(int32_t row) const {
    const int32_t tile = row / kKeys;
    return kSplit == Split::kSingle || (kSplit == Split::kCluster ? tile % kBlocks : tile / kTiles) == split;
  }
  __device__ __forceinline__ void run_rope(bool own) const {
    rope.template run<kThreads>(reinterpret_cast<T*>(q_tile), HalfTile<kDepth>::kStride, batch, kv_head, call.group, own);
  }
  // Caches and mask are read before the launches before have ended. The step's row, if it belongs to a tile that has come
  // without it, is put there.
  __device__ __forceinline__ void begin_early() {
    copy_first_tiles();
    load_mask(first_tile);
    const int32_t row = rope.row(batch), turn = (row / kKeys - first_tile) / kStep;
    const bool own = holds(row);
    wait_for_inputs();
    launch_dependents();
    if (own && turn < kStages) {
      wait_copies<0>();
      __syncthreads();
      rope.template put_row<kThreads>(reinterpret_cast<T*>(k_tile(turn)) + row % kKeys * HalfTile<kDepth>::kStride,
                                      reinterpret_cast<T*>(v_tile(turn)) + row % kKeys * HalfTile<kValueDepth>::kStride,
                                      batch, kv_head);
    }
    run_rope(own);
  }
  // The block that appends the step's row does so before it copies its tiles.
  __device__ __forceinline__ void begin_late() const {
    const bool own = holds(rope.row(batch));
    if (!own) copy_first_tiles();
    run_rope(own);
    if (own) {
      __syncthreads();
      copy_first_tiles();
    }
  }

  // ---- in registers ----

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = first + lane / 4 + 8 * half;
      seen.set(half, call, row % call.queries, row < all_rows);
      mask[half] = nullptr;
      if (Traits::kHasMask && row < all_rows)
        mask[half] = call.mask + batch * call.mask_view.batch + head_of(row) * call.mask_view.head +
                     row % call.queries * call.mask_view.row;
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) o[i] = 0;
  }

  // s = q · kᵀ of the warp's quarter of a tile.
  __device__ __forceinline__ void multiply_keys(float (&s)[kWarpKeys / 2], int stage) const {
    const uint32_t q_address = shared_address(q_tile) + lane_rows_first<HalfTile<kDepth>>();
    const uint32_t k_address =
        shared_address(k_tile(stage)) + warp * kWarpKeys * kRowBytes + lane_columns_first<HalfTile<kDepth>>();
#pragma unroll
    for (int i = 0; i < kWarpKeys / 2; ++i) s[i] = 0;
#pragma unroll
    for (int d = 0; d < HalfTile<kDepth>::kPadded / 16; ++d) {
      uint32_t a[4];
      load_matrices(a, q_address + d * 32);
#pragma unroll
      for (int n = 0; n < kWarpKeys / 16; ++n) {
        uint32_t keys[4];
        load_matrices(keys, k_address + n * 16 * kRowBytes + d * 32);
        multiply_add<T>(s + n * 8, a, keys[0], keys[1]);
        multiply_add<T>(s + n * 8 + 4, a, keys[2], keys[3]);
      }
    }
  }

  // Scores become weights, and what was summed before is scaled to the new maxima.
  __device__ __forceinline__ void weigh_scores(float (&s)[kWarpKeys / 2], int32_t tile) {
    const int32_t warp_key = tile * kKeys + warp * kWarpKeys, key = warp_key + lane % 4 * 2;
    const bool hides = __any_sync(0xffffffffu, seen.hides_any(warp_key, kWarpKeys));
    if constexpr (Traits::kMaskPerKey)
      finish_scores<Traits>(
          s, [&](int tile) { return make_float2(mask_values[tile][0], mask_values[tile][1]); }, key, seen, hides);
    else
      finish_scores<Traits>(s, mask, call.mask_view.column, key, seen, hides);
    float scale[2];
    weigh<Traits>(s, state, scale);
    rescale(o, scale);
  }

  // o += weights · values of the warp's quarter of a tile.
  __device__ __forceinline__ void add_values(const float (&s)[kWarpKeys / 2], int stage) {
    const uint32_t v_address =
        shared_address(v_tile(stage)) + warp * kWarpKeys * kValueBytes + lane_rows_first<HalfTile<kValueDepth>>();
#pragma unroll
    for (int key = 0; key < kWarpKeys / 16; ++key) {
      uint32_t a[4];
      pack_weights<T>(a, s + key * 8);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t values[4];
        load_matrices_transposed(values, v_address + key * 16 * kValueBytes + n * 32);
        multiply_add<T>(o + n * 8, a, values[0], values[1]);
        multiply_add<T>(o + n * 8 + 4, a, values[2], values[3]);
      }
    }
  }

  __device__ __forceinline__ void add_tile(int32_t tile, int stage) {
    float s[kWarpKeys / 2];
    if (!Rope::kEarly || tile != first_tile) load_mask(tile);
    wait_copies<2 * kStages - 1>();
    __syncwarp();
    multiply_keys(s, stage);
    weigh_scores(s, tile);
    wait_copies<2 * kStages - 2>();
    __syncwarp();
    add_values(s, stage);
    __syncwarp();
    copy_tile(tile + kStages * kStep, stage);
  }

  // ---- parts are combined ----

  // The four warps' parts go to shared memory, which no copy writes any more.
  __device__ __forceinline__ void keep_parts() {
    total_sums(state);
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * 16 + lane / 4 + 8 * half;
      if (lane % 4 == 0)
        *reinterpret_cast<float2*>(stats() + 2 * row) = make_float2(state.maximum[half], state.sum[half]);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n)
        *reinterpret_cast<float2*>(sums() + row * kSumStride + n * 8 + lane % 4 * 2) =
            make_float2(o[n * 4 + 2 * half], o[n * 4 + 2 * half + 1]);
    }
    __syncthreads();
  }

  // Group `at` of four columns of the block's sum: the result, or a part for the block of the cluster that adds up these
  // columns, or one in the workspace.
  __device__ __forceinline__ void hand_on(Sum4& total, int at) const {
    const int32_t row = first + at / kQuads, head = head_of(row), query = row % call.queries;
    const int column = at % kQuads * 4;
    if constexpr (kSplit == Split::kSingle) {
      store_sum(call, total, batch, head, query, column);
    } else if constexpr (kSplit == Split::kCluster) {
      sent.send(at, split, total.x, total.top, total.sum);
    } else {
      const int64_t all = int64_t(gridDim.x) / splits / row_tiles * all_rows;
      const Parts<Traits> parts(workspace, all, splits);
      const int64_t part = ((batch * call.heads + head) * call.queries + query) * splits + split;
      *reinterpret_cast<float4*>(parts.values + part * kColumns + column) =
          make_float4(total.x[0], total.x[1], total.x[2], total.x[3]);
      if (column == 0) *reinterpret_cast<float2*>(parts.stats + part * 2) = make_float2(total.top, total.sum);
    }
  }

  __device__ __forceinline__ void add_warps() const {
#pragma unroll 1
    for (int at = int(threadIdx.x); at < 16 * kQuads; at += kThreads) {
      const int local = at / kQuads, column = at % kQuads * 4;
      if (first + local >= all_rows) break;
      Sum4 total;
      total.top = minus_infinity();
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total.top = fmaxf(total.top, stats()[2 * (w * 16 + local)]);
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        total.add<Traits>(*reinterpret_cast<const float2*>(stats() + 2 * (w * 16 + local)),
                          *reinterpret_cast<const float4*>(sums() + (w * 16 + local) * kSumStride + column));
      hand_on(total, at);
    }
  }

  __device__ __forceinline__ void add_blocks() const {
#pragma unroll 1
    for (int at = int(threadIdx.x) * kBlocks + split; at < 16 * kQuads; at += kThreads * kBlocks) {
      const int32_t row = first + at / kQuads;
      if (row >= all_rows) break;
      sent.wait();
      const int slot = at / kBlocks;
      Sum4 total;
      total.top = minus_infinity();
#pragma unroll
      for (int rank = 0; rank < kBlocks; ++rank) total.top = fmaxf(total.top, sent.stats[rank][slot][0]);
#pragma unroll
      for (int rank = 0; rank < kBlocks; ++rank)
        total.add<Traits>(*reinterpret_cast<const float2*>(sent.stats[rank][slot]),
                          *reinterpret_cast<const float4*>(sent.values[rank][slot]));
      store_sum(call, total, batch, head_of(row), row % call.queries, at % kQuads * 4);
    }
  }

  __device__ __forceinline__ void run() {
    if constexpr (kSplit == Split::kCluster) sent.set_up(min(16, all_rows - first) * kQuads, split);
    if constexpr (!Rope::kEarly) {
      wait_for_inputs();
      launch_dependents();
    }
    copy_queries();
    if constexpr (Rope::kEarly)
      begin_early();
    else if constexpr (Rope::kRopes)
      begin_late();
    else
      copy_first_tiles();
    clear();
    wait_copies<2 * kStages - 1>();
    __syncthreads();  // for the queries, and what the rope has put into the caches or a tile
    int stage = 0;
    for (int32_t tile = first_tile; tile < end_tile; tile += kStep) {
      add_tile(tile, stage);
      stage = stage + 1 < kStages ? stage + 1 : 0;
    }
    keep_parts();
    if constexpr (kSplit == Split::kCluster) sent.cluster_wait();
    add_warps();
    if constexpr (kSplit == Split::kCluster) add_blocks();
  }
};

template <class Traits, int kKeys, Split kSplit, int kBlocks, int kTiles, int kStages, class Rope = AsTheyAre>
__device__ __forceinline__ void attend_split(const Call<Traits>& call, void* workspace, const Rope& rope = Rope()) {
  using Attention = SplitAttention<Traits, kKeys, kSplit, kBlocks, kTiles, kStages, Rope>;
  extern __shared__ __align__(16) char shared[];
  __shared__ typename Attention::Sends sent;
  Attention(call, rope, workspace, shared, sent).run();
}

}  // namespace aicf::attention
