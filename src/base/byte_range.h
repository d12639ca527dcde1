// Which bytes of its buffer a strided operand may touch, and whether those of two are apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/dim.h"
#include "base/strided.h"

namespace aicf {

// The bytes of a window: its axes with steps made positive, those of one element left out.
struct ByteExtent {
  struct Axis {
    int64_t step = 0;              // bytes
    std::optional<int64_t> reach;  // bytes from the first element to the last; nothing if sizes decide
  };
  int64_t first = 0, last = -1;  // of any byte, along the axes whose reach is known
  int64_t element = 1;           // bytes
  bool empty = false;
  std::vector<Axis> axes;

  ByteExtent(int64_t byte_offset, int64_t element_bytes)
      : first(byte_offset), last(byte_offset + element_bytes - 1), element(element_bytes) {}

  // `size` is nothing if it may be any; strides count elements.
  void add_axis(std::optional<int64_t> size, int64_t stride) {
    // A repeated axis touches its one element even where it is empty: a reduction of nothing stores its
    // identity.
    if (stride == 0 || size == 1) return;
    if (size == 0) empty = true;
    const int64_t step = checked_mul(stride, element);
    Axis axis{step < 0 ? checked_mul(step, -1) : step, std::nullopt};
    if (size) {
      axis.reach = checked_mul(*size - 1, axis.step);
      if (step < 0)
        first = checked_add(first, -*axis.reach);
      else
        last = checked_add(last, *axis.reach);
    }
    axes.push_back(axis);
  }

  bool is_bounded() const {
    return std::all_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.reach.has_value(); });
  }
};

// First and last of its bytes modulo `period`; nothing if they wrap around or are unknown.
inline std::optional<std::pair<int64_t, int64_t>> residues(const ByteExtent& extent, int64_t period) {
  int64_t span = extent.element - 1;
  for (const ByteExtent::Axis& axis : extent.axes) {
    if (axis.step % period == 0) continue;
    if (!axis.reach) return std::nullopt;
    span = checked_add(span, *axis.reach);
  }
  const int64_t first = (extent.first % period + period) % period;
  if (span >= period - first) return std::nullopt;
  return std::pair(first, first + span);
}

// Windows of one buffer are apart if their bytes are, or if they are different columns of the same rows:
// apart modulo some step. What this cannot show counts as overlap.
inline bool may_overlap(const ByteExtent& a, const ByteExtent& b) {
  if (a.empty || b.empty) return false;
  if (a.is_bounded() && b.is_bounded() && (a.last < b.first || b.last < a.first)) return false;
  for (const ByteExtent* extent : {&a, &b})
    for (const ByteExtent::Axis& axis : extent->axes) {
      const auto x = residues(a, axis.step), y = residues(b, axis.step);
      if (x && y && (x->second < y->first || y->second < x->first)) return false;
    }
  return true;
}

// Nothing if sizes decide where it begins or how far it steps.
inline std::optional<ByteExtent> byte_extent(const Strided<Dim>& window) {
  const auto offset = window.offset.constant();
  if (!offset) return std::nullopt;
  const int64_t bytes = dtype_bytes(window.dtype);
  ByteExtent extent(checked_mul(*offset, bytes), bytes);
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    const auto stride = window.strides[i].constant();
    if (!stride) return std::nullopt;
    extent.add_axis(window.sizes[i].constant(), *stride);
  }
  return extent;
}

// Of two operands in one buffer. Sizes that are not constant may be anything.
inline bool may_share_bytes(const Strided<Dim>& a, const Strided<Dim>& b) {
  const auto x = byte_extent(a), y = byte_extent(b);
  return !x || !y || may_overlap(*x, *y);
}

}  // namespace aicf
