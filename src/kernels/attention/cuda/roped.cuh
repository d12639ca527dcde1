// Attention of one step to a cache that the step itself extends: rope_append.cuh as the prologue of split.cuh.
#pragma once

#include "attention/cuda/rope_append.cuh"
#include "attention/cuda/split.cuh"
#include "indexing/indexing.cuh"

namespace aicf::attention {

// Every block rotates its queries, from q as it comes from the product; the block that holds the step's row rotates and
// stores it before it copies its tile.
template <int kUnit, int kPairs, int kDepth, int kValueDepth, bool kInterleaved, bool kReady, class T>
struct Roped {
  static constexpr bool kRopes = true, kEarly = kReady;
  using Chunks = RopeChunks<kUnit, kPairs, kDepth, kValueDepth>;
  const RopeAppend<T>& o;
  CallError* error;

  // A row outside the cache, which is reported, is nobody's but row 0's.
  __device__ __forceinline__ int32_t row(int64_t batch) const {
    const int64_t row = o.position[batch * o.position_stride], from_start = row < 0 ? row + o.rows : row;
    return from_start < 0 || from_start >= o.rows ? 0 : int32_t(from_start);
  }
  // Queries of one head of k to `tile`; `all`: the row of the caches, too.
  template <int kThreads>
  __device__ __forceinline__ void run(T* tile, int stride, int64_t batch, int32_t kv_head, int32_t group, bool all) const {
    RopeAppend<T> own = o;
    own.q += kv_head * group * o.q_view.head;
    own.k += kv_head * o.k_view.head;
    own.v += kv_head * o.v_view.head;
    own.keys += kv_head * o.keys_view.head;
    own.values += kv_head * o.values_view.head;
    own.q_out = tile;
    own.q_out_view = {0, stride, stride, 1};
    own.heads = group;
    own.kv_heads = 1;
    const uint32_t items = uint32_t(group) * Chunks::kRope + (all ? Chunks::kRope + Chunks::kValue : 0);
    for (uint32_t item = threadIdx.x; item < items; item += kThreads)
      rope_item<kUnit, kPairs, kDepth, kValueDepth, kInterleaved>(own, item, 0, batch, error);
  }
  // The row of the caches that run() appends, rotated again, to where it lies in a tile of keys and one of values. By the
  // last threads, so that both go on at a time.
  template <int kThreads>
  __device__ __forceinline__ void put_row(T* keys, T* values, int64_t batch, int32_t kv_head) const {
    RopeAppend<T> own = o;
    own.k += kv_head * o.k_view.head;
    own.v += kv_head * o.v_view.head;
    own.keys = keys;
    own.values = values;
    own.keys_view = own.values_view = {0, 0, 0, 1};
    own.heads = 0;
    own.kv_heads = 1;
    for (uint32_t item = kThreads - 1 - threadIdx.x; item < uint32_t(Chunks::kRope + Chunks::kValue); item += kThreads)
      rope_item<kUnit, kPairs, kDepth, kValueDepth, kInterleaved>(own, item, 0, batch, error);
  }
};

}  // namespace aicf::attention
