// Online softmax of attention (Milakov and Gimelshein 2018; Dao et al. 2022): a running maximum and sum per
// row, the weighted sum of values rescaled whenever the maximum grows.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "hwy/highway.h"
#include "kernels/attention/cpu/attention_rows.h"
#include "kernels/tile/cpu/vector_math.h"

namespace aicf::AICF_ISA_NAMESPACE {
extern const AttentionIsa kAttentionIsa;
namespace {

constexpr int64_t kVirtualLanes = 16;
using Tag = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
constexpr int kParts = static_cast<int>(kVirtualLanes / kLanes);

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Maximum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

// Lane l takes lane l + n/2, n = 16, 8, …, 2.
template <class D, class Operation>
HWY_INLINE float combine_lanes(D, hn::Vec<D> v, Operation operation) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return combine_lanes(half, operation(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), operation);
  }
#endif
  (void)operation;
  return hn::GetLane(v);
}
template <class Operation>
HWY_INLINE float combine(Vec* parts, Operation operation) {
  for (int n = kParts / 2; n > 0; n /= 2)
    for (int p = 0; p < n; ++p) parts[p] = operation(parts[p], parts[p + n]);
  return combine_lanes(Tag(), parts[0], operation);
}

void add_mask(const AttentionRows& r, int64_t row, float* scores) {
  const int64_t step = r.mask_key_stride;
  if (r.mask_is_bool) {
    const auto* mask = static_cast<const uint8_t*>(r.mask) + row * r.mask_row_stride;
    for (int64_t j = 0; j < r.keys; ++j) scores[j] = mask[j * step] != 0 ? scores[j] : -INFINITY;
  } else {
    const auto* mask = static_cast<const float*>(r.mask) + row * r.mask_row_stride;
    if (step == 1)
      for (int64_t j = 0; j < r.keys; ++j) scores[j] += mask[j];
    else
      for (int64_t j = 0; j < r.keys; ++j) scores[j] += mask[j * step];
  }
}

int64_t visible_keys(const AttentionRows& r, int64_t row) {
  return r.visible + row < r.keys ? r.visible + row : r.keys;
}
int64_t first_key(const AttentionRows& r, int64_t row) { return r.first + row > 0 ? r.first + row : 0; }

// Scales, caps and masks a row; -inf in the places before the first visible key and after the last one up to
// `padded`. Gives the maximum.
float finish_scores(const AttentionRows& r, int64_t row, int64_t padded, float* scores) {
  const Tag d;
  const Vec scale = hn::Set(d, r.scale), cap = hn::Set(d, r.softcap);
  for (int64_t j = 0; j < padded; j += kLanes) {
    Vec s = hn::Mul(hn::LoadU(d, scores + j), scale);
    if (r.softcap > 0) s = hn::Mul(cap, vector_tanh(d, hn::Div(s, cap)));
    hn::StoreU(s, d, scores + j);
  }
  if (r.mask) add_mask(r, row, scores);
  for (int64_t j = 0; j < first_key(r, row); ++j) scores[j] = -INFINITY;
  for (int64_t j = visible_keys(r, row); j < padded; ++j) scores[j] = -INFINITY;
  Vec top[kParts];
  for (int p = 0; p < kParts; ++p) top[p] = hn::Set(d, -INFINITY);
  for (int64_t j = 0; j < padded; j += kVirtualLanes)
    for (int p = 0; p < kParts; ++p) top[p] = hn::Max(top[p], hn::LoadU(d, scores + j + p * kLanes));
  return combine(top, Maximum());
}

// The same in one pass, for rows from key 0 on without softcap whose mask, if any, is of floats side by side.
template <bool kMask>
HWY_INLINE float finish_scores_once(const AttentionRows& r, int64_t row, int64_t padded, float* scores) {
  const Tag d;
  const Vec scale = hn::Set(d, r.scale);
  const float* mask = kMask ? static_cast<const float*>(r.mask) + row * r.mask_row_stride : nullptr;
  const int64_t visible = visible_keys(r, row), whole = visible / kVirtualLanes * kVirtualLanes;
  Vec top[kParts];
  for (int p = 0; p < kParts; ++p) top[p] = hn::Set(d, -INFINITY);
  for (int64_t j = 0; j < whole; j += kVirtualLanes)
    for (int p = 0; p < kParts; ++p) {
      float* at = scores + j + p * kLanes;
      Vec s = hn::Mul(hn::LoadU(d, at), scale);
      if constexpr (kMask) s = hn::Add(s, hn::LoadU(d, mask + j + p * kLanes));
      hn::StoreU(s, d, at);
      top[p] = hn::Max(top[p], s);
    }
  if (whole < padded) {
    // Beyond the last key the mask may end: -inf stands there instead.
    float rest[kVirtualLanes];
    for (int64_t l = 0; l < kVirtualLanes; ++l) {
      const bool seen = whole + l < visible;
      rest[l] = !seen ? -INFINITY : kMask ? mask[whole + l] : 0.0f;
      if (!seen) scores[whole + l] = 0;
    }
    for (int p = 0; p < kParts; ++p) {
      float* at = scores + whole + p * kLanes;
      Vec s = hn::Mul(hn::LoadU(d, at), scale);
      // x + 0 would turn -0 into 0, which no exponential tells apart.
      s = hn::Add(s, hn::LoadU(d, rest + p * kLanes));
      hn::StoreU(s, d, at);
      top[p] = hn::Max(top[p], s);
    }
    for (int64_t j = whole + kVirtualLanes; j < padded; ++j) scores[j] = -INFINITY;
  }
  return combine(top, Maximum());
}

// scores = e^(scores - top); their sum. A NaN score stays one whatever `top` is.
HWY_INLINE float exponentials(float* scores, int64_t padded, float top) {
  const Tag d;
  const Vec base = hn::Set(d, top);
  Vec sum[kParts];
  for (int p = 0; p < kParts; ++p) sum[p] = hn::Zero(d);
  for (int64_t j = 0; j < padded; j += kVirtualLanes) {
    for (int p = 0; p < kParts; ++p) {
      float* at = scores + j + p * kLanes;
      const Vec e = exp_negative(d, hn::Sub(hn::LoadU(d, at), base));
      hn::StoreU(e, d, at);
      sum[p] = hn::Add(sum[p], e);
    }
  }
  return combine(sum, Sum());
}

void scale_row(float* values, int64_t columns, float factor) {
  const Tag d;
  const Vec f = hn::Set(d, factor);
  for (int64_t j = 0; j < columns; j += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, values + j), f), d, values + j);
}

float exp_of(float x) {
  const Tag d;
  return hn::GetLane(exp_negative(d, hn::Set(d, x)));
}

// Rescales what earlier blocks left to the new maximum.
void raise_maximum(const AttentionRows& r, int64_t row, float base) {
  const float before = r.maximum[row];
  if (before == base) return;
  // The first block with a visible key: sum and weighted sum are still 0, or NaN for good.
  const float factor = before == -INFINITY ? 0.0f : exp_of(before - base);
  r.sum[row] *= factor;
  if (before != -INFINITY) scale_row(r.out + row * r.out_stride, r.out_columns, factor);
}

// Two walks over the rows, so that the latencies at the ends of short rows overlap.
void softmax_rows(const AttentionRows& r) {
  constexpr int64_t kGroup = 64;
  const int64_t padded = (r.keys + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  const bool once = r.softcap <= 0 && (!r.mask || (!r.mask_is_bool && r.mask_key_stride == 1));
  for (int64_t first = 0; first < r.rows; first += kGroup) {
    const int64_t end = first + kGroup < r.rows ? first + kGroup : r.rows;
    float here[kGroup];
    for (int64_t i = first; i < end; ++i) {
      float* scores = r.scores + i * r.stride;
      here[i - first] = !once || first_key(r, i) > 0 ? finish_scores(r, i, padded, scores)
                        : r.mask                     ? finish_scores_once<true>(r, i, padded, scores)
                                                     : finish_scores_once<false>(r, i, padded, scores);
    }
    for (int64_t i = first; i < end; ++i) {
      const float before = r.maximum[i];
      const float top = here[i - first] > before ? here[i - first] : before;
      const float base = top == -INFINITY ? 0 : top;  // nothing visible yet: e^-inf is 0
      raise_maximum(r, i, base);
      r.sum[i] += exponentials(r.scores + i * r.stride, padded, base);
      r.maximum[i] = top;
    }
  }
}

void end_rows(const AttentionEnd& e) {
  const Tag d;
  for (int64_t i = 0; i < e.rows; ++i) {
    const float* out = e.out + i * e.out_stride;
    float* to = e.to + i * e.to_stride;
    const bool empty = e.sum[i] == 0;
    const Vec sum = hn::Set(d, e.sum[i]);
    if (e.lse) e.lse[i * e.lse_stride] = empty ? -INFINITY : e.maximum[i] + hn::GetLane(vector_log(d, sum));
    for (int64_t j = 0; j < e.columns; j += kLanes)
      hn::StoreU(empty ? hn::Zero(d) : hn::Div(hn::LoadU(d, out + j), sum), d, to + j);
  }
}

// A softcap c bends the score s to c tanh(s / c), whose derivative is 1 - tanh(s / c)^2.
void slope_rows(const AttentionSlopes& a) {
  const Tag d;
  const Vec scale = hn::Set(d, a.scale), cap = hn::Set(d, a.softcap), one = hn::Set(d, 1.0f);
  const int64_t padded = (a.keys + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  for (int64_t i = 0; i < a.rows; ++i) {
    float *weights = a.weights + i * a.stride, *slopes = a.slopes + i * a.stride;
    const bool empty = a.sum[i] == 0;
    const Vec sum = hn::Set(d, a.sum[i]), along = hn::Set(d, a.along[i]);
    for (int64_t j = 0; j < padded; j += kLanes) {
      const Vec weight = empty ? hn::Zero(d) : hn::Div(hn::LoadU(d, weights + j), sum);
      Vec slope = hn::Mul(weight, hn::Sub(hn::LoadU(d, slopes + j), along));
      if (a.softcap > 0) {
        const Vec bent =
            vector_tanh(d, hn::Div(hn::Mul(hn::LoadU(d, a.scores + i * a.stride + j), scale), cap));
        slope = hn::Mul(slope, hn::Mul(hn::Sub(one, bent), hn::Add(one, bent)));
      }
      hn::StoreU(weight, d, weights + j);
      hn::StoreU(hn::Mul(slope, scale), d, slopes + j);
    }
  }
}

}  // namespace

const AttentionIsa kAttentionIsa = {softmax_rows, end_rows, slope_rows};

}  // namespace aicf::AICF_ISA_NAMESPACE
