// A row of outputs of a depthwise convolution, of one channel or of channels side by side, once per ISA
// level. The law: a sum begins at 0 and takes its taps in order, fma(w, x, sum), those in the padding left
// out.
#pragma once

#include <stdint.h>

namespace aicf {

constexpr int64_t kMaxRowTaps = 16;  // positions of a kernel row in DepthwiseRow

// Taps of one kernel row: output i takes, for k < taps, the weight w[k * w_stride] and x[at + i * stride + k
// * dilation], if begin[k] <= i < end[k].
struct DepthwiseRow {
  float* sums;
  int64_t count;   // outputs
  const float* x;  // a channel, of which elements [0, size) may be read
  int64_t size, stride, dilation, taps;
  int64_t begin[kMaxRowTaps], end[kMaxRowTaps];
  int64_t rows;           // kernel rows
  const int64_t* at;      // of each, in x
  const float* const* w;  // of each
  int64_t w_stride;
};

// Output positions, `x_step` apart in x, whose windows lie inside the input alike, of channels that lie side
// by side. For t < taps, channel i takes w[t][i] and x[t][i]; sums and weights have room up to a multiple of
// 16 channels.
struct DepthwisePixels {
  float* sums;
  int64_t sums_step, pixels, x_step, channels, taps;
  const float* const* x;
  const float* const* w;
};

struct DepthwiseIsa {
  // sums[i] = fma(weight, x[i * step], sums[i]) for i < count
  void (*add_tap)(float* sums, const float* x, int64_t step, int64_t count, float weight);
  // All kernel rows of a row of outputs, which it begins at 0; the stride is 1 or 2.
  void (*sum_row)(const DepthwiseRow& row);
  // Sums that it begins at 0.
  void (*sum_pixels)(const DepthwisePixels& pixels);
};

}  // namespace aicf
