#include <stdint.h>
#include <string.h>

#include "kernels/tile/tile_chain.h"
#include "kernels/tile/tile_numbers.h"
#include "kernels/tile/vector_math.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {

constexpr int kWide = 4;  // vectors at once: an operation then costs more than choosing it

template <int kCount, class D, class V>
static HWY_INLINE void apply(D d, const TileChainStep& step, int64_t i, V* v) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* operand = step.op < kChainExp ? step.operand + i : nullptr;
#define AICF_EACH_VECTOR(expression)               \
  for (int j = 0; j < kCount; ++j) {               \
    const V x = v[j];                              \
    const V y = hn::LoadU(d, operand + j * lanes); \
    v[j] = expression;                             \
  }                                                \
  return
  switch (step.op) {
    case kChainAdd:
      AICF_EACH_VECTOR(hn::Add(x, y));
    case kChainMul:
      AICF_EACH_VECTOR(hn::Mul(x, y));
    case kChainSub:
      if (step.reversed) {
        AICF_EACH_VECTOR(hn::Sub(y, x));
      }
      AICF_EACH_VECTOR(hn::Sub(x, y));
    case kChainMax:
      if (step.reversed) {
        AICF_EACH_VECTOR(max_nan(d, y, x));
      }
      AICF_EACH_VECTOR(max_nan(d, x, y));
    case kChainMin:
      if (step.reversed) {
        AICF_EACH_VECTOR(min_nan(d, y, x));
      }
      AICF_EACH_VECTOR(min_nan(d, x, y));
#undef AICF_EACH_VECTOR
#define AICF_EACH_VECTOR(function)                           \
  for (int j = 0; j < kCount; ++j) v[j] = function(d, v[j]); \
  return
    case kChainExp:
      AICF_EACH_VECTOR(vector_exp);
    case kChainTanh:
      AICF_EACH_VECTOR(vector_tanh);
    case kChainSigmoid:
      AICF_EACH_VECTOR(vector_sigmoid);
    case kChainGelu:
      AICF_EACH_VECTOR(vector_gelu);
    case kChainGeluTanh:
      AICF_EACH_VECTOR(vector_gelu_tanh);
#undef AICF_EACH_VECTOR
  }
}

template <int kCount>
static HWY_INLINE void run_vectors(const TileChain& row, int64_t i) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> v[kCount];
  for (int j = 0; j < kCount; ++j) v[j] = hn::LoadU(d, row.x + i + j * lanes);
  for (int32_t s = 0; s < row.count; ++s) apply<kCount>(d, row.steps[s], i, v);
  for (int j = 0; j < kCount; ++j) hn::StoreU(v[j], d, row.out + i + j * lanes);
}

// The tail goes through vectors padded with zeros.
static void run_tail(const TileChain& row, int64_t i, int64_t n) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  HWY_ALIGN float value[kLanes] = {};
  const size_t bytes = static_cast<size_t>(n - i) * sizeof(float);
  memcpy(value, row.x + i, bytes);
  auto v = hn::Load(d, value);
  for (int32_t s = 0; s < row.count; ++s) {
    TileChainStep step = row.steps[s];
    HWY_ALIGN float operand[kLanes] = {};
    if (step.op < kChainExp) memcpy(operand, step.operand + i, bytes);
    step.operand = operand;
    apply<1>(d, step, 0, &v);
  }
  hn::Store(v, d, value);
  memcpy(row.out + i, value, bytes);
}

static void run_chain(const TileChain& chain, int64_t rows, int64_t n) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  TileChain row = chain;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t i = 0;
    for (; i + kWide * kLanes <= n; i += kWide * kLanes) run_vectors<kWide>(row, i);
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) run_vectors<2>(row, i);
    for (; i + kLanes <= n; i += kLanes) run_vectors<1>(row, i);
    if (i < n) run_tail(row, i, n);
    row.x += row.x_stride;
    row.out += row.out_stride;
    for (int32_t s = 0; s < row.count; ++s) row.steps[s].operand += row.steps[s].row_stride;
  }
}

TileChainFunction tile_chain_function() { return run_chain; }

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
