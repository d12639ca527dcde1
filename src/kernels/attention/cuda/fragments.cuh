// Attention on the matrix units: what the kernels of both instruction generations do in registers. Scores,
// weights and results lie in the accumulator layout of mma.m16n8 (and of wgmma, per warp): value 4t + e of a
// lane belongs to row lane/4 + 8·(e/2) and column 8t + 2·(lane%4) + e%2 of its warp's 16 rows.
#pragma once

#include "attention/cuda/call.cuh"
#include "bits.cuh"

namespace aicf::attention {

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<f16>(float low, float high) {
  uint32_t result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
template <>
__device__ __forceinline__ uint32_t pack<bf16>(float low, float high) {
  uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

// The two rows of a lane: running maximum of the scores, and this lane's share of the sum of weights.
struct Rows {
  float maximum[2] = {minus_infinity(), minus_infinity()};
  float sum[2] = {0, 0};
};

// The keys that the two rows of a lane see.
template <class Traits>
struct SeenKeys {
  int32_t first[2], end[2];  // first: with a window only
  __device__ __forceinline__ void set(int half, const Call<Traits>& call, int32_t row, bool exists) {
    end[half] = exists ? visible_keys(call, row) : 0;
    if constexpr (Traits::kWindow > 0) first[half] = first_key(call, row);
  }
  // Whether one of the rows does not see all of keys [from, from + count).
  __device__ __forceinline__ bool hides_any(int32_t from, int32_t count) const {
    return end[0] < from + count || end[1] < from + count ||
           (Traits::kWindow > 0 && (first[0] > from || first[1] > from));
  }
};

// Scores of keys that are not seen become -infinity. `key` is the key of value 0.
template <class Traits, int kCount>
__device__ __forceinline__ void hide(float (&s)[kCount], int32_t key, const SeenKeys<Traits>& seen) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int32_t at = key + i / 4 * 8 + i % 2;
    if (at >= seen.end[i / 2 % 2] || (Traits::kWindow > 0 && at < seen.first[i / 2 % 2])) s[i] = minus_infinity();
  }
}

// Words [tile] of a lane, which are columns 8·tile + 2·(lane%4) and the one after, become the 8 columns of
// tile lane%4.
__device__ __forceinline__ uint4 gather_tile(const uint32_t (&word)[4]) {
  const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
  const uint32_t x = __shfl_xor_sync(0xffffffffu, upper ? word[0] : word[2], 2);
  const uint32_t y = __shfl_xor_sync(0xffffffffu, upper ? word[1] : word[3], 2);
  const uint32_t a0 = upper ? x : word[0], a1 = upper ? y : word[1];
  const uint32_t b0 = upper ? word[2] : x, b1 = upper ? word[3] : y;
  const uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? a0 : a1, 1);
  const uint32_t b = __shfl_xor_sync(0xffffffffu, odd ? b0 : b1, 1);
  return odd ? make_uint4(a, a1, b, b1) : make_uint4(a0, a, b0, b);
}

template <class T>
__device__ __forceinline__ T bits_as(uint32_t bits) {
  return {static_cast<uint16_t>(bits)};
}
template <>
__device__ __forceinline__ float bits_as<float>(uint32_t bits) {
  return __uint_as_float(bits);
}

// The mask of the scores that are seen, as a lane holds it while products run. Where keys lie side by side in
// whole units of eight, each lane of four reads one unit of four, and they exchange when the values are
// wanted.
template <class Traits, int kCount>
struct RowsMask {
  using Mask = typename Traits::Mask;
  static constexpr bool kUnits = Traits::kMaskUnit % 8 == 0 && kCount % 16 == 0;
  static constexpr int kTogether = Traits::kMaskUnit % 2 == 0 ? 2 : 1;
  static constexpr int kWords = 2 * sizeof(Mask);  // of a unit
  static constexpr int kGroups = kUnits ? kCount / 16 : 1;
  struct alignas(kWords * 4 < 16 ? kWords * 4 : 16) Unit {
    uint32_t word[kWords];
  };
  struct alignas(kTogether * sizeof(Mask)) Some {
    Mask at[kTogether];
  };
  // Whole words until values are wanted: taking them apart would wait for them.
  Words<sizeof(Some)> some[kUnits ? 1 : kCount / kTogether];
  Unit units[2][kGroups];

  // `mask` holds the address of its key 0 for each of the lane's two rows, `key` is the key of value 0.
  __device__ __forceinline__ void load(const Mask* const (&mask)[2], int64_t stride, int32_t key,
                                       const SeenKeys<Traits>& seen) {
    if constexpr (kUnits) {
      const int32_t from = key + int(threadIdx.x) % 4 * 6;
#pragma unroll
      for (int i = 0; i < 2 * kGroups; ++i) {
        const int half = i % 2;
        const int32_t at = from + i / 2 * 32;
        units[half][i / 2] = {};
        if (at < seen.end[half]) units[half][i / 2] = *reinterpret_cast<const Unit*>(mask[half] + at);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; i += kTogether) {
        const int half = i / 2 % 2;
        const int32_t at = key + i / 4 * 8 + i % 2;
        auto& word = some[i / kTogether];
        word = {};
        if (at < seen.end[half] && (Traits::kWindow == 0 || at + kTogether > seen.first[half]))
          word = *reinterpret_cast<const Words<sizeof(Some)>*>(mask[half] + (kTogether == 1 ? at * stride : at));
      }
    }
  }

  __device__ __forceinline__ Mask value(int i) const {
    return reinterpret_cast<const Some&>(some[i / kTogether]).at[i % kTogether];
  }

  // Values 16 group … 16 group + 15 of a row, two of each tile.
  __device__ __forceinline__ void exchange(int half, int group, Mask (&row)[8]) const {
    constexpr int kParts = sizeof(Mask) == 4 ? 2 : 1;  // words of two keys
    uint32_t found[kParts][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      uint32_t word[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const uint32_t whole = units[half][group].word[sizeof(Mask) == 1 ? pair / 2 : pair * kParts + part];
        word[pair] = sizeof(Mask) == 1 ? whole >> (pair % 2 * 16) & 0xffffu : whole;
      }
      const uint4 turned = gather_tile(word);
      found[part][0] = turned.x, found[part][1] = turned.y, found[part][2] = turned.z,
      found[part][3] = turned.w;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (sizeof(Mask) == 1) {
        row[i] = (found[0][i / 2] >> (i % 2 * 8) & 0xffu) != 0;
      } else {
        const uint32_t whole = found[kParts == 2 ? i % 2 : 0][i / 2];
        row[i] = bits_as<Mask>(kParts == 2 || i % 2 == 0 ? whole : whole >> 16);
      }
    }
  }
};

struct NoMask {};
template <bool kHeld, class Traits, int kCount>
struct HeldMask {
  using Type = NoMask;
};
template <class Traits, int kCount>
struct HeldMask<true, Traits, kCount> {
  using Type = RowsMask<Traits, kCount>;
};

// Products to scores.
template <class Traits, int kCount>
__device__ __forceinline__ void finish_scores(float (&s)[kCount], const NoMask&, int32_t key,
                                              const SeenKeys<Traits>& seen, bool hides) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = Scores<Traits>::score(s[i], 0.0f);
  if (hides) hide(s, key, seen);
}
template <class Traits, int kCount>
__device__ __forceinline__ void finish_scores(float (&s)[kCount], const RowsMask<Traits, kCount>& mask,
                                              int32_t key, const SeenKeys<Traits>& seen, bool hides) {
  using S = Scores<Traits>;
  if constexpr (RowsMask<Traits, kCount>::kUnits) {
#pragma unroll
    for (int i = 0; i < kCount / 8; ++i) {
      const int half = i % 2, first = i / 2 * 16 + half * 2;
      typename Traits::Mask row[8];
      mask.exchange(half, i / 2, row);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float& score = s[first + j / 2 * 4 + j % 2];
        score = S::score(score, S::template mask_value<float>(row[j]));
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) s[i] = S::score(s[i], S::template mask_value<float>(mask.value(i)));
  }
  if (hides) hide(s, key, seen);
}
// The same with masks as RowsMask takes them, of some keys after the others.
template <class Traits, int kCount>
__device__ __forceinline__ void finish_scores(float (&s)[kCount],
                                              const typename Traits::Mask* const (&mask)[2],
                                              int64_t mask_stride, int32_t key, const SeenKeys<Traits>& seen,
                                              bool hides) {
  if constexpr (Traits::kHasMask) {
    constexpr int kPart = kCount % 16 == 0 ? 16 : kCount;
#pragma unroll
    for (int from = 0; from < kCount; from += kPart) {
      RowsMask<Traits, kPart> held;
      held.load(mask, mask_stride, key + from * 2, seen);
      finish_scores<Traits>(reinterpret_cast<float(&)[kPart]>(s[from]), held, key, seen, false);
    }
    if (hides) hide(s, key, seen);
  } else {
    finish_scores<Traits>(s, NoMask(), key, seen, hides);
  }
}

// The same with a mask that is the same for all rows; `mask(t)` gives the values of keys 8t and 8t + 1 from
// value 0 on.
template <class Traits, int kCount, class MaskValues>
__device__ __forceinline__ void finish_scores(float (&s)[kCount], MaskValues mask, int32_t key,
                                              const SeenKeys<Traits>& seen, bool hides) {
#pragma unroll
  for (int tile = 0; tile < kCount / 4; ++tile) {
    const float2 value = mask(tile);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[tile * 4 + i] = Scores<Traits>::score(s[tile * 4 + i], i % 2 ? value.y : value.x);
  }
  if (hides) hide(s, key, seen);
}

// One step of the online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): scores become weights
// relative to the rows' new maxima; `scale` is what earlier sums must be multiplied by. Weights are
// 2^(kMultiplier s - reference) with one fma. Its rounding error, a 2^-24th of the reference, would matter
// where the reference is large: there the maximum is subtracted first. In tf32 it is the whole number above: weights then
// are e^score over a power of two, and round alike whatever maximum was at hand.
template <class Traits, int kCount>
__device__ __forceinline__ void weigh(float (&s)[kCount], Rows& rows, float (&scale)[2]) {
  constexpr float kMultiplier = Scores<Traits>::kMultiplier;
  constexpr float kLarge = 1024;
  constexpr bool kWhole = sizeof(typename Traits::Element) == 4;
  float top[2] = {rows.maximum[0], rows.maximum[1]}, reference[2];
#pragma unroll
  for (int i = 0; i < kCount; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
    top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
    const float finite = top[half] == minus_infinity() ? 0.0f : top[half];
    reference[half] = kWhole ? ceilf(kMultiplier * finite) : kMultiplier * finite;
    scale[half] = power_of_two(kWhole ? ceilf(kMultiplier * rows.maximum[half]) - reference[half]
                                      : kMultiplier * (rows.maximum[half] - finite));
    rows.maximum[half] = top[half];
    rows.sum[half] *= scale[half];
    top[half] = finite;
  }
  if (__any_sync(0xffffffffu, fabsf(reference[0]) > kLarge || fabsf(reference[1]) > kLarge)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) s[i] -= top[i / 2 % 2];
#pragma unroll
    for (int half = 0; half < 2; ++half) reference[half] = kWhole ? reference[half] - kMultiplier * top[half] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = power_of_two(__fmaf_rn(s[i], kMultiplier, -reference[i / 2 % 2]));
    rows.sum[i / 2 % 2] += s[i];
  }
}

// The exponent of e that weigh() takes from those of a row whose largest score is `maximum`.
template <class Traits>
__device__ __forceinline__ float natural_maximum(float maximum) {
  if constexpr (sizeof(typename Traits::Element) == 4)
    return ceilf(Scores<Traits>::kMultiplier * maximum) * float(1 / kLog2E);
  return Scores<Traits>::kPlain ? float(Traits::kScale) * maximum : maximum;
}

// The sums of whole rows, from those of the four lanes that share them.
__device__ __forceinline__ void total_sums(Rows& rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.sum[half] += __shfl_xor_sync(0xffffffffu, rows.sum[half], 1);
    rows.sum[half] += __shfl_xor_sync(0xffffffffu, rows.sum[half], 2);
  }
}

// Multiplies results by `scale`; most steps leave the maxima as they are, and then nothing changes.
template <int kCount>
__device__ __forceinline__ void rescale(float (&o)[kCount], const float (&scale)[2]) {
  if (!__any_sync(0xffffffffu, !(scale[0] == 1.0f && scale[1] == 1.0f))) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= scale[i / 2 % 2];
}

// Stores the two rows of each lane, each times its factor: the first kColumns columns of rows before `rows`. `to` is the
// address of row 0, column 0.
template <int kColumns, bool kVector, class T, int kCount>
__device__ __forceinline__ void store_fragments(const float (&sums)[kCount], const float (&factor)[2], T* to, const View& view,
                                                int32_t row, int32_t rows) {
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
        const bool exists = tile + t < kCount / 4;
        value[t][0] = exists ? sums[exists ? (tile + t) * 4 + 2 * half : 0] * factor[half] : 0.0f;
        value[t][1] = exists ? sums[exists ? (tile + t) * 4 + 2 * half + 1 : 0] * factor[half] : 0.0f;
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

// The same of f32, whose columns are those of add_wide_values().
template <int kColumns, bool kVector, int kCount>
__device__ __forceinline__ void store_wide(const float (&sums)[kCount], const float (&factor)[2], float* to, const View& view,
                                           int32_t row, int32_t rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= rows) continue;
    float* line = to + (row + 8 * half) * view.row;
#pragma unroll
    for (int n = 0; n < kCount / 8; ++n) {
      const int column = n * 16 + int(threadIdx.x) % 4 * 4;
      float value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = sums[n * 8 + i % 2 * 4 + 2 * half + i / 2] * factor[half];
      if constexpr (kVector) {
        if (column < kColumns) *reinterpret_cast<float4*>(line + column) = make_float4(value[0], value[1], value[2], value[3]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < kColumns) line[(column + i) * view.column] = value[i];
      }
    }
  }
}

// Divides results by their sums and stores them. `to` as above.
template <class Traits, int kCount>
__device__ __forceinline__ void store_rows(const float (&o)[kCount], const Rows& rows,
                                           const Call<Traits>& call, typename Traits::Element* to,
                                           int32_t row) {
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    factor[half] = rows.sum[half] == 0 ? 0.0f : __fdiv_rn(1.0f, rows.sum[half]);
  if constexpr (sizeof(typename Traits::Element) == 4)
    store_wide<Traits::kValueDepth, Traits::kVectorOut>(o, factor, to, call.out_view, row, call.queries);
  else
    store_fragments<Traits::kValueDepth, Traits::kVectorOut>(o, factor, to, call.out_view, row, call.queries);
}

template <class Traits>
__device__ __forceinline__ void store_lse(const Rows& rows, const Call<Traits>& call, int64_t head,
                                          int32_t row) {
  if (call.lse == nullptr || threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= call.queries) continue;
    call.lse[head * call.queries + row + 8 * half] =
        rows.sum[half] == 0 ? minus_infinity()
                            : natural_maximum<Traits>(rows.maximum[half]) + logf(rows.sum[half]);
  }
}

}  // namespace aicf::attention
