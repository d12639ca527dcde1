// A strided view: where the elements of an operand lie, counted in elements. The one form for operands of
// calls, of CUDA problems, of a plan's steps, of record keys and of bound steps.
#pragma once

#include <vector>

#include "base/dtype.h"

namespace aicf {

// `Size` is Dim where sizes are symbolic, Interval over the ranges of sizes, int64_t where they are bound.
template <class Size>
struct Strided {
  DType dtype = DType::f32;
  Size offset = {};  // from the buffer's start to the element at index 0, …, 0
  std::vector<Size> sizes;
  std::vector<Size> strides;  // 0 where an axis repeats, negative where it walks backwards
  bool operator==(const Strided&) const = default;
};

}  // namespace aicf
