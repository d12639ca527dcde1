// What rules over calls ask of the windows that calls read and write.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "select/call_program.h"
#include "select/layout.h"

namespace aicf {

// How many of the windows are of this value; and whether one is.
inline std::ptrdiff_t count_root(const std::vector<Window>& windows, ValueId root) {
  return std::count_if(windows.begin(), windows.end(), [&](const Window& w) { return w.root == root; });
}
inline bool has_root(const std::vector<Window>& windows, ValueId root) {
  return std::any_of(windows.begin(), windows.end(), [&](const Window& w) { return w.root == root; });
}
// Whether both have windows of one value.
inline bool share_root(const std::vector<Window>& a, const std::vector<Window>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Window& w) { return has_root(b, w.root); });
}
// Whether windows of two lists differ in their values alone.
inline bool same_form(const std::vector<Window>& a, const std::vector<Window>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Window& x, const Window& y) {
    return x.dtype == y.dtype && x.offset == y.offset && x.sizes == y.sizes && x.strides == y.strides;
  });
}
// The windows of a member among those of a call of several.
inline void add_once(const std::vector<Window>& own, std::vector<Window>& all) {
  for (const Window& w : own)
    if (std::find(all.begin(), all.end(), w) == all.end()) all.push_back(w);
}

// Operands and origins of a member as those of the call of several.
inline void add_member(const KernelCall& member, KernelCall& whole) {
  add_once(member.inputs, whole.inputs);
  add_once(member.outputs, whole.outputs);
  whole.origins.insert(whole.origins.end(), member.origins.begin(), member.origins.end());
}

// The whole of a new value between calls; the name is for people.
inline Window add_temp(CallGraph& graph, const TensorType& type, const char* name) {
  return row_major_window(graph.add_extra({ExtraValue::Kind::kTemp, type, name}), type);
}

// Bytes of a value at the upper ends of the ranges.
inline int64_t most_bytes(const CallGraph& graph, ValueId root) {
  const TensorType& type = graph.type_of(root);
  return bounds(element_count(type.shape), graph.ranges).hi * dtype_bytes(type.dtype);
}

inline Window columns_of(Window window, const Dim& first, const Dim& count) {
  window.offset = window.offset + first * window.strides.back();
  window.sizes.back() = count;
  return window;
}

// A window of a region over the axes of a product, of which all but the last may be one.
inline std::optional<Window> over_rows(const Window& window, size_t rank) {
  if (window.sizes.size() == rank) return window;
  return rank == 2 && window.sizes.size() > 2 ? merge_axes(window, 0, window.sizes.size() - 1) : std::nullopt;
}

}  // namespace aicf
