// The operations of float reductions, for the files compiled once per ISA level.
#pragma once

#include <math.h>

#include <hwy/highway.h>

#include "kernels/common/isa.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each operation: the neutral element, and the combination of scalars and of vectors with the same bits.
template <class T>
struct Sum {
  static constexpr T neutral() { return 0; }
  static T scalar(T x, T y) { return x + y; }
  template <class V>
  static HWY_INLINE V vector(V x, V y) {
    return hn::Add(x, y);
  }
};
template <class T>
struct Product {
  static constexpr T neutral() { return 1; }
  static T scalar(T x, T y) { return x * y; }
  template <class V>
  static HWY_INLINE V vector(V x, V y) {
    return hn::Mul(x, y);
  }
};
template <class T>
struct Maximum {
  static T neutral() { return -static_cast<T>(INFINITY); }
  static T scalar(T x, T y) { return x > y || x != x ? x : y; }
  template <class V>
  static HWY_INLINE V vector(V x, V y) {
    return hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y);
  }
};
template <class T>
struct Minimum {
  static T neutral() { return static_cast<T>(INFINITY); }
  static T scalar(T x, T y) { return x < y || x != x ? x : y; }
  template <class V>
  static HWY_INLINE V vector(V x, V y) {
    return hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y);
  }
};

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
