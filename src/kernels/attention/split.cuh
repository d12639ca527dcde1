// Attention of half types for few rows or short sequences (sm_80): the keys are split among blocks, kKeys
// each, and among the block's four warps. The queries of all heads that share a head of k and v are rows of
// one tile of 16, so that keys are read once. If one block holds all keys it stores the result; else parts go
// to the workspace and a second launch combines them.
//
// Order, for every row alone: a part is a quarter of the kKeys keys of a block; four parts are added in
// order; blocks are added in four interleaved chains, these in order. So bits depend on the number of keys
// and on kKeys.
#pragma once

#include "attention/mma.cuh"

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

template <class Traits, int kKeys, bool kSingle>
__device__ __forceinline__ void attend_split(const Call<Traits>& call, void* workspace) {
  using T = typename Traits::Element;
  constexpr int kDepth = Traits::kDepth, kValueDepth = Traits::kValueDepth, kWarps = 4,
                kWarpKeys = kKeys / kWarps;
  constexpr int kColumns = HalfTile<kValueDepth>::kPadded, kThreads = 32 * kWarps;
  constexpr int kSumStride = kColumns + 8;  // floats; keeps the fragments of a warp on different banks
  constexpr float kMultiplier = Scores<Traits>::kMultiplier;
  extern __shared__ __align__(16) char shared[];
  char* const q_tile = shared;
  char* const k_tile = q_tile + 16 * HalfTile<kDepth>::kBytesPerRow;
  char* const v_tile = k_tile + kKeys * HalfTile<kDepth>::kBytesPerRow;
  float* const sums = reinterpret_cast<float*>(k_tile);  // once keys and values have been used

  const int32_t splits = kSingle ? 1 : split_count<Traits, kKeys>(call);
  const int32_t all_rows = call.group * call.queries, tiles = (all_rows + 15) / 16;
  uint32_t index = blockIdx.x;
  const int32_t split = int32_t(index % uint32_t(splits));
  index /= uint32_t(splits);
  const int32_t first = int32_t(index % uint32_t(tiles)) * 16;
  index /= uint32_t(tiles);
  const int32_t kv_heads = call.heads / call.group;
  const int32_t kv_head = int32_t(index % uint32_t(kv_heads));
  const int64_t b = index / uint32_t(kv_heads);
  const int32_t from = split * kKeys;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const auto head_of = [&](int32_t row) { return kv_head * call.group + row / call.queries; };

  wait_for_inputs();
  launch_dependents();
  {
    constexpr int kChunks = HalfTile<kDepth>::kPadded / 8;
    const T* q = call.q + b * call.q_view.batch;
    for (int at = int(threadIdx.x); at < 16 * kChunks; at += kThreads) {
      const int32_t row = first + at / kChunks;
      const bool inside = row < all_rows;
      const T* line = inside ? q + head_of(row) * call.q_view.head + row % call.queries * call.q_view.row : q;
      copy_chunk<kDepth, Traits::kVectorQ>(shared_address(q_tile), q_tile, at / kChunks, at % kChunks, line,
                                           call.q_view.column, inside);
    }
  }
  copy_rows<kDepth, kKeys, kThreads, Traits::kVectorK>(
      k_tile, call.k + b * call.k_view.batch + kv_head * call.k_view.head + from * call.k_view.row,
      call.k_view.row, call.k_view.column, call.keys - from);
  commit_copies();
  copy_rows<kValueDepth, kKeys, kThreads, Traits::kVectorV>(
      v_tile, call.v + b * call.v_view.batch + kv_head * call.v_view.head + from * call.v_view.row,
      call.v_view.row, call.v_view.column, call.keys - from);
  commit_copies();

  const int32_t warp_key = from + warp * kWarpKeys;
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
  const bool hides =
      __any_sync(0xffffffffu, visible[0] < warp_key + kWarpKeys || visible[1] < warp_key + kWarpKeys);

  Rows state;
  float s[kWarpKeys / 2], o[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kWarpKeys / 2; ++i) s[i] = 0;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) o[i] = 0;

  wait_copies<1>();
  __syncthreads();
  const uint32_t q_address = shared_address(q_tile) + lane_rows_first<kDepth>();
  const uint32_t k_address = shared_address(k_tile) + warp * kWarpKeys * HalfTile<kDepth>::kBytesPerRow +
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
  finish_scores<Traits>(s, mask, call.mask_view.column, warp_key + lane % 4 * 2, visible, hides);
  float scale[2];
  weigh<Traits>(s, state, scale);
  total_sums(state);

  wait_copies<0>();
  __syncthreads();
  const uint32_t v_address = shared_address(v_tile) + warp * kWarpKeys * HalfTile<kValueDepth>::kBytesPerRow +
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

  // The four warps' parts meet in shared memory.
  __syncthreads();
  float* const stats = sums + kWarps * 16 * kSumStride;  // maximum, sum [warp][row]
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + lane / 4 + 8 * half;
    if (lane % 4 == 0) {
      stats[2 * row] = state.maximum[half];
      stats[2 * row + 1] = state.sum[half];
    }
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
      *reinterpret_cast<float2*>(sums + row * kSumStride + n * 8 + lane % 4 * 2) =
          make_float2(o[n * 4 + 2 * half], o[n * 4 + 2 * half + 1]);
  }
  __syncthreads();
#pragma unroll 1
  for (int at = int(threadIdx.x); at < 16 * (kColumns / 4); at += kThreads) {
    const int local = at / (kColumns / 4), column = at % (kColumns / 4) * 4;
    const int32_t row = first + local;
    if (row >= all_rows) break;
    float top = minus_infinity(), sum = 0, x[4] = {0, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, stats[2 * (w * 16 + local)]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = power_of_two(kMultiplier * (stats[2 * (w * 16 + local)] - reference_of(top)));
      const float4 part = *reinterpret_cast<const float4*>(sums + (w * 16 + local) * kSumStride + column);
      sum = __fmaf_rn(factor, stats[2 * (w * 16 + local) + 1], sum);
      x[0] = __fmaf_rn(factor, part.x, x[0]);
      x[1] = __fmaf_rn(factor, part.y, x[1]);
      x[2] = __fmaf_rn(factor, part.z, x[2]);
      x[3] = __fmaf_rn(factor, part.w, x[3]);
    }
    const int32_t head = head_of(row), query = row % call.queries;
    const int64_t line = (b * call.heads + head) * call.queries + query;
    if constexpr (kSingle) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = sum == 0 ? 0.0f : __fdiv_rn(x[i], sum);
      store_four(call, b, head, query, column, x);
      if (call.lse != nullptr && column == 0)
        call.lse[line] = sum == 0 ? minus_infinity() : natural_maximum<Traits>(top) + logf(sum);
    } else {
      const int64_t all = int64_t(gridDim.x) / splits / tiles * all_rows;
      const Parts<Traits> parts(workspace, all, splits);
      const int64_t part = line * splits + split;
      *reinterpret_cast<float4*>(parts.values + part * kColumns + column) =
          make_float4(x[0], x[1], x[2], x[3]);
      if (column == 0) *reinterpret_cast<float2*>(parts.stats + part * 2) = make_float2(top, sum);
    }
  }
}

// One block of 128 threads per row adds the row's parts.
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
