// Views without copies: computes the window a view op gives on its operand's storage, by strides. A reshape
// that strides cannot express returns nullopt; the caller then copies.
#pragma once

#include <optional>

#include "select/kernel_call.h"

namespace aicf {

// Whether none of these sizes or strides depends on a symbol.
bool are_constant(const std::vector<Dim>& dims);
Window row_major_window(ValueId root, const TensorType& type);
// Stored with its axes in this order, outermost first; an empty one is row-major.
Window ordered_window(ValueId root, const TensorType& type, const Ints& order);
bool is_row_major(const Window& window);
// Whether both have the same elements in the same places: strides of axes of size 1 do not count.
bool same_elements(const Window& a, const Window& b);

// Where the windows of a member stand in the list of its bundle.
std::vector<int32_t> operand_numbers(const std::vector<Window>& own, const std::vector<Window>& all);

// Windows of the view ops (trait kView) over an operand's window.
std::optional<Window> view_window(const Node& node, const TensorType& result, const Window& operand);
std::optional<Window> reshape_window(const Window& window, const Shape& shape);
Window broadcast_window(const Window& window, const Shape& shape);
// perm[inverse[i]] = i
Ints inverse_order(const Ints& perm);
Window transpose_window(const Window& window, const std::vector<int64_t>& perm);
Window swap_last_axes(Window w);

// Merges axes [first, last) into one; nullopt if the strides do not allow it.
std::optional<Window> merge_axes(const Window& window, size_t first, size_t last);

}  // namespace aicf
