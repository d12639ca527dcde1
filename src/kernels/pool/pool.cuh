// max_pool, max_pool_indices, avg_pool: one thread per output position and V neighbouring channels (V > 1 where channels
// lie one behind the other), or per kAcross positions that neighbour along the last axis and in memory. Windows are walked
// in row-major order of the kernel.
#pragma once

#include "conv/cuda/windows.cuh"
#include "indexing/elements.cuh"

namespace aicf {

// `outputs` walks the result in the order of its memory and gives, per axis, the logical index as an offset of that axis'
// own tensor: batch, channel, three spatial axes. KY, KX: the kernel along the last two, by which loops unroll; 0: known
// at launch.
template <class I, int R, int KY, int KX>
struct Pool {
  Walk<I, R, 5> outputs;
  WindowAxis<I> axis[3];
  I channels, x_batch, x_channel, out_batch, out_channel;

  __device__ __forceinline__ I kernel_y() const { return KY > 0 ? KY : axis[1].kernel; }
  __device__ __forceinline__ I kernel_x() const { return KX > 0 ? KX : axis[2].kernel; }
};

template <class I>
struct PoolPlace {
  I batch, channel, at[3], x, out;  // x, out: offsets of the plane and of the result
};

template <int V, int kAcross, class I, int R, int KY, int KX>
__device__ __forceinline__ bool pool_place(const Pool<I, R, KY, KX>& p, PoolPlace<I>& place) {
  const I flat = flat_thread<I>();
  if (past(flat, p.outputs.count())) return false;
  I index[5] = {0, 0, 0, 0, 0};
  p.outputs.locate(flat, index);
  index[4] *= kAcross;
  place.batch = index[0], place.channel = index[1] * V;
  place.x = place.batch * p.x_batch + place.channel * p.x_channel;
  place.out = place.batch * p.out_batch + place.channel * p.out_channel;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    place.at[a] = index[2 + a];
    place.out += place.at[a] * p.axis[a].out_stride;
  }
  return true;
}

// The windows of a thread's places: the kernel positions that lie inside the input, along the last axis for each.
template <int kAcross, class I>
struct PoolSpan {
  I begin[2], end[2], across_begin[kAcross], across_end[kAcross];

  template <int R, int KY, int KX>
  __device__ __forceinline__ PoolSpan(const Pool<I, R, KY, KX>& p, const PoolPlace<I>& place) {
#pragma unroll
    for (int a = 0; a < 2; ++a) begin[a] = p.axis[a].begin(place.at[a]), end[a] = p.axis[a].end(place.at[a]);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      across_begin[j] = p.axis[2].begin(place.at[2] + j);
      across_end[j] = p.axis[2].end(place.at[2] + j);
    }
  }
  __device__ __forceinline__ bool has_taps(int j) const {
    return begin[0] < end[0] && begin[1] < end[1] && across_begin[j] < across_end[j];
  }
};

// Calls body(j, offset in x) for each position of each window that lies inside the input.
template <int kAcross, class I, int R, int KY, int KX, class Body>
__device__ __forceinline__ void for_each_tap(const Pool<I, R, KY, KX>& p, const PoolPlace<I>& place,
                                             const PoolSpan<kAcross, I>& span, Body body) {
  const WindowAxis<I>& last = p.axis[2];
  for (I kz = span.begin[0]; kz < span.end[0]; ++kz) {
#pragma unroll 4
    for (I ky = 0; ky < p.kernel_y(); ++ky) {
      if (ky < span.begin[1] || ky >= span.end[1]) continue;
      const I row = place.x + p.axis[0].position(place.at[0], kz) * p.axis[0].in_stride +
                    p.axis[1].position(place.at[1], ky) * p.axis[1].in_stride;
#pragma unroll 4
      for (I kx = 0; kx < p.kernel_x(); ++kx) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j)
          if (kx >= span.across_begin[j] && kx < span.across_end[j])
            body(j, row + last.position(place.at[2] + j, kx) * last.in_stride);
      }
    }
  }
}

// NaN wins and stays; of equals the first.
template <class V>
__device__ __forceinline__ bool wins(V candidate, V best) {
  if constexpr (IsFloat<V>::value) {
    return (best == best) & ((candidate != candidate) | (candidate > best));
  }
  return candidate > best;
}

template <class T>
__device__ __forceinline__ T lowest_of() {
  if constexpr (IsFloat<typename Element<T>::Value>::value)
    return Element<T>::store(typename Element<T>::Value(-__int_as_float(0x7f800000)));
  else
    return T(T(-1) > T(0) ? 0 : int64_t(-1) << (8 * sizeof(T) - 1));
}

__device__ __forceinline__ uint32_t larger_pair(f16, uint32_t a, uint32_t b) {
  asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
__device__ __forceinline__ uint32_t larger_pair(bf16, uint32_t a, uint32_t b) {
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}

template <class T>
constexpr bool is_half = false;
template <>
constexpr bool is_half<f16> = true;
template <>
constexpr bool is_half<bf16> = true;

// Two halves at a time where there are two; of two zeros the positive one is kept then.
template <class T, int V>
__device__ __forceinline__ void keep_larger(Pack<T, V>& best, const Pack<T, V>& value) {
  using E = Element<T>;
  if constexpr (is_half<T> && V % 2 == 0) {
    auto* kept = reinterpret_cast<uint32_t*>(&best);
    const auto* pairs = reinterpret_cast<const uint32_t*>(&value);
#pragma unroll
    for (int v = 0; v < V / 2; ++v) kept[v] = larger_pair(T{}, kept[v], pairs[v]);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (wins(E::load(value.at[v]), E::load(best.at[v]))) best.at[v] = value.at[v];
  }
}

// Calls body(z, y, x) for each tap of the window, if one lies inside the input. Those outside are moved to the nearest
// inside: an element that comes twice, or sooner, changes no maximum and no first one, and loops of a known length unroll
// into loads that are all under way at once.
template <class I, int R, int KY, int KX, class Body>
__device__ __forceinline__ void for_each_moved_tap(const Pool<I, R, KY, KX>& p, const PoolPlace<I>& place, Body body) {
  I begin[3], end[3];
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    begin[a] = p.axis[a].begin(place.at[a]), end[a] = p.axis[a].end(place.at[a]);
    if (begin[a] >= end[a]) return;
  }
  const auto inside = [&](int a, I tap) {
    return p.axis[a].position(place.at[a], max(begin[a], min(tap, end[a] - 1)));
  };
  for (I kz = 0; kz < p.axis[0].kernel; ++kz) {
#pragma unroll 4
    for (I ky = 0; ky < p.kernel_y(); ++ky) {
#pragma unroll 4
      for (I kx = 0; kx < p.kernel_x(); ++kx) body(inside(0, kz), inside(1, ky), inside(2, kx));
    }
  }
}

// The same for several windows: calls body(offset in x of each), also of those without a tap, which `span` tells.
template <int kAcross, class I, int R, int KY, int KX, class Body>
__device__ __forceinline__ void for_each_moved_tap(const Pool<I, R, KY, KX>& p, const PoolPlace<I>& place,
                                                   const PoolSpan<kAcross, I>& span, Body body) {
  if (span.begin[0] >= span.end[0] || span.begin[1] >= span.end[1]) return;
  const auto moved = [](I tap, I begin, I end) { return max(begin, min(tap, end - 1)); };
  for (I kz = 0; kz < p.axis[0].kernel; ++kz) {
    const I z = p.axis[0].position(place.at[0], moved(kz, span.begin[0], span.end[0]));
#pragma unroll 4
    for (I ky = 0; ky < p.kernel_y(); ++ky) {
      const I y = p.axis[1].position(place.at[1], moved(ky, span.begin[1], span.end[1]));
      const I row = place.x + z * p.axis[0].in_stride + y * p.axis[1].in_stride;
#pragma unroll 4
      for (I kx = 0; kx < p.kernel_x(); ++kx) {
        I at[kAcross];
#pragma unroll
        for (int j = 0; j < kAcross; ++j)
          at[j] = row + p.axis[2].position(place.at[2] + j, moved(kx, span.across_begin[j], span.across_end[j])) *
                            p.axis[2].in_stride;
        body(at);
      }
    }
  }
}

template <int V, int kAcross, class T, class I, int R, int KY, int KX>
__device__ __forceinline__ void max_pool(const Pool<I, R, KY, KX>& p, const T* x, T* out) {
  static_assert(V == 1 || kAcross == 1, "channels or positions");
  constexpr int N = V * kAcross;
  PoolPlace<I> place;
  if (!pool_place<V, kAcross>(p, place)) return;
  const PoolSpan<kAcross, I> span(p, place);
  Pack<T, N> best;
#pragma unroll
  for (int v = 0; v < N; ++v) best.at[v] = lowest_of<T>();
  for_each_moved_tap(p, place, span, [&](const I(&at)[kAcross]) {
    Pack<T, N> value = best;
    if constexpr (kAcross == 1) {
      if (span.has_taps(0)) value = *reinterpret_cast<const Pack<T, N>*>(x + at[0]);
    } else {
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
        if (span.has_taps(j)) value.at[j] = x[at[j]];
    }
    keep_larger(best, value);
  });
  *reinterpret_cast<Pack<T, N>*>(out + place.out) = best;
}

// Row-major numbers of the maxima in x; kColumnMajor: with the first spatial axis fastest inside a plane.
template <bool kColumnMajor, class T, class I, int R, int KY, int KX>
__device__ __forceinline__ void max_pool_indices(const Pool<I, R, KY, KX>& p, const T* x, int64_t* out) {
  using E = Element<T>;
  PoolPlace<I> place;
  if (!pool_place<1, 1>(p, place)) return;
  typename E::Value best = 0;
  I found = -1;  // within the plane
  for_each_moved_tap(p, place, [&](I z, I y, I c) {
    const auto value =
        E::load(x[place.x + z * p.axis[0].in_stride + y * p.axis[1].in_stride + c * p.axis[2].in_stride]);
    const bool is_best = (found < 0) | wins(value, best);
    const I number =
        kColumnMajor ? (c * p.axis[1].in + y) * p.axis[0].in + z : (z * p.axis[1].in + y) * p.axis[2].in + c;
    best = is_best ? value : best;
    found = is_best ? number : found;
  });
  const int64_t plane = int64_t(p.axis[0].in) * p.axis[1].in * p.axis[2].in;
  out[place.out] = found < 0 ? -1 : (int64_t(place.batch) * p.channels + place.channel) * plane + found;
}

// Sums in the type that elements compute in. kPadded: divides by the positions inside the padded input.
template <int V, int kAcross, bool kPadded, class T, class I, int R, int KY, int KX>
__device__ __forceinline__ void avg_pool(const Pool<I, R, KY, KX>& p, const T* x, T* out) {
  using E = Element<T>;
  using Value = typename E::Value;
  static_assert(V == 1 || kAcross == 1, "channels or positions");
  PoolPlace<I> place;
  if (!pool_place<V, kAcross>(p, place)) return;
  const PoolSpan<kAcross, I> span(p, place);
  Value sum[V * kAcross];
#pragma unroll
  for (int v = 0; v < V * kAcross; ++v) sum[v] = 0;
  for_each_tap(p, place, span, [&](int j, I from) {
    const Pack<T, V> value = *reinterpret_cast<const Pack<T, V>*>(x + from);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[j * V + v] += E::load(value.at[v]);
  });
  Pack<T, V * kAcross> result;
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
    I count = 0;
    if (kPadded)
      count = p.axis[0].padded_count(place.at[0]) * p.axis[1].padded_count(place.at[1]) *
              p.axis[2].padded_count(place.at[2] + j);
    else if (span.has_taps(j))
      count = (span.end[0] - span.begin[0]) * (span.end[1] - span.begin[1]) * (span.across_end[j] - span.across_begin[j]);
#pragma unroll
    for (int v = 0; v < V; ++v) result.at[j * V + v] = E::store(sum[j * V + v] / Value(count));
  }
  *reinterpret_cast<Pack<T, V * kAcross>*>(out + place.out) = result;
}

}  // namespace aicf
