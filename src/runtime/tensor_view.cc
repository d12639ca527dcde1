#include "runtime/tensor_view.h"

#include <cstring>

namespace aicf {
namespace {

// Calls `visit(at, i)` with the address of every element and its row-major index.
template <class Visit>
void walk(const TensorView& view, Visit visit) {
  const int64_t bytes = dtype_bytes(view.dtype);
  const int64_t count = element_count(view.sizes);
  std::vector<int64_t> index(view.sizes.size(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(static_cast<std::byte*>(view.data) + offset * bytes, i);
    for (size_t axis = view.sizes.size(); axis-- > 0;) {
      offset += view.strides[axis];
      if (++index[axis] < view.sizes[axis]) break;
      offset -= view.strides[axis] * view.sizes[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

bool TensorView::row_major() const {
  if (strides.empty()) return true;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

TensorView view_of(const Array& array) {
  return {array.dtype(), array.sizes(), {}, const_cast<void*>(array.data())};
}

TensorView view_of(const DeviceTensor& tensor) {
  return {tensor.dtype, tensor.sizes, {}, tensor.data(), true};
}

void pack(const TensorView& from, std::byte* to) {
  const auto bytes = static_cast<size_t>(dtype_bytes(from.dtype));
  walk(from,
       [&](const std::byte* at, int64_t i) { std::memcpy(to + static_cast<size_t>(i) * bytes, at, bytes); });
}

void unpack(const std::byte* from, const TensorView& to) {
  const auto bytes = static_cast<size_t>(dtype_bytes(to.dtype));
  walk(to, [&](std::byte* at, int64_t i) { std::memcpy(at, from + static_cast<size_t>(i) * bytes, bytes); });
}

}  // namespace aicf
