// Vectors and tile shapes of the micro-kernels of contractions: the widest of this ISA level. Only for
// *_isa.cc files: everything is inside the namespace of the level and of the file.
#pragma once

#include <stdint.h>
#include <string.h>

#include "hwy/highway.h"
#include "kernels/matmul/cpu/gemm_types.h"

namespace aicf::AICF_ISA_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// Highway has no vectors here; 16 bytes of the compiler's own are what every CPU does well.
template <class T>
struct Simd {
  typedef T Vec __attribute__((vector_size(16)));
  static constexpr int64_t kLanes = 16 / static_cast<int64_t>(sizeof(T));
  static Vec load(const T* from) {
    Vec v;
    memcpy(&v, from, sizeof(v));
    return v;
  }
  static void store(Vec v, T* to) { memcpy(to, &v, sizeof(v)); }
  static Vec set(T value) { return Vec{} + value; }
  static Vec zero() { return Vec{}; }
  static Vec add(Vec a, Vec b) { return a + b; }
  static Vec mul_add(Vec a, Vec b, Vec c) { return a * b + c; }
};
#else
template <class T>
struct Simd {
  using Tag = hn::ScalableTag<T>;
  using Vec = hn::Vec<Tag>;
  static constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
  static HWY_INLINE Vec load(const T* from) { return hn::LoadU(Tag(), from); }
  static HWY_INLINE void store(Vec v, T* to) { hn::StoreU(v, Tag(), to); }
  static HWY_INLINE Vec set(T value) { return hn::Set(Tag(), value); }
  static HWY_INLINE Vec zero() { return hn::Zero(Tag()); }
  static HWY_INLINE Vec add(Vec a, Vec b) { return hn::Add(a, b); }
  static HWY_INLINE Vec mul_add(Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); }
};
#endif

// Rows × vectors of C in registers: 24 of 32 for AVX-512, 12 of 16 below. The more rows, the less of the
// right operand comes from L2 for a multiply-add. Widths of convolutions, mostly multiples of 64, fill panels
// of four vectors.
template <int kRowCount, int kVectorCount>
struct GemmTile {
  static constexpr int kRows = kRowCount, kVectors = kVectorCount;
};
#if HWY_TARGET == HWY_AVX3
using TallTile = GemmTile<8, 3>;
using WideTile = GemmTile<6, 4>;
#else
using TallTile = GemmTile<4, 3>;
using WideTile = TallTile;
#endif

template <class T>
constexpr int64_t lanes() {
  return Simd<T>::kLanes;
}
template <class Tile, class T>
constexpr int64_t panel() {
  return Tile::kVectors * lanes<T>();
}
static_assert(TallTile::kRows <= kGemmRows && panel<WideTile, float>() <= kWidestPanel);

}  // namespace
}  // namespace aicf::AICF_ISA_NAMESPACE
