#include <stdint.h>
#include <string.h>

#include "kernels/tile/cpu/tile_chain.h"
#include "kernels/tile/cpu/tile_chain_ops.h"
#include "kernels/tile/cpu/tile_numbers.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {

constexpr int kWide = 4;  // vectors at once: an operation then costs more than choosing it

template <int kCount, class D, class V>
static HWY_INLINE void apply(D d, const TileChainStep& step, int64_t i, V (&v)[kCount]) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* operand = step.op < kChainExp ? step.operand + i : nullptr;
  apply_chain_op<kCount>(d, step.op, step.reversed, v,
                         [=](auto j) AICF_LAMBDA { return hn::LoadU(d, operand + j.value * lanes); });
}

template <int kCount>
static HWY_INLINE void run_vectors(const TileChain& row, int64_t i) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> v[kCount];
  each_index<kCount>([&](auto j) AICF_LAMBDA { v[j.value] = hn::LoadU(d, row.x + i + j.value * lanes); });
  for (int32_t s = 0; s < row.count; ++s) apply<kCount>(d, row.steps[s], i, v);
  each_index<kCount>([&](auto j) AICF_LAMBDA { hn::StoreU(v[j.value], d, row.out + i + j.value * lanes); });
}

// The tail goes through vectors padded with zeros.
static void run_tail(const TileChain& row, int64_t i, int64_t n) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  HWY_ALIGN float value[kLanes] = {};
  const size_t bytes = static_cast<size_t>(n - i) * sizeof(float);
  memcpy(value, row.x + i, bytes);
  hn::Vec<decltype(d)> v[1] = {hn::Load(d, value)};
  for (int32_t s = 0; s < row.count; ++s) {
    TileChainStep step = row.steps[s];
    HWY_ALIGN float operand[kLanes] = {};
    if (step.op < kChainExp) memcpy(operand, step.operand + i, bytes);
    step.operand = operand;
    apply<1>(d, step, 0, v);
  }
  hn::Store(v[0], d, value);
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
