// The value type of the reference evaluator and its few index helpers. Floats of every dtype are held as f64
// and integers and bool as i64, so that neither loses anything; normalize() brings a result to its dtype.
// Nothing here is shared with the kernels: the evaluator judges them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/array.h"
#include "base/error.h"

namespace aicf::reference {

using Index = std::vector<int64_t>;

struct RefTensor {
  DType dtype = DType::f32;
  Index sizes;
  std::vector<double> f;   // row-major elements of a float dtype
  std::vector<int64_t> i;  // row-major elements of any other dtype; bool is 0 or 1

  bool is_float() const { return aicf::is_float(dtype); }
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t count() const { return static_cast<int64_t>(is_float() ? f.size() : i.size()); }
};
using RefValue = std::shared_ptr<const RefTensor>;

RefTensor make_tensor(DType dtype, Index sizes);  // zeros
RefTensor from_array(const Array& array, DType dtype);
// With f64_floats a float tensor becomes an f64 array whatever its dtype.
Array to_array(const RefTensor& tensor, bool f64_floats);

double round_to(DType dtype, double value);
int64_t wrap_to(DType dtype, int64_t value);
// Integers wrap and bool becomes 0 or 1; floats round once to the dtype if `round_floats`.
void normalize(RefTensor& tensor, bool round_floats);

// Bounds of an integer dtype; of bool 0 and 1.
int64_t lowest(DType dtype);
int64_t highest(DType dtype);

// Two's complement arithmetic.
inline int64_t wrap_add(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
}
inline int64_t wrap_mul(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
}
// Larger and smaller; NaN if either is, and +0 counts as larger than -0 so that the order of operands never
// matters.
double max_of(double x, double y);
double min_of(double x, double y);

// Row-major position of an index, bounds-checked.
inline int64_t flat_index(const Index& sizes, const Index& index) {
  AICF_CHECK(sizes.size() == index.size(), "an index has one number per axis");
  int64_t flat = 0;
  for (size_t a = 0; a < sizes.size(); ++a) {
    AICF_CHECK(index[a] >= 0 && index[a] < sizes[a], "an index lies inside its tensor");
    flat = flat * sizes[a] + index[a];
  }
  return flat;
}

// Calls body(index, flat) for every index in row-major order.
template <typename Body>
void for_each_index(const Index& sizes, Body&& body) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  Index index(sizes.size(), 0);
  for (int64_t flat = 0; flat < count; ++flat) {
    body(static_cast<const Index&>(index), flat);
    for (size_t a = sizes.size(); a-- > 0;) {
      if (++index[a] < sizes[a]) break;
      index[a] = 0;
    }
  }
}

// body(out elements, x elements) with both as f64 or both as i64.
template <typename Body>
void with_elements(RefTensor& out, const RefTensor& x, Body&& body) {
  AICF_CHECK(out.is_float() == x.is_float(), "both tensors are float or neither is");
  if (x.is_float())
    body(out.f, x.f);
  else
    body(out.i, x.i);
}

// A tensor of the given sizes whose element at `index` is x's element at source(index), an index of x.
template <typename Source>
RefTensor rearrange(const RefTensor& x, const Index& sizes, Source&& source) {
  RefTensor out = make_tensor(x.dtype, sizes);
  with_elements(out, x, [&](auto& to, const auto& from) {
    for_each_index(sizes, [&](const Index& index, int64_t flat) {
      to[static_cast<size_t>(flat)] = from[static_cast<size_t>(flat_index(x.sizes, source(index)))];
    });
  });
  return out;
}

// x repeated along its axes of size 1 and missing leading axes, as numpy broadcasts.
RefTensor expand(const RefTensor& x, const Index& sizes);

// A tensor seen as lines along one axis: element k of line (outer, inner) lies at at(outer, k, inner).
struct Lines {
  int64_t outer = 1, length = 1, inner = 1;
  size_t at(int64_t o, int64_t k, int64_t n) const {
    return static_cast<size_t>((o * length + k) * inner + n);
  }
};
Lines lines_along(const Index& sizes, int64_t axis);
// The same with all axes from `axis` on as one line.
Lines lines_from(const Index& sizes, int64_t axis);

template <typename Body>
void for_each_line(const Lines& lines, Body body) {
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t n = 0; n < lines.inner; ++n) body(o, n);
}
// The largest element of a line; NaN if it holds one, -infinity if it is empty.
double line_max(const std::vector<double>& x, const Lines& lines, int64_t o, int64_t n);

}  // namespace aicf::reference
