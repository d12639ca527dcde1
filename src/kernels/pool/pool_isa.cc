// Plain loops: the compiler turns them into vectors of this level.
#include <stdint.h>

#include "kernels/pool/pool_rows.h"

namespace aicf::AICF_ISA_NAMESPACE {
extern const PoolIsa kPoolIsa;
namespace {

void take_max(float* __restrict out, const float* __restrict x, int64_t count, bool first) {
  if (first) {
    for (int64_t i = 0; i < count; ++i) out[i] = x[i];
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool larger = !(x[i] <= out[i]);  // also if x is NaN
    out[i] = larger && out[i] == out[i] ? x[i] : out[i];
  }
}

void take_sum(float* __restrict out, const float* __restrict x, int64_t count, bool first) {
  if (first) {
    for (int64_t i = 0; i < count; ++i) out[i] = 0.0f + x[i];  // -0 becomes 0, as in any sum
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] += x[i];
}

void divide(float* out, int64_t count, float divisor) {
  for (int64_t i = 0; i < count; ++i) out[i] /= divisor;
}

}  // namespace

const PoolIsa kPoolIsa = {take_max, take_sum, divide};

}  // namespace aicf::AICF_ISA_NAMESPACE
