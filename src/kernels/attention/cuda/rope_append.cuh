// A step of cached attention before the products: q rotated, k rotated and put into its cache, v put into its cache. A
// thread has kUnit pairs of a rotated row, or kUnit elements of what is only moved; kUnit elements are one access.
// Products and sums are rounded one by one, as the decomposition into primitives does.
#pragma once

#include "attention/cuda/call.cuh"
#include "indexing/elements.cuh"
#include "indexing/walk.cuh"

namespace aicf::attention {

template <class T>
struct RopeAppend {
  const T *q, *k, *v, *cos, *sin;
  const int64_t* position;
  T *q_out, *keys, *values;
  View q_view, k_view, v_view, cos_view, sin_view, q_out_view, keys_view, values_view;
  int64_t position_stride, rows;  // rows of a cache
  int32_t heads, kv_heads, steps;
};

template <class T>
__device__ __forceinline__ auto rope_value(T x) {
  return widen(x);
}
__device__ __forceinline__ void rope_store(double& to, double x) { to = x; }
template <class T>
__device__ __forceinline__ void rope_store(T& to, float x) {
  to = from_float<T>(x);
}

template <int kUnit, class T>
__device__ __forceinline__ Pack<T, kUnit> rope_load(const T* row, const View& view, int column) {
  return *reinterpret_cast<const Pack<T, kUnit>*>(row + column * view.column);
}
template <int kUnit, class T>
__device__ __forceinline__ void rope_put(T* row, const View& view, int column, const Pack<T, kUnit>& x) {
  *reinterpret_cast<Pack<T, kUnit>*>(row + column * view.column) = x;
}

// Items of one step: heads of q, then of k by chunks, then of v. kUnit > 1: columns of all windows lie side by side.
template <int kUnit, int kPairs, int kDepth, int kValueDepth>
struct RopeChunks {
  static constexpr int kRotated = kPairs / kUnit, kRope = kRotated + (kDepth - 2 * kPairs) / kUnit;
  static constexpr int kValue = kValueDepth / kUnit;
};

template <int kUnit, int kPairs, int kDepth, int kValueDepth, bool kInterleaved, class T>
__device__ __forceinline__ void rope_item(const RopeAppend<T>& o, uint32_t item, int64_t step, int64_t batch,
                                          CallError* error) {
  using Chunks = RopeChunks<kUnit, kPairs, kDepth, kValueDepth>;
  constexpr int kRotated = Chunks::kRotated, kRopeChunks = Chunks::kRope, kValueChunks = Chunks::kValue;
  const uint32_t rope_items = uint32_t(o.heads + o.kv_heads) * kRopeChunks;
  const bool is_value = item >= rope_items;
  if (is_value) item -= rope_items;
  const uint32_t chunks = is_value ? kValueChunks : kRopeChunks;
  const int chunk = int(item % chunks), head = int(item / chunks), kv_head = is_value ? head : head - o.heads;
  const bool is_query = !is_value && kv_head < 0;
  const auto at = [&](auto* data, const View& view, int64_t h, int64_t r) {
    return data + batch * view.batch + h * view.head + r * view.row;
  };
  // All loads are under way before the first waits for another: the row comes from the position.
  const int64_t position = is_query ? 0 : o.position[batch * o.position_stride];
  const auto row_of = [&] { return is_query ? step : resolve_index(position + step, o.rows, error); };
  if (is_value) {
    const Pack<T, kUnit> x = rope_load<kUnit>(at(o.v, o.v_view, kv_head, step), o.v_view, chunk * kUnit);
    const int64_t row = row_of();
    if (row >= 0) rope_put<kUnit>(at(o.values, o.values_view, kv_head, row), o.values_view, chunk * kUnit, x);
    return;
  }
  // By value: a reference to either would keep all of them in local memory.
  const View x_view = is_query ? o.q_view : o.k_view, y_view = is_query ? o.q_out_view : o.keys_view;
  const int64_t h = is_query ? head : kv_head;
  const T* x = at(is_query ? o.q : o.k, x_view, h, step);
  T* const to = is_query ? o.q_out : o.keys;
  if (chunk >= kRotated) {
    const int column = 2 * kPairs + (chunk - kRotated) * kUnit;
    const Pack<T, kUnit> moved = rope_load<kUnit>(x, x_view, column);
    const int64_t row = row_of();
    if (row >= 0) rope_put<kUnit>(at(to, y_view, h, row), y_view, column, moved);
    return;
  }
  const int pair = chunk * kUnit;
  const Pack<T, kUnit> cos = rope_load<kUnit>(at(o.cos, o.cos_view, h, step), o.cos_view, pair);
  const Pack<T, kUnit> sin = rope_load<kUnit>(at(o.sin, o.sin_view, h, step), o.sin_view, pair);
  const int first = kInterleaved ? 2 * pair : pair, second = kInterleaved ? first + kUnit : pair + kPairs;
  Pack<T, kUnit> in[2] = {rope_load<kUnit>(x, x_view, first), rope_load<kUnit>(x, x_view, second)}, out[2];
  const int64_t row = row_of();
  if (row < 0) return;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const int a = kInterleaved ? 2 * i : i, b = kInterleaved ? 2 * i + 1 : i + kUnit;
    const auto c = rope_value(cos.at[i]), s = rope_value(sin.at[i]);
    const auto low = rope_value(in[a / kUnit].at[a % kUnit]), high = rope_value(in[b / kUnit].at[b % kUnit]);
    rope_store(out[a / kUnit].at[a % kUnit], low * c - high * s);
    rope_store(out[b / kUnit].at[b % kUnit], high * c + low * s);
  }
  T* y = at(to, y_view, h, row);
  rope_put<kUnit>(y, y_view, first, out[0]);
  rope_put<kUnit>(y, y_view, second, out[1]);
}

template <int kUnit, int kPairs, int kDepth, int kValueDepth, bool kInterleaved, class T>
__device__ __forceinline__ void rope_append(const RopeAppend<T>& o, CallError* error) {
  using Chunks = RopeChunks<kUnit, kPairs, kDepth, kValueDepth>;
  const uint32_t items =
      uint32_t(o.heads + o.kv_heads) * Chunks::kRope + uint32_t(o.kv_heads) * Chunks::kValue;
  const uint32_t blocks = (items + blockDim.x - 1) / blockDim.x, place = blockIdx.x / blocks;  // blocks of one step
  const uint32_t item = blockIdx.x % blocks * blockDim.x + threadIdx.x;
  if (item >= items) return;
  rope_item<kUnit, kPairs, kDepth, kValueDepth, kInterleaved>(o, item, place % uint32_t(o.steps),
                                                               place / uint32_t(o.steps), error);
}

}  // namespace aicf::attention
