// Packing of right operands into panels (gemm_types.h) with the vectors of this ISA level. Only for *_isa.cc
// files.
#pragma once

#include <stdint.h>

#include "hwy/highway.h"
#include "kernels/matmul/cpu/gemm_simd.h"
#include "kernels/matmul/cpu/gemm_types.h"

namespace aicf::AICF_ISA_NAMESPACE {
namespace {

// Columns side by side that fill kFull vectors: zeros in the others of the panel.
template <int kFull, class T>
void pack_vectors(const GemmPack<T>& pack, int64_t column, int64_t width, T* to) {
  const T* from = pack.from + column;
  for (int64_t k = 0; k < pack.depth; ++k, from += pack.k_stride, to += width) {
#pragma GCC unroll 4
    for (int j = 0; j < kFull; ++j) Simd<T>::store(Simd<T>::load(from + j * lanes<T>()), to + j * lanes<T>());
    for (int64_t j = kFull * lanes<T>(); j < width; j += lanes<T>()) Simd<T>::store(Simd<T>::zero(), to + j);
  }
}

// Whole vectors of a row, which are cheaper here than a call of memcpy; gives how many elements it copied.
template <class T>
HWY_INLINE int64_t copy_vectors(const T* from, int64_t count, T* to) {
  int64_t j = 0;
  for (; j + lanes<T>() <= count; j += lanes<T>()) Simd<T>::store(Simd<T>::load(from + j), to + j);
  return j;
}

// Steps [k0, k1) of the columns from j0 on, zeros after the last.
template <class T>
void pack_steps(const GemmPack<T>& pack, int64_t column, int64_t columns, int64_t width, int64_t k0,
                int64_t k1, int64_t j0, T* to) {
  for (int64_t k = k0; k < k1; ++k) {
    const T* from = pack.from + k * pack.k_stride + column * pack.n_stride;
    T* out = to + k * width;
    int64_t j = j0;
    if (pack.n_stride == 1) j += copy_vectors(from + j, columns - j, out + j);
    for (; j < columns; ++j) out[j] = from[j * pack.n_stride];
    for (j = columns; j < width; ++j) out[j] = 0;
  }
}

#if HWY_TARGET != HWY_SCALAR
// Steps of k contiguous: 4 × 4 blocks of `steps` steps and `columns` columns turned in registers.
void turn_blocks(const GemmPack<float>& pack, int64_t column, int64_t columns, int64_t width, int64_t steps,
                 float* to) {
  const hn::Full128<float> d;
  const hn::Repartition<double, decltype(d)> wide;
  for (int64_t j = 0; j < columns; j += 4) {
    const float* from = pack.from + (column + j) * pack.n_stride;
    for (int64_t k = 0; k < steps; k += 4) {
      const auto r0 = hn::LoadU(d, from + k), r1 = hn::LoadU(d, from + k + pack.n_stride);
      const auto r2 = hn::LoadU(d, from + k + 2 * pack.n_stride),
                 r3 = hn::LoadU(d, from + k + 3 * pack.n_stride);
      const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
      const auto b = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
      const auto e = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
      const auto f = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
      float* out = to + k * width + j;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, a, b)), d, out + width);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, e, f)), d, out + 2 * width);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, e, f)), d, out + 3 * width);
    }
  }
}
#endif

template <class T>
void pack_panel(const GemmPack<T>& pack, int64_t column, int64_t columns, int64_t width, T* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == sizeof(float)) {
    if (pack.k_stride == 1 && pack.n_stride != 1) {
      const int64_t steps = pack.depth / 4 * 4, turned = columns / 4 * 4;
      turn_blocks(pack, column, turned, width, steps, to);
      if (turned < width) pack_steps(pack, column, columns, width, 0, steps, turned, to);
      pack_steps(pack, column, columns, width, steps, pack.depth, 0, to);
      return;
    }
  }
#endif
  if (pack.n_stride == 1 && columns % lanes<T>() == 0) {
    const int64_t full = columns / lanes<T>();
    if (full == 1) return pack_vectors<1>(pack, column, width, to);
    if (full == 2) return pack_vectors<2>(pack, column, width, to);
    if (full == 3) return pack_vectors<3>(pack, column, width, to);
    return pack_vectors<4>(pack, column, width, to);
  }
  pack_steps(pack, column, columns, width, 0, pack.depth, 0, to);
}

template <class Tile, class T>
void run_pack(const GemmPack<T>& pack) {
  for (int64_t column = 0; column < pack.n; column += panel<Tile, T>()) {
    const int64_t left = pack.n - column;
    const bool last = left <= panel<Tile, T>();
    pack_panel(pack, column, last ? left : panel<Tile, T>(),
               last && pack.last != 0 ? pack.last : panel<Tile, T>(),
               pack.to + column / panel<Tile, T>() * pack.panel_stride);
  }
}

}  // namespace
}  // namespace aicf::AICF_ISA_NAMESPACE
