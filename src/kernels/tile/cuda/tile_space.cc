#include "kernels/tile/cuda/tile_space.h"

#include <algorithm>

#include "base/error.h"

namespace aicf {
namespace {

constexpr int64_t kIndexLimit = int64_t{1} << 30;  // leaves room for a grid's overshoot

Dim magnitude(const Dim& dim) {
  const auto value = dim.constant();
  if (value) return Dim(*value < 0 ? -*value : *value);
  return !dim.terms().empty() && dim.terms()[0].coefficient < 0 ? Dim(0) - dim : dim;
}

int64_t saturating_add(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

// Axes of one group with the strides of every view.
struct SpaceAxis {
  Dim size;
  std::vector<Dim> strides;
};

// Outermost first in memory: by the strides of the last view (an output), then by those of all.
void sort_axes(std::vector<SpaceAxis>& axes, const SymbolRanges& ranges) {
  const auto key = [&](const SpaceAxis& axis) {
    int64_t sum = 0;
    for (const Dim& stride : axis.strides) sum = saturating_add(sum, upper_bound(magnitude(stride), ranges));
    return std::pair(upper_bound(magnitude(axis.strides.back()), ranges), sum);
  };
  std::stable_sort(axes.begin(), axes.end(),
                   [&](const SpaceAxis& a, const SpaceAxis& b) { return key(a) > key(b); });
}

std::vector<SpaceAxis> merge(const std::vector<SpaceAxis>& axes) {
  std::vector<SpaceAxis> merged;
  for (const SpaceAxis& axis : axes) {
    if (is_number(axis.size, 1)) continue;
    bool joins = !merged.empty();
    for (size_t i = 0; joins && i < axis.strides.size(); ++i)
      joins = merged.back().strides[i] == axis.strides[i] * axis.size;
    if (joins) {
      merged.back().size = merged.back().size * axis.size;
      merged.back().strides = axis.strides;
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

bool needs_wide(const TileSpace& space, const SymbolRanges& ranges) {
  if (upper_bound(space_count(space, 0, space.rank()), ranges) > kIndexLimit) return true;
  for (const TileView& view : space.views) {
    int64_t extent = 0;
    for (size_t i = 0; i < space.rank(); ++i) {
      const int64_t stride = upper_bound(magnitude(view.strides[i]), ranges);
      const int64_t size = upper_bound(space.sizes[i], ranges);
      if (stride == 0 || size <= 1) continue;
      if (stride > kIndexLimit || size > kIndexLimit) return true;
      extent = saturating_add(extent, stride * size);
    }
    if (extent > kIndexLimit) return true;
  }
  return false;
}

}  // namespace

bool is_number(const Dim& dim, int64_t value) { return dim == Dim(value); }

bool divisible(const Dim& dim, int64_t divisor) {
  if (dim.constant_part() % divisor != 0) return false;
  return std::all_of(dim.terms().begin(), dim.terms().end(),
                     [&](const Dim::Term& term) { return term.coefficient % divisor == 0; });
}

int64_t upper_bound(const Dim& dim, const SymbolRanges& ranges) {
  try {
    return bounds(dim, ranges).hi;
  } catch (const UserError&) {  // size_overflow: beyond 63 bits
    return INT64_MAX;
  }
}

int view_alignment(const TileView& view, size_t axis) {
  const int bytes = dtype_bytes(view.dtype);
  int alignment = 16;
  const auto limit = [&](const Dim& elements) {
    while (alignment > bytes && !divisible(elements, alignment / bytes)) alignment /= 2;
  };
  limit(view.offset);
  for (size_t i = 0; i < view.strides.size(); ++i)
    if (i != axis) limit(view.strides[i]);
  return alignment;
}

Dim space_count(const TileSpace& space, size_t first, size_t last) {
  return element_count(Shape(space.sizes.begin() + static_cast<std::ptrdiff_t>(first),
                             space.sizes.begin() + static_cast<std::ptrdiff_t>(last)));
}

TileSpace tile_space(const std::vector<CudaWindow>& windows, size_t inner_rank, AxisOrder outer,
                     AxisOrder inner, const SymbolRanges& ranges) {
  const size_t rank = windows[0].sizes.size();
  AICF_CHECK(inner_rank <= rank, "inner rank beyond the rank of the windows");
  std::vector<SpaceAxis> axes(rank);
  for (size_t i = 0; i < rank; ++i) {
    axes[i].size = Dim(1);
    for (const CudaWindow& window : windows)
      if (!is_number(window.sizes[i], 1)) {
        axes[i].size = window.sizes[i];
        break;
      }
    for (const CudaWindow& window : windows) {
      AICF_CHECK(window.sizes[i] == axes[i].size || is_number(window.sizes[i], 1),
                 "windows of a tile call do not share a domain");
      axes[i].strides.push_back(is_number(window.sizes[i], 1) ? Dim(0) : window.strides[i]);
    }
  }
  const auto middle = axes.begin() + static_cast<std::ptrdiff_t>(rank - inner_rank);
  std::vector<SpaceAxis> first(axes.begin(), middle), second(middle, axes.end());
  if (outer == AxisOrder::kFree) sort_axes(first, ranges);
  if (inner == AxisOrder::kFree) sort_axes(second, ranges);
  first = merge(first), second = merge(second);
  TileSpace space;
  space.outer = first.size();
  first.insert(first.end(), second.begin(), second.end());
  for (const SpaceAxis& axis : first) space.sizes.push_back(axis.size);
  for (size_t v = 0; v < windows.size(); ++v) {
    TileView view{windows[v].dtype, windows[v].offset, {}, {}};
    for (const SpaceAxis& axis : first) view.strides.push_back(axis.strides[v]);
    space.views.push_back(std::move(view));
  }
  space.wide = needs_wide(space, ranges);
  return space;
}

}  // namespace aicf
