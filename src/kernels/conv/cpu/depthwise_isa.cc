// Rows in vectors; single taps as plain loops, which the compiler turns into vectors of this level.
#include <stdint.h>
#include <string.h>

#include <hwy/highway.h>

#include "kernels/conv/cpu/depthwise_row.h"

namespace aicf::AICF_ISA_NAMESPACE {
extern const DepthwiseIsa kDepthwiseIsa;
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(D()));

inline float fused(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

void add_tap(float* __restrict sums, const float* __restrict x, int64_t step, int64_t count, float weight) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) sums[i] = fused(weight, x[i], sums[i]);
  } else if (step == 2) {
    for (int64_t i = 0; i < count; ++i) sums[i] = fused(weight, x[2 * i], sums[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) sums[i] = fused(weight, x[i * step], sums[i]);
  }
}

// x[0], x[kStride], …
template <int kStride>
HWY_INLINE V load_inputs(const float* x) {
  const D d;
  if constexpr (kStride == 1) return hn::LoadU(d, x);
#if HWY_TARGET == HWY_SCALAR
  return hn::LoadU(d, x);
#else
  return hn::ConcatEven(d, hn::LoadU(d, x + kWidth), hn::LoadU(d, x));
#endif
}

// The same where not all of them may be read: zeros in their place.
V load_guarded(const DepthwiseRow& row, int64_t at) {
  HWY_ALIGN float values[kWidth] = {};
  for (int64_t i = 0; i < kWidth; ++i, at += row.stride)
    if (at >= 0 && at < row.size) values[i] = row.x[at];
  return hn::Load(D(), values);
}

// Outputs [i, i + kWidth).
template <int kStride>
HWY_INLINE V sum_outputs(const DepthwiseRow& row, int64_t i) {
  const D d;
  const V numbers = hn::Iota(d, static_cast<float>(i));
  hn::Mask<D> inside[kMaxRowTaps];
  for (int64_t k = 0; k < row.taps; ++k)
    inside[k] = hn::And(hn::Ge(numbers, hn::Set(d, static_cast<float>(row.begin[k]))),
                        hn::Lt(numbers, hn::Set(d, static_cast<float>(row.end[k]))));
  const int64_t taps = row.taps, dilation = row.dilation, w_stride = row.w_stride;
  const int64_t reach = (taps - 1) * dilation + kStride * kWidth;
  V sum = hn::Zero(d);
  const auto add = [&](int64_t k, V x, float weight) __attribute__((always_inline)) {
    sum = hn::IfThenElse(inside[k], hn::MulAdd(hn::Set(d, weight), x, sum), sum);
  };
  for (int64_t r = 0; r < row.rows; ++r) {
    const int64_t at = row.at[r] + i * kStride;
    const float* w = row.w[r];
    if (at >= 0 && at + reach <= row.size) {
      const float* x = row.x + at;
      for (int64_t k = 0; k < taps; ++k) add(k, load_inputs<kStride>(x + k * dilation), w[k * w_stride]);
    } else {
      for (int64_t k = 0; k < taps; ++k) add(k, load_guarded(row, at + k * dilation), w[k * w_stride]);
    }
  }
  return sum;
}

template <int kStride>
void sum_row_of(const DepthwiseRow& row) {
  const D d;
  for (int64_t i = 0; i < row.count; i += kWidth) {
    const V sum = sum_outputs<kStride>(row, i);
    if (i + kWidth <= row.count) {
      hn::StoreU(sum, d, row.sums + i);
      continue;
    }
    HWY_ALIGN float last[kWidth];
    hn::Store(sum, d, last);
    memcpy(row.sums + i, last, static_cast<size_t>(row.count - i) * sizeof(float));
  }
}

void sum_row(const DepthwiseRow& row) { row.stride == 1 ? sum_row_of<1>(row) : sum_row_of<2>(row); }

// kVectors vectors of channels from `i` on, of all positions.
template <int kVectors>
HWY_INLINE void sum_channels(const DepthwisePixels& all, int64_t i) {
  const D d;
  for (int64_t p = 0; p < all.pixels; ++p) {
    V sums[kVectors];
    for (V& sum : sums) sum = hn::Zero(d);
    for (int64_t t = 0; t < all.taps; ++t) {
      const float* x = all.x[t] + p * all.x_step + i;
      for (int v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(hn::LoadU(d, all.w[t] + i + v * kWidth), hn::LoadU(d, x + v * kWidth), sums[v]);
    }
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, all.sums + p * all.sums_step + i + v * kWidth);
  }
}

// The channels from `i` on, fewer than a vector holds.
void sum_last_channels(const DepthwisePixels& all, int64_t i) {
  const D d;
  const auto bytes = static_cast<size_t>(all.channels - i) * sizeof(float);
  for (int64_t p = 0; p < all.pixels; ++p) {
    V sum = hn::Zero(d);
    for (int64_t t = 0; t < all.taps; ++t) {
      HWY_ALIGN float x[kWidth] = {};
      memcpy(x, all.x[t] + p * all.x_step + i, bytes);
      sum = hn::MulAdd(hn::LoadU(d, all.w[t] + i), hn::Load(d, x), sum);
    }
    hn::StoreU(sum, d, all.sums + p * all.sums_step + i);
  }
}

void sum_pixels(const DepthwisePixels& all) {
  int64_t i = 0;
  for (; i + 4 * kWidth <= all.channels; i += 4 * kWidth) sum_channels<4>(all, i);
  for (; i + 2 * kWidth <= all.channels; i += 2 * kWidth) sum_channels<2>(all, i);
  for (; i + kWidth <= all.channels; i += kWidth) sum_channels<1>(all, i);
  if (i < all.channels) sum_last_channels(all, i);
}

}  // namespace

const DepthwiseIsa kDepthwiseIsa = {add_tap, sum_row, sum_pixels};

}  // namespace aicf::AICF_ISA_NAMESPACE
