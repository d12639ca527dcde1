#include "runtime/tensor_view.h"

#include <algorithm>
#include <cstdint>
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

// Addresses from the first byte to one beyond the last.
struct Span {
  uintptr_t begin, end;
};

Span span_of(const TensorView& view) {
  const auto at = reinterpret_cast<uintptr_t>(view.data);
  int64_t before = 0, beyond = view.bytes();
  if (!view.row_major()) {
    beyond = 1;
    for (size_t axis = 0; axis < view.sizes.size(); ++axis) {
      const int64_t reach = (view.sizes[axis] - 1) * view.strides[axis];
      (reach < 0 ? before : beyond) += reach;
    }
    before *= dtype_bytes(view.dtype);
    beyond *= dtype_bytes(view.dtype);
  }
  return {at + static_cast<uintptr_t>(before), at + static_cast<uintptr_t>(beyond)};
}

std::vector<Span> sorted_elements(TensorView view) {
  const auto bytes = static_cast<uintptr_t>(dtype_bytes(view.dtype));
  if (view.strides.empty()) {
    view.strides.resize(view.sizes.size());
    for (int64_t axis = static_cast<int64_t>(view.sizes.size()) - 1, stride = 1; axis >= 0; --axis) {
      view.strides[static_cast<size_t>(axis)] = stride;
      stride *= view.sizes[static_cast<size_t>(axis)];
    }
  }
  std::vector<Span> elements;
  walk(view, [&](const std::byte* at, int64_t) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    elements.push_back({address, address + bytes});
  });
  std::sort(elements.begin(), elements.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return elements;
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

bool repeats_elements(const TensorView& view) {
  if (view.row_major()) return false;
  const std::vector<Span> elements = sorted_elements(view);
  for (size_t i = 1; i < elements.size(); ++i)
    if (elements[i].begin < elements[i - 1].end) return true;
  return false;
}

// Single elements are compared only where memory with strides lies within the other's span.
bool share_elements(const TensorView& a, const TensorView& b) {
  if (a.on_device != b.on_device || a.bytes() == 0 || b.bytes() == 0) return false;
  const Span x = span_of(a), y = span_of(b);
  if (x.end <= y.begin || y.end <= x.begin) return false;
  if (a.row_major() && b.row_major()) return true;
  const std::vector<Span> theirs = sorted_elements(a), ours = sorted_elements(b);
  return std::any_of(ours.begin(), ours.end(), [&](const Span& element) {
    const auto at = std::lower_bound(theirs.begin(), theirs.end(), element,
                                     [](const Span& p, const Span& q) { return p.end <= q.begin; });
    return at != theirs.end() && at->begin < element.end;
  });
}

}  // namespace aicf
