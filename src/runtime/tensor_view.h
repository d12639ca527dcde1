// Memory of the caller that a run reads or writes: an input or output with its sizes and strides.
#pragma once

#include <cstddef>
#include <vector>

#include "base/array.h"
#include "runtime/device_tensor.h"

namespace aicf {

// Strides in elements; empty: row-major.
struct TensorView {
  DType dtype = DType::f32;
  std::vector<int64_t> sizes, strides;
  void* data = nullptr;    // of inputs never written
  bool on_device = false;  // in the memory of the executable's device; host memory otherwise
  bool row_major() const;
  int64_t bytes() const { return element_count(sizes) * dtype_bytes(dtype); }
};
TensorView view_of(const Array& array);
TensorView view_of(const DeviceTensor& tensor);

// Whether two elements lie in the same bytes: of one view, or of two in the same kind of memory.
bool repeats_elements(const TensorView& view);
bool share_elements(const TensorView& a, const TensorView& b);

// Copies the elements of a view in host memory to row-major bytes, and back.
void pack(const TensorView& from, std::byte* to);
void unpack(const std::byte* from, const TensorView& to);

}  // namespace aicf
