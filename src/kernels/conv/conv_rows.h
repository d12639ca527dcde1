// Plain types between the driver of packed convolutions and its micro-kernels, which exist once per ISA
// level; no code, so that the files compiled for AVX may include it.
//
// As a contraction, rows are output positions, columns are output channels, and k runs over (kernel positions
// in row-major order, input channel). Rows are not copied: a row is a list of segments, one per kernel
// position that the block of k meets, each a pointer to neighbouring channels. The law of gemm_types.h holds:
// blocks of kGemmDepth steps, one chain of multiply-adds inside a block, blocks added in order.
#pragma once

#include <stdint.h>

namespace aicf {

constexpr int64_t kConvRows = 8;  // most rows of a group at any ISA level

struct ConvRowsBlock {
  const float* const* rows;  // rows[s * kConvRows + i]: segment s of row i
  const int64_t* lengths;    // steps of k in each segment
  int64_t segments;
  const float* b;        // panel j holds columns [j nr, (j + 1) nr): step after step, nr columns each
  int64_t panel_stride;  // elements between panels
  float* c;              // the last panel is written in full
  int64_t ldc;
  int64_t m, n;  // rows, at most mr, and columns
  bool first;    // store the result instead of adding it to C
};

struct ConvRowsIsa {
  int64_t mr, nr;
  void (*run)(const ConvRowsBlock& block);
  // c[i * ldc + j] += bias[j]
  void (*add_bias)(float* c, int64_t ldc, int64_t m, int64_t n, const float* bias);
};

}  // namespace aicf
