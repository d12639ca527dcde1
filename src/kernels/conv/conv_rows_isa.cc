// Micro-kernels of packed convolutions: a tile of C stays in registers over a whole block of k, columns are
// vector lanes, elements of the rows are broadcast from where they lie.
#include "kernels/conv/conv_rows.h"

#include "hwy/highway.h"
#include "kernels/matmul/gemm_simd.h"

namespace aicf::AICF_ISA_NAMESPACE {
extern const ConvRowsIsa kConvRowsIsa;
namespace {

// Rows × vectors of C in registers: 24 of 32 for AVX-512, 12 of 16 below.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
constexpr int kVectors = 3;
constexpr int64_t kLanes = Simd<float>::kLanes;
constexpr int64_t kPanel = kVectors * kLanes;
constexpr int64_t kAhead = 16;  // steps of the panel to fetch ahead: weights stream from L2 or from memory

template <int kM, int kN>
HWY_NOINLINE void micro(const ConvRowsBlock& block, const float* HWY_RESTRICT b, float* HWY_RESTRICT c) {
  using S = Simd<float>;
  typename S::Vec sum[kM][kN];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) sum[i][j] = S::zero();
  }
  for (int64_t s = 0; s < block.segments; ++s) {
    const float* row[kM];
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) row[i] = block.rows[s * kConvRows + i];
    const int64_t length = block.lengths[s];
    for (int64_t k = 0; k < length; ++k) {
      typename S::Vec right[kN];
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) {
        right[j] = S::load(b + j * kLanes);
        __builtin_prefetch(b + kAhead * kPanel + j * kLanes);
      }
      b += kPanel;
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) {
        const auto left = S::set(row[i][k]);
#pragma GCC unroll 8
        for (int j = 0; j < kN; ++j) sum[i][j] = S::mul_add(left, right[j], sum[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      float* to = c + i * block.ldc + j * kLanes;
      S::store(block.first ? sum[i][j] : S::add(S::load(to), sum[i][j]), to);
    }
  }
}

using Micro = void (*)(const ConvRowsBlock&, const float*, float*);

template <int kN>
Micro pick_rows(int64_t rows) {
  switch (rows) {
    case 1:
      return micro<1, kN>;
    case 2:
      return micro<2, kN>;
    case 3:
      return micro<3, kN>;
    case 4:
      return micro<4, kN>;
#if HWY_TARGET == HWY_AVX3
    case 5:
      return micro<5, kN>;
    case 6:
      return micro<6, kN>;
    case 7:
      return micro<7, kN>;
    case 8:
      return micro<8, kN>;
#endif
  }
  return nullptr;
}

void run(const ConvRowsBlock& block) {
  for (int64_t column = 0; column < block.n; column += kPanel) {
    const int64_t vectors = (block.n - column + kLanes - 1) / kLanes;
    const Micro function = vectors == 1   ? pick_rows<1>(block.m)
                           : vectors == 2 ? pick_rows<2>(block.m)
                                          : pick_rows<3>(block.m);
    function(block, block.b + column / kPanel * block.panel_stride, block.c + column);
  }
}

void add_bias(float* HWY_RESTRICT c, int64_t ldc, int64_t m, int64_t n, const float* HWY_RESTRICT bias) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] += bias[j];
}

}  // namespace

const ConvRowsIsa kConvRowsIsa = {kRows, kPanel, run, add_bias};

}  // namespace aicf::AICF_ISA_NAMESPACE
