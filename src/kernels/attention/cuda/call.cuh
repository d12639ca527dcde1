// What all attention kernels share: the call's operands, which rows a block works on, what turns a product
// q·k into a score. `Traits` is a struct of compile-time constants that the generated text defines:
//   Element, Mask                              element types of q, k, v, output and of the mask (bool: kept where true,
//                                              else added)
//   kHasMask, kCausal
//   kMaskUnit                                  keys of a row of the mask that may be read at once
//   kWindow                                    a query at p sees keys p - kWindow < j < p + kWindow; 0: no window
//   kDepth, kValueDepth                        sizes of the last axes of q and v
//   kScale, kSoftcap                           double; softcap 0: none
//   kRows                                      query rows of a block
//   kHeadGroup                                 heads whose keys and values fit in the L2 cache together
//   kVectorQ, kVectorK, kVectorV, kVectorOut   rows may be accessed by 16 bytes
// A row is one query of one head. A row without any visible key gives 0.
#pragma once

namespace aicf::attention {

// Element strides of a window over [batch, head, row, column].
struct View {
  int64_t batch, head, row, column;
};

template <class Traits>
struct Call {
  const typename Traits::Element *q, *k, *v;
  const typename Traits::Mask* mask;  // [batch, head, query, key], stride 0 where it broadcasts
  typename Traits::Element* out;
  float* lse;  // null, or row-major [batch, head, query]: log of the row's sum of e^score, -inf for a row
               // without keys
  View q_view, k_view, v_view, mask_view, out_view;
  int32_t heads, group, queries, keys;  // `group` query heads share one head of k and v
};

struct Place {
  int32_t tile, head, batch;
};

// Blocks in the order in which they start: all tiles of one head, so that its keys stay in the L2 cache. With
// the causal mask later tiles have more to do; they come first, over as many heads as the cache holds, so
// that the short ones fill the end.
template <class Traits>
__device__ __forceinline__ Place place_of_block(const Call<Traits>& call) {
  const uint32_t tiles = (uint32_t(call.queries) + Traits::kRows - 1) / Traits::kRows;
  uint32_t head, tile;
  if (Traits::kCausal) {
    constexpr uint32_t kGroup = Traits::kHeadGroup;
    const uint32_t all = gridDim.x / tiles, wave = kGroup * tiles;
    const uint32_t first = blockIdx.x / wave * kGroup, rest = blockIdx.x % wave;
    const uint32_t count = all - first < kGroup ? all - first : kGroup;
    tile = tiles - 1 - rest / count;
    head = first + rest % count;
  } else {
    head = blockIdx.x / tiles;
    tile = blockIdx.x % tiles;
  }
  return {int32_t(tile), int32_t(head % uint32_t(call.heads)), int32_t(head / uint32_t(call.heads))};
}

// A query at p sees keys below p + kAhead, if it is bounded so.
template <class Traits>
constexpr int32_t kAhead = Traits::kCausal ? 1 : Traits::kWindow;

// Keys [first_key, visible_keys) are those that the sizes, causality and the window let query `row` see. If any row from
// `row` to a later one sees a key, then first_key of the first is below visible_keys of the last.
template <class Traits>
__device__ __forceinline__ int32_t visible_keys(const Call<Traits>& call, int32_t row) {
  if (kAhead<Traits> == 0) return call.keys;
  const int32_t visible = row + kAhead<Traits> + call.keys - call.queries;
  return visible < call.keys ? visible : call.keys;
}
template <class Traits>
__device__ __forceinline__ int32_t first_key(const Call<Traits>& call, int32_t row) {
  if (Traits::kWindow == 0) return 0;
  const int32_t first = row + call.keys - call.queries - (Traits::kWindow - 1);
  return first < 0 ? 0 : first;
}

template <class T>
struct IsBool {
  static constexpr bool value = false;
};
template <>
struct IsBool<bool> {
  static constexpr bool value = true;
};

__device__ __forceinline__ double widen(double x) { return x; }
template <class T>
__device__ __forceinline__ float widen(T x) {
  return to_float(x);
}

__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

constexpr double kLog2E = 1.4426950408889634;

// Scores before the softmax. If nothing but a positive scale stands between the product and the softmax,
// products are left as they are and the scale joins the exponent: weight = 2^(kMultiplier (s - maximum)).
template <class Traits>
struct Scores {
  static constexpr bool kAdds = Traits::kHasMask && !IsBool<typename Traits::Mask>::value;
  static constexpr bool kPlain = !kAdds && Traits::kSoftcap == 0 && Traits::kScale > 0;
  static constexpr float kMultiplier = kPlain ? float(double(float(Traits::kScale)) * kLog2E) : float(kLog2E);

  // What an element of the mask does, as a number: added, or minus infinity where the score is hidden.
  template <class A>
  static __device__ __forceinline__ A mask_value(typename Traits::Mask mask) {
    if constexpr (kAdds)
      return A(widen(mask));
    else
      return mask ? A(0) : -A(__int_as_float(0x7f800000));
  }

  // `mask` is the mask's value, ignored if there is none.
  template <class A>
  static __device__ __forceinline__ A score(A product, A mask) {
    if constexpr (kAdds && Traits::kSoftcap == 0) return fused(product, A(Traits::kScale), mask);
    A s = product;
    if constexpr (!kPlain) {
      s = s * A(Traits::kScale);
      if constexpr (Traits::kSoftcap > 0) s = A(Traits::kSoftcap) * tanh(s / A(Traits::kSoftcap));
    }
    if constexpr (kAdds) s = s + mask;
    if constexpr (Traits::kHasMask && !kAdds) s = mask < 0 ? mask : s;
    return s;
  }
};

__device__ __forceinline__ float minus_infinity() { return __int_as_float(int(0xff800000)); }

}  // namespace aicf::attention
