#include "select/layout.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {

bool are_constant(const std::vector<Dim>& dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.is_constant(); });
}

Window row_major_window(ValueId root, const TensorType& type) {
  return {type.dtype, Dim(0), type.shape, row_major_strides(type.shape), root};
}

Window ordered_window(ValueId root, const TensorType& type, const Ints& order) {
  if (order.empty()) return row_major_window(root, type);
  TensorType stored{type.dtype, {}};
  for (int64_t axis : order) stored.shape.push_back(type.shape[static_cast<size_t>(axis)]);
  return transpose_window(row_major_window(root, stored), inverse_order(order));
}

bool same_elements(const Window& a, const Window& b) {
  if (a.root != b.root || a.dtype != b.dtype || !(a.offset == b.offset) || !(a.sizes == b.sizes))
    return false;
  for (size_t i = 0; i < a.sizes.size(); ++i)
    if (!(a.sizes[i] == Dim(1)) && !(a.strides[i] == b.strides[i])) return false;
  return true;
}

std::vector<int32_t> operand_numbers(const std::vector<Window>& own, const std::vector<Window>& all) {
  std::vector<int32_t> numbers;
  for (const Window& w : own)
    numbers.push_back(static_cast<int32_t>(std::find(all.begin(), all.end(), w) - all.begin()));
  return numbers;
}

bool is_row_major(const Window& window) {
  Dim expected(1);
  for (size_t i = window.sizes.size(); i-- > 0;) {
    if (window.sizes[i] == Dim(1)) continue;
    if (!(window.strides[i] == expected)) return false;
    expected = expected * window.sizes[i];
  }
  return true;
}

Window broadcast_window(const Window& window, const Shape& shape) {
  Window result{window.dtype, window.offset, shape, std::vector<Dim>(shape.size(), Dim(0)), window.root};
  const size_t lead = shape.size() - window.sizes.size();
  for (size_t i = 0; i < window.sizes.size(); ++i)
    if (!(window.sizes[i] == Dim(1)) || shape[lead + i] == Dim(1))
      result.strides[lead + i] = window.strides[i];
  return result;
}

Ints inverse_order(const Ints& perm) {
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return inverse;
}

Window transpose_window(const Window& window, const std::vector<int64_t>& perm) {
  Window result{window.dtype, window.offset, {}, {}, window.root};
  for (int64_t axis : perm) {
    result.sizes.push_back(window.sizes[static_cast<size_t>(axis)]);
    result.strides.push_back(window.strides[static_cast<size_t>(axis)]);
  }
  return result;
}

Window swap_last_axes(Window w) {
  std::swap(w.sizes.end()[-1], w.sizes.end()[-2]);
  std::swap(w.strides.end()[-1], w.strides.end()[-2]);
  return w;
}

std::optional<Window> merge_axes(const Window& window, size_t first, size_t last) {
  Window result{window.dtype, window.offset, {}, {}, window.root};
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (i <= first || i >= last) {
      result.sizes.push_back(window.sizes[i]);
      result.strides.push_back(window.strides[i]);
      continue;
    }
    Dim& size = result.sizes.back();
    Dim& stride = result.strides.back();
    const bool fits =
        size == Dim(1) || window.sizes[i] == Dim(1) || stride == window.sizes[i] * window.strides[i];
    if (!fits) return std::nullopt;
    if (!(window.sizes[i] == Dim(1))) stride = window.strides[i];
    size = size * window.sizes[i];
  }
  return result;
}

std::optional<Window> reshape_window(const Window& window, const Shape& shape) {
  Window result{window.dtype, window.offset, shape, std::vector<Dim>(shape.size(), Dim(0)), window.root};
  if (is_row_major(window)) {
    result.strides = row_major_strides(shape);
    return result;
  }
  // Walk both shapes from the left, closing a group whenever the products agree; inside a group the old axes
  // must merge.
  size_t old_axis = 0, new_axis = 0;
  while (new_axis < shape.size() || old_axis < window.sizes.size()) {
    size_t old_end = old_axis, new_end = new_axis;
    Dim old_product(1), new_product(1);
    if (old_end < window.sizes.size()) old_product = window.sizes[old_end++];
    if (new_end < shape.size()) new_product = shape[new_end++];
    while (!(old_product == new_product)) {
      // Grow the side that divides the other; when neither is known to, the strides cannot be matched
      // symbolically.
      if (new_end < shape.size() && divide_exactly(old_product, new_product)) {
        new_product = new_product * shape[new_end++];
      } else if (old_end < window.sizes.size() && divide_exactly(new_product, old_product)) {
        old_product = old_product * window.sizes[old_end++];
      } else {
        return std::nullopt;
      }
    }
    Dim stride(1);
    if (old_end > old_axis) {
      auto merged = merge_axes(window, old_axis, old_end);
      if (!merged) return std::nullopt;
      stride = merged->strides[old_axis];
    }
    for (size_t i = new_end; i-- > new_axis;) {
      result.strides[i] = stride;
      stride = stride * shape[i];
    }
    old_axis = old_end;
    new_axis = new_end;
  }
  return result;
}

std::optional<Window> view_window(const Node& node, const TensorType& result, const Window& operand) {
  switch (node.op) {
    case Op::reshape:
      return reshape_window(operand, result.shape);
    case Op::broadcast_to:
      return broadcast_window(operand, result.shape);
    case Op::transpose:
      return transpose_window(operand, node.attrs.get_ints("perm"));
    case Op::slice: {
      Window window = operand;
      const Shape& starts = node.attrs.get_dims("starts");
      const Ints& steps = node.attrs.get_ints("steps");
      window.sizes = result.shape;
      for (size_t i = 0; i < steps.size(); ++i) {
        window.offset = window.offset + starts[i] * window.strides[i];
        window.strides[i] = window.strides[i] * Dim(steps[i]);
      }
      return window;
    }
    case Op::reverse: {
      Window window = operand;
      for (int64_t axis : node.attrs.get_ints("axes")) {
        const auto i = static_cast<size_t>(axis);
        window.offset = window.offset + (window.sizes[i] - Dim(1)) * window.strides[i];
        window.strides[i] = Dim(0) - window.strides[i];
      }
      return window;
    }
    default:
      break;
  }
  AICF_CHECK(false, std::string("not a view op: ") + std::string(op_info(node.op).name));
}

}  // namespace aicf
