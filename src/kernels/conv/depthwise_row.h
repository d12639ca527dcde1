// One kernel position of a depthwise convolution over a row of outputs, once per ISA level.
#pragma once

#include <stdint.h>

namespace aicf {

struct DepthwiseIsa {
  // sums[i] = fma(weight, x[i * step], sums[i]) for i < count
  void (*add_tap)(float* sums, const float* x, int64_t step, int64_t count, float weight);
};

}  // namespace aicf
