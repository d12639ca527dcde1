// What pooling does with the channels of one position, once per ISA level.
#pragma once

#include <stdint.h>

namespace aicf {

struct PoolIsa {
  // out = x if first, else the larger of both, NaN if either is
  void (*take_max)(float* out, const float* x, int64_t count, bool first);
  // out = 0 + x if first, else out + x
  void (*take_sum)(float* out, const float* x, int64_t count, bool first);
  void (*divide)(float* out, int64_t count, float divisor);
};

}  // namespace aicf
