// Plain loops: the compiler turns them into vectors of this level.
#include <stdint.h>

#include "kernels/conv/depthwise_row.h"

namespace aicf::AICF_ISA_NAMESPACE {
extern const DepthwiseIsa kDepthwiseIsa;
namespace {

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

}  // namespace

const DepthwiseIsa kDepthwiseIsa = {add_tap};

}  // namespace aicf::AICF_ISA_NAMESPACE
