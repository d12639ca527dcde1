// Attention on the general-purpose units, for every element type: f32 and f64 in their own precision, half
// types in f32. The online softmax (Milakov and Gimelshein 2018; Dao et al. 2022), by warps: a block of
// kRowWarps × kKeyWarps warps holds kRows query rows and walks over blocks of kKeys keys; a warp has kRowWarps-th
// of the rows and, of every block, a kKeyWarps-th of the keys, for which it keeps a softmax of its own. What
// the warps of one row have found is merged at the end (Flash-Decoding, Dao et al. 2023).
//
// A warp is kRowLanes × kKeyLanes lanes. A lane holds the scores of the rows ry + kRowLanes·i and of kGroups
// vectors of keys, and of the same rows every kKeyLanes-th vector of the result. Neither product waits for
// another warp. While scores are computed the values of the block arrive, and while those are added the next keys
// arrive; if kShared, keys and values take turns in one buffer and arrive by themselves.
//
// Order, for every row alone: a score is a chain of fma over the depth; a weighted value is a chain over the
// keys of a warp, rescaled to a new maximum before a block of keys is added; the sum has kKeyLanes lanes, which are combined
// pairwise; the warps' sums and values are added in their order. Traits, beside those of call.cuh:
//   kKeys, kRowWarps, kKeyWarps, kRowLanes     see above
//   kShared                                    whether keys and values share a buffer
#pragma once

#include "attention/cuda/simt_units.cuh"

namespace aicf::attention {

template <class Traits>
struct SimtShape {
  using A = typename Accumulator<typename Traits::Element>::Type;
  static constexpr int kVec = Vec<A>::kSize;
  static constexpr int kRowWarps = Traits::kRowWarps, kKeyWarps = Traits::kKeyWarps, kWarps = kRowWarps * kKeyWarps;
  static constexpr int kRowLanes = Traits::kRowLanes, kKeyLanes = 32 / kRowLanes;
  static constexpr int kWarpRows = Traits::kRows / kRowWarps, kWarpKeys = Traits::kKeys / kKeyWarps;
  static constexpr int kR = kWarpRows / kRowLanes, kGroups = kWarpKeys / (kKeyLanes * kVec), kN = kGroups * kVec;
  static constexpr int kValues = padded<A>(Traits::kValueDepth);
  static constexpr int kC = (kValues + kKeyLanes * kVec - 1) / (kKeyLanes * kVec);
  static constexpr int kDepthStride = tile_stride<A>(Traits::kDepth);
  static constexpr int kValueStride = kValues;
  // So many vectors between rows of weights that lanes that write meet no bank twice, nor those that read.
  static constexpr int kPUnits = 16 / kRowLanes, kPFirst = 8 / kRowLanes;
  static constexpr int kPStride =
      ((kWarpKeys / kVec - kPFirst + kPUnits - 1) / kPUnits * kPUnits + kPFirst) * kVec;
  static constexpr int kQElements = Traits::kRows * kDepthStride, kKElements = Traits::kKeys * kDepthStride,
                       kVElements = Traits::kKeys * kValueStride, kPElements = kWarps * kWarpRows * kPStride;
  static constexpr int kKvElements =
      !Traits::kShared ? kKElements + kVElements : kKElements > kVElements ? kKElements : kVElements;
  // Of the merge: values, maximum and sum of every row.
  static constexpr int kPartElements = kKeyWarps > 1 ? kKeyWarps * Traits::kRows * (kValues + 2) : 0;
  static constexpr int kMainElements = kQElements + kKvElements + kPElements;
  static constexpr int kElements = kMainElements > kPartElements ? kMainElements : kPartElements;
  static_assert(kRowLanes >= 2 && kRowLanes <= 8 && kWarpRows % kRowLanes == 0 && kWarpKeys % (kKeyLanes * kVec) == 0);
};

template <class Traits>
struct SimtWarp {
  using Shape = SimtShape<Traits>;
  using A = typename Shape::A;
  using V = typename Vec<A>::Type;
  using Mask = typename Traits::Mask;
  using Lanes = WarpLanes<A, Shape::kRowLanes>;
  static constexpr int kVec = Shape::kVec, kR = Shape::kR, kN = Shape::kN, kC = Shape::kC, kGroups = Shape::kGroups;
  static constexpr int kRowLanes = Shape::kRowLanes, kKeyLanes = Shape::kKeyLanes;
  static constexpr bool kPlain = Scores<Traits>::kPlain;
  static constexpr A kMultiplier = A(kPlain ? A(Traits::kScale) : A(1));
  static constexpr bool kMaskVectors = Traits::kMaskUnit % kVec == 0;

  const A *q, *k, *v;  // of the warp
  A* p;
  int32_t row, key;  // of the lane's first row and, in a block of keys, key
  int kx, ry;
  A maximum[kR], sum[kR], o[kR][kC][kVec];

  __device__ __forceinline__ SimtWarp() {
    const Lanes lanes;
    kx = lanes.kx;
    ry = lanes.ry;
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      maximum[i] = A(minus_infinity());
      sum[i] = 0;
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int e = 0; e < kVec; ++e) o[i][c][e] = 0;
    }
  }

  __device__ __forceinline__ void multiply_keys(A (&s)[kR][kN]) const {
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int j = 0; j < kN; ++j) s[i][j] = 0;
    const A *rows = q + ry * Shape::kDepthStride, *keys = k + kx * Shape::kDepthStride;
#pragma unroll 2
    for (int d = 0; d < Traits::kDepth; d += kVec) {
      A b[kN][kVec];
#pragma unroll
      for (int j = 0; j < kN; ++j)
        *reinterpret_cast<V*>(b[j]) = *reinterpret_cast<const V*>(keys + j * kKeyLanes * Shape::kDepthStride + d);
#pragma unroll
      for (int i = 0; i < kR; ++i) {
        A a[kVec];
        *reinterpret_cast<V*>(a) = *reinterpret_cast<const V*>(rows + i * kRowLanes * Shape::kDepthStride + d);
#pragma unroll
        for (int e = 0; e < kVec; ++e)
#pragma unroll
          for (int j = 0; j < kN; ++j) s[i][j] = fused(a[e], b[j][e], s[i][j]);
      }
    }
  }

  __device__ __forceinline__ int32_t key_of(int32_t from, int j) const {
    return from + key + j / kVec * (kKeyLanes * kVec) + j % kVec;
  }

  // What the mask says of a row and the lane's keys. Nothing is read beyond the keys.
  __device__ __forceinline__ void load_mask(const Call<Traits>& call, const Mask* mask, int32_t at, int32_t from,
                                            A (&values)[kN]) const {
    const Mask* line = mask + (at < call.queries ? at : call.queries - 1) * call.mask_view.row;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int32_t first = key_of(from, g * kVec);
      if constexpr (kMaskVectors) {
        MaskVector<Mask, kVec> elements{};
        if (first < call.keys) elements = *reinterpret_cast<const MaskVector<Mask, kVec>*>(line + first);
#pragma unroll
        for (int e = 0; e < kVec; ++e)
          values[g * kVec + e] = Scores<Traits>::template mask_value<A>(elements.element[e]);
      } else {
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          Mask element{};
          if (first + e < call.keys) element = line[(first + e) * call.mask_view.column];
          values[g * kVec + e] = Scores<Traits>::template mask_value<A>(element);
        }
      }
    }
  }

  // Products to scores, hidden ones -infinity. `kAll`: sizes, causality and window let all rows see all keys.
  template <bool kAll>
  __device__ __forceinline__ void score(const Call<Traits>& call, const Mask* mask, int32_t from,
                                        const A (&of_keys)[kN], A (&s)[kR][kN]) const {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const int32_t at = row + i * kRowLanes;
      A values[kN];
      if constexpr (Traits::kHasMask && !Traits::kMaskPerKey) load_mask(call, mask, at, from, values);
      const int32_t visible = kAll ? 0 : visible_keys(call, at), seen = kAll ? 0 : first_key(call, at);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const A value = !Traits::kHasMask ? A(0) : Traits::kMaskPerKey ? of_keys[j] : values[j];
        s[i][j] = Scores<Traits>::score(s[i][j], value);
        if constexpr (!kAll) {
          const int32_t key = key_of(from, j);
          if (key >= visible || (Traits::kWindow != 0 && key < seen)) s[i][j] = A(minus_infinity());
        }
      }
    }
  }

  // e to the power of a score, or of a product, relative to the reference.
  static __device__ __forceinline__ float weight(float score, float reference) {
    if constexpr (kPlain)
      return two_to(fused(score, Scores<Traits>::kMultiplier, -reference * Scores<Traits>::kMultiplier));
    else
      return two_to((score - reference) * Scores<Traits>::kMultiplier);
  }
  static __device__ __forceinline__ double weight(double score, double reference) {
    return exp(kMultiplier * (score - reference));
  }
  static __device__ __forceinline__ A reference_of(A top) { return top == A(minus_infinity()) ? A(0) : top; }

  // Scores to weights relative to the new maximum, in shared memory.
  __device__ __forceinline__ void weigh(A (&s)[kR][kN]) {
    A top[kR];
    bool rises = false;
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      top[i] = s[i][0];
#pragma unroll
      for (int j = 1; j < kN; ++j) top[i] = larger(top[i], s[i][j]);
      top[i] = larger(maximum[i], Lanes::combined(top[i], [](A a, A b) { return larger(a, b); }));
      rises = rises || top[i] > maximum[i];
    }
    if (__any_sync(0xffffffffu, rises)) {
#pragma unroll
      for (int i = 0; i < kR; ++i) {
        const A scale = weight(maximum[i], reference_of(top[i]));
        maximum[i] = top[i];
        sum[i] *= scale;
#pragma unroll
        for (int c = 0; c < kC; ++c)
#pragma unroll
          for (int e = 0; e < kVec; ++e) o[i][c][e] *= scale;
      }
    }
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const A reference = reference_of(maximum[i]);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        A weights[kVec];
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          weights[e] = weight(s[i][g * kVec + e], reference);
          sum[i] += weights[e];
        }
        *reinterpret_cast<V*>(p + (ry + i * kRowLanes) * Shape::kPStride + (kx + g * kKeyLanes) * kVec) =
            *reinterpret_cast<const V*>(weights);
      }
    }
  }

  // Lanes without a vector of their own repeat the last one; what they add is not stored.
  __device__ __forceinline__ int column(int c) const {
    const int column = (kx + c * kKeyLanes) * kVec;
    return column < Shape::kValues ? column : Shape::kValues - kVec;
  }

  // Of the warp's first `count` keys.
  __device__ __forceinline__ void add_values(int count) {
    const A* weights = p + ry * Shape::kPStride;
#pragma unroll 1
    for (int from = 0; from < count; from += kVec) {
      A w[kR][kVec];
#pragma unroll
      for (int i = 0; i < kR; ++i)
        *reinterpret_cast<V*>(w[i]) = *reinterpret_cast<const V*>(weights + i * kRowLanes * Shape::kPStride + from);
#pragma unroll
      for (int u = 0; u < kVec; ++u)
#pragma unroll
        for (int c = 0; c < kC; ++c) {
          A values[kVec];
          *reinterpret_cast<V*>(values) = *reinterpret_cast<const V*>(v + (from + u) * Shape::kValueStride + column(c));
#pragma unroll
          for (int i = 0; i < kR; ++i)
#pragma unroll
            for (int e = 0; e < kVec; ++e) o[i][c][e] = fused(w[i][u], values[e], o[i][c][e]);
        }
    }
  }
};

// Elements of a row of the result from `column` on.
template <class Traits, class A>
__device__ __forceinline__ void store_vector(typename Traits::Element* out, int64_t column_stride, int column,
                                             const A* values) {
  using T = typename Traits::Element;
  if constexpr (sizeof(T) == sizeof(A) && Traits::kVectorOut) {
    using V = typename Vec<A>::Type;
    *reinterpret_cast<V*>(out + column) = *reinterpret_cast<const V*>(values);
  } else {
#pragma unroll
    for (int e = 0; e < Vec<A>::kSize; ++e)
      if (column + e < Traits::kValueDepth) out[(column + e) * column_stride] = narrow<T>(values[e]);
  }
}

// The warps of a row merge what they have found and store it. `rows` of the block exist.
template <class Traits>
struct SimtResult {
  using Warp = SimtWarp<Traits>;
  using Shape = SimtShape<Traits>;
  using A = typename Shape::A;
  static constexpr int kVec = Shape::kVec;

  const Call<Traits>& call;
  int64_t b, h;
  int32_t first;
  int rows, warp_row, key_warp;
  A* shared;

  __device__ __forceinline__ typename Traits::Element* line(int at) const {
    return call.out + b * call.out_view.batch + h * call.out_view.head + (first + at) * call.out_view.row;
  }
  // Of one row: from its maximum and the sum over all lanes.
  __device__ __forceinline__ A inverse(int at, A maximum, A total, bool says) const {
    if (call.lse != nullptr && says && at < rows)
      call.lse[(b * call.heads + h) * call.queries + first + at] =
          float(total == 0 ? A(minus_infinity()) : Warp::kMultiplier * maximum + log(total));
    return total == 0 ? A(0) : A(1) / total;
  }

  __device__ __forceinline__ void store(Warp& warp) const {
    A* parts = shared;
    A* tops = shared + Shape::kKeyWarps * Traits::kRows * Shape::kValues;  // [key warp][row][maximum, sum]
    if constexpr (Shape::kKeyWarps > 1) __syncthreads();
#pragma unroll
    for (int i = 0; i < Shape::kR; ++i) {
      warp.sum[i] = Warp::Lanes::combined(warp.sum[i], [](A x, A y) { return x + y; });
      const int at = warp_row + warp.ry + i * Shape::kRowLanes;
      if (Shape::kKeyWarps > 1 && warp.kx == 0) {
        A* to = tops + (key_warp * Traits::kRows + at) * 2;
        to[0] = warp.maximum[i];
        to[1] = warp.sum[i];
      }
    }
    if constexpr (Shape::kKeyWarps > 1) __syncthreads();
#pragma unroll
    for (int i = 0; i < Shape::kR; ++i) {
      const int at = warp_row + warp.ry + i * Shape::kRowLanes;
      A top = warp.maximum[i], total = warp.sum[i], scale = 1;
      if constexpr (Shape::kKeyWarps > 1) {
#pragma unroll
        for (int w = 0; w < Shape::kKeyWarps; ++w) top = larger(top, tops[(w * Traits::kRows + at) * 2]);
        const A reference = Warp::reference_of(top);
        total = 0;
#pragma unroll
        for (int w = 0; w < Shape::kKeyWarps; ++w) {
          const A* of = tops + (w * Traits::kRows + at) * 2;
          total += of[1] * Warp::weight(of[0], reference);
        }
        scale = Warp::weight(warp.maximum[i], reference);
      }
      scale *= inverse(at, top, total, warp.kx == 0 && key_warp == 0);
#pragma unroll
      for (int c = 0; c < Shape::kC; ++c) {
        const int column = (warp.kx + c * Shape::kKeyLanes) * kVec;
        alignas(16) A values[kVec];
#pragma unroll
        for (int e = 0; e < kVec; ++e) values[e] = warp.o[i][c][e] * scale;
        if (column >= Shape::kValues) continue;
        if constexpr (Shape::kKeyWarps > 1) {
          A* to = parts + (key_warp * Traits::kRows + at) * Shape::kValues + column;
          *reinterpret_cast<typename Warp::V*>(to) = *reinterpret_cast<const typename Warp::V*>(values);
        } else if (at < rows) {
          store_vector<Traits>(line(at), call.out_view.column, column, values);
        }
      }
    }
    if constexpr (Shape::kKeyWarps > 1) {
      __syncthreads();
      add_parts();
    }
  }

  __device__ __forceinline__ void add_parts() const {
    constexpr int kVectors = Shape::kValues / kVec;
    for (int unit = int(threadIdx.x); unit < rows * kVectors; unit += 32 * Shape::kWarps) {
      const int at = unit / kVectors, column = unit % kVectors * kVec;
      alignas(16) A values[kVec] = {};
#pragma unroll
      for (int w = 0; w < Shape::kKeyWarps; ++w) {
        alignas(16) A part[kVec];
        *reinterpret_cast<typename Warp::V*>(part) = *reinterpret_cast<const typename Warp::V*>(
            shared + (w * Traits::kRows + at) * Shape::kValues + column);
#pragma unroll
        for (int e = 0; e < kVec; ++e) values[e] += part[e];
      }
      store_vector<Traits>(line(at), call.out_view.column, column, values);
    }
  }
};

template <class Traits>
__device__ __forceinline__ void attend_simt(const Call<Traits>& call) {
  using Warp = SimtWarp<Traits>;
  using Shape = SimtShape<Traits>;
  using A = typename Shape::A;
  using T = typename Traits::Element;
  constexpr int kThreads = 32 * Shape::kWarps;
  extern __shared__ __align__(16) char shared[];
  const Place place = place_of_block(call);
  const int32_t first = place.tile * Traits::kRows;
  const int64_t b = place.batch, h = place.head, kv_head = place.head / call.group;
  const int rows = call.queries - first < Traits::kRows ? call.queries - first : Traits::kRows;
  A* const q_tile = reinterpret_cast<A*>(shared);
  A* const k_tile = q_tile + Shape::kQElements;
  A* const v_tile = k_tile + (Traits::kShared ? 0 : Shape::kKElements);

  // Blocks differ in which of their warps have the last rows and keys, since a warp keeps to one scheduler.
  const uint32_t turn = (threadIdx.x / 32 + (blockIdx.x * 0x9e3779b1u >> 16)) % Shape::kWarps;
  const int row_warp = int(turn) % Shape::kRowWarps, key_warp = int(turn) / Shape::kRowWarps;
  const int warp_row = row_warp * Shape::kWarpRows, warp_key = key_warp * Shape::kWarpKeys;
  Warp warp;
  warp.q = q_tile + warp_row * Shape::kDepthStride;
  warp.k = k_tile + warp_key * Shape::kDepthStride;
  warp.v = v_tile + warp_key * Shape::kValueStride;
  warp.p = k_tile + Shape::kKvElements + int(turn) * Shape::kWarpRows * Shape::kPStride;
  warp.row = first + warp_row + warp.ry;
  warp.key = warp_key + warp.kx * Shape::kVec;

  wait_for_inputs();
  launch_dependents();
  const T* k = call.k + b * call.k_view.batch + kv_head * call.k_view.head;
  const T* v = call.v + b * call.v_view.batch + kv_head * call.v_view.head;
  const typename Traits::Mask* mask = nullptr;
  if (Traits::kHasMask) mask = call.mask + b * call.mask_view.batch + h * call.mask_view.head;
  const auto as_it_is = [](int at) { return at; };
  const auto copy_keys = [&](int32_t from) {
    copy_tile<Traits::kDepth, Traits::kKeys, kThreads, Traits::kVectorK>(
        k_tile, Shape::kDepthStride, k + from * call.k_view.row, call.k_view.row, call.k_view.column, call.keys - from,
        Warp::Lanes::place_of_key);
  };
  const auto copy_values = [&](int32_t from) {
    copy_tile<Traits::kValueDepth, Traits::kKeys, kThreads, Traits::kVectorV>(
        v_tile, Shape::kValueStride, v + from * call.v_view.row, call.v_view.row, call.v_view.column, call.keys - from,
        as_it_is);
  };
  copy_tile<Traits::kDepth, Traits::kRows, kThreads, Traits::kVectorQ>(
      q_tile, Shape::kDepthStride, call.q + b * call.q_view.batch + h * call.q_view.head + first * call.q_view.row,
      call.q_view.row, call.q_view.column, rows, as_it_is);

  const int32_t end = visible_keys(call, first + rows - 1);
  const int32_t start = first_key(call, first) / Traits::kKeys * Traits::kKeys;
  // Keys that a row of the warp sees, and those that all of them see.
  const int32_t first_row = first + warp_row, last_row = first_row + Shape::kWarpRows - 1;
  const int32_t warp_start = first_key(call, first_row);
  const int32_t warp_end = warp_row < rows ? visible_keys(call, last_row) : 0;
  const int32_t all_start = first_key(call, last_row), all_end = visible_keys(call, first_row);

  if (start < end) copy_keys(start);
  for (int32_t from = start; from < end; from += Traits::kKeys) {
    const int32_t warp_from = from + warp_key;
    const bool works = warp_from < warp_end && warp_from + Shape::kWarpKeys > warp_start;
    A of_keys[Shape::kN];
    if constexpr (Traits::kHasMask && Traits::kMaskPerKey)
      if (works) warp.load_mask(call, mask, 0, from, of_keys);
    wait_for_copies();
    __syncthreads();
    if constexpr (!Traits::kShared) copy_values(from);
    A s[Shape::kR][Shape::kN];
    if (works) {
      warp.multiply_keys(s);
      if (warp_from >= all_start && warp_from + Shape::kWarpKeys <= all_end)
        warp.template score<true>(call, mask, from, of_keys, s);
      else
        warp.template score<false>(call, mask, from, of_keys, s);
      warp.weigh(s);
    }
    if constexpr (Traits::kShared) {
      __syncthreads();
      copy_values(from);
    }
    wait_for_copies();
    __syncthreads();
    const bool more = from + Traits::kKeys < end;
    if (!Traits::kShared && more) copy_keys(from + Traits::kKeys);
    if (works) {
      const int32_t count = warp_end - warp_from;
      warp.add_values(count < Shape::kWarpKeys ? count : Shape::kWarpKeys);
    }
    if (Traits::kShared && more) {
      __syncthreads();
      copy_keys(from + Traits::kKeys);
    }
  }
  wait_for_copies();
  SimtResult<Traits>{call, b, h, first, rows, warp_row, key_warp, q_tile}.store(warp);
}

}  // namespace aicf::attention
