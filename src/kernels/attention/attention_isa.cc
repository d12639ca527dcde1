// Online softmax of attention (Milakov and Gimelshein 2018; Dao et al. 2022): a running maximum and sum per
// row, the weighted sum of values rescaled whenever the maximum grows.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "hwy/highway.h"
#include "kernels/attention/attention_rows.h"
#include "kernels/tile/vector_math.h"

namespace aicf::AICF_ISA_NAMESPACE {
extern const AttentionIsa kAttentionIsa;
namespace {

constexpr int64_t kVirtualLanes = 16;
using Tag = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
constexpr int kParts = static_cast<int>(kVirtualLanes / kLanes);

float combine_sum(const float* lanes) {
  float values[kVirtualLanes];
  memcpy(values, lanes, sizeof(values));
  for (int64_t n = kVirtualLanes / 2; n > 0; n /= 2)
    for (int64_t i = 0; i < n; ++i) values[i] += values[i + n];
  return values[0];
}

float combine_max(const float* lanes) {
  float top = lanes[0];
  for (int64_t i = 1; i < kVirtualLanes; ++i) top = lanes[i] > top ? lanes[i] : top;
  return top;
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

// Scales, caps and masks a row; -inf in the places after the last visible key up to `padded`.
void finish_scores(const AttentionRows& r, int64_t row, int64_t padded, float* scores) {
  const Tag d;
  const Vec scale = hn::Set(d, r.scale), cap = hn::Set(d, r.softcap);
  for (int64_t j = 0; j < padded; j += kLanes) {
    Vec s = hn::Mul(hn::LoadU(d, scores + j), scale);
    if (r.softcap > 0) s = hn::Mul(cap, vector_tanh(d, hn::Div(s, cap)));
    hn::StoreU(s, d, scores + j);
  }
  if (r.mask) add_mask(r, row, scores);
  const int64_t visible = r.visible + row < r.keys ? r.visible + row : r.keys;
  for (int64_t j = visible; j < padded; ++j) scores[j] = -INFINITY;
}

float row_maximum(const float* scores, int64_t padded) {
  const Tag d;
  Vec top[kParts];
  for (int p = 0; p < kParts; ++p) top[p] = hn::Set(d, -INFINITY);
  for (int64_t j = 0; j < padded; j += kVirtualLanes)
    for (int p = 0; p < kParts; ++p) top[p] = hn::Max(top[p], hn::LoadU(d, scores + j + p * kLanes));
  float lanes[kVirtualLanes];
  for (int p = 0; p < kParts; ++p) hn::StoreU(top[p], d, lanes + p * kLanes);
  return combine_max(lanes);
}

// scores = e^(scores - top); their sum. A NaN score stays one whatever `top` is.
float exponentials(float* scores, int64_t padded, float top) {
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
  float lanes[kVirtualLanes];
  for (int p = 0; p < kParts; ++p) hn::StoreU(sum[p], d, lanes + p * kLanes);
  return combine_sum(lanes);
}

void scale_row(float* values, int64_t columns, float factor) {
  const Tag d;
  const Vec f = hn::Set(d, factor);
  for (int64_t j = 0; j < columns; j += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, values + j), f), d, values + j);
}

float exp_of(float x) {
  const Tag d;
  float lanes[kVirtualLanes];
  hn::StoreU(exp_negative(d, hn::Set(d, x)), d, lanes);
  return lanes[0];
}

void softmax_rows(const AttentionRows& r) {
  const int64_t padded = (r.keys + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  for (int64_t i = 0; i < r.rows; ++i) {
    float* scores = r.scores + i * r.stride;
    finish_scores(r, i, padded, scores);
    const float before = r.maximum[i], here = row_maximum(scores, padded);
    const float top = here > before ? here : before;
    const float base = top == -INFINITY ? 0 : top;  // nothing visible yet: e^-inf is 0
    const float factor = exp_of(before - base);
    const float sum = exponentials(scores, padded, base);
    r.maximum[i] = top;
    r.sum[i] = r.sum[i] * factor + sum;
    if (factor != 1.0f) scale_row(r.out + i * r.out_stride, r.out_columns, factor);
  }
}

void end_rows(const AttentionEnd& e) {
  const Tag d;
  for (int64_t i = 0; i < e.rows; ++i) {
    float* out = e.out + i * e.out_stride;
    const bool empty = e.sum[i] == 0;
    const Vec sum = hn::Set(d, e.sum[i]);
    for (int64_t j = 0; j < e.out_columns; j += kLanes)
      hn::StoreU(empty ? hn::Zero(d) : hn::Div(hn::LoadU(d, out + j), sum), d, out + j);
  }
}

}  // namespace

const AttentionIsa kAttentionIsa = {softmax_rows, end_rows};

}  // namespace aicf::AICF_ISA_NAMESPACE
