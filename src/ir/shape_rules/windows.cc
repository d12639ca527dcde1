#include <algorithm>

#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

// Attributes of a windowed op over `spatial` axes: strides and dilations of at least 1, pads = lows then
// highs.
struct Windows {
  size_t spatial;
  const Ints &strides, &pads, &dilations;
  int64_t low(size_t i) const { return pads[i]; }
  int64_t high(size_t i) const { return pads[spatial + i]; }
};

Windows require_windows(const ShapeQuery& query) {
  require_rank_at_least(query, 0, 3);
  const size_t spatial = query.shape(0).size() - 2;
  return {spatial, require_ints(query, "strides", spatial, 1), require_ints(query, "pads", 2 * spatial, 0),
          require_ints(query, "dilations", spatial, 1)};
}

// Elements from the first to the last tap of a window.
Dim extent(const Dim& kernel, int64_t dilation) { return Dim(dilation) * (kernel - Dim(1)) + Dim(1); }

Dim smaller(const Dim& a, const Dim& b) {
  if (known_greater(a, b)) return b;
  return known_greater(b, a) ? a : min(a, b);
}

// How many windows fit: floor((size + low + high - extent) / stride) + 1. With ceil_mode a last window may
// hang over the right edge, as long as it starts inside x or its low padding (ONNX and PyTorch): start < size
// + low, which bounds the count by ceil((size + low) / stride).
Dim window_count(const ShapeQuery& query, const Windows& windows, size_t i, const Dim& kernel,
                 bool ceil_mode) {
  const Dim& size = query.shape(0)[2 + i];
  const Dim padded = size + Dim(windows.low(i)) + Dim(windows.high(i));
  const Dim window = extent(kernel, windows.dilations[i]);
  // A window that hangs over may be the only one.
  const Dim reach = ceil_mode ? padded + Dim(windows.strides[i] - 1) : padded;
  if (known_greater(window, reach))
    fail_shape(query,
               "windows that fit into the padded size " + padded.to_string() + " on spatial axis " +
                   std::to_string(i),
               "an extent of " + window.to_string());
  const Dim stride(windows.strides[i]);
  if (!ceil_mode) return floordiv(padded - window, stride) + Dim(1);
  return smaller(ceildiv(padded - window, stride) + Dim(1), ceildiv(size + Dim(windows.low(i)), stride));
}

int64_t require_groups(const ShapeQuery& query) {
  const int64_t groups = query.attrs.get_int("groups");
  if (groups < 1) fail_attribute(query, "groups", "at least 1", std::to_string(groups));
  return groups;
}

void require_divisible(const ShapeQuery& query, const Dim& channels, int64_t groups, const char* what) {
  if (channels.is_constant() && channels.constant_part() % groups != 0)
    fail_shape(query, std::string(what) + " divisible by groups " + std::to_string(groups),
               channels.to_string());
}

// A kernel size of 0 would make a window without elements.
void require_kernel(const ShapeQuery& query) {
  require_rank(query, 1, query.rank(0));
  for (size_t i = 2; i < query.shape(1).size(); ++i)
    if (known_greater(Dim(1), query.shape(1)[i]))
      fail_shape(query, "kernel sizes of at least 1", query.shape(1)[i].to_string());
}

}  // namespace

void shape_conv(ShapeQuery& query) {
  check_tf32(query);
  const Windows windows = require_windows(query);
  require_kernel(query);
  const int64_t groups = require_groups(query);
  const Shape &x = query.shape(0), &w = query.shape(1);
  require_equal(query, x[1], w[1] * Dim(groups), "channels C of x and groups times those of w");
  require_divisible(query, w[0], groups, "output channels M");
  require_shape(query, 2, {w[0]});
  Shape result = {x[0], w[0]};
  for (size_t i = 0; i < windows.spatial; ++i)
    result.push_back(window_count(query, windows, i, w[2 + i], false));
  query.results[0].shape = std::move(result);
}

void shape_conv_weight_gradient(ShapeQuery& query) {
  check_tf32(query);
  const Windows windows = require_windows(query);
  const Shape& kernel = require_dims(query, "kernel", windows.spatial);
  for (const Dim& size : kernel)
    if (known_greater(Dim(1), size)) fail_attribute(query, "kernel", "sizes of at least 1", size.to_string());
  const int64_t groups = require_groups(query);
  require_rank(query, 1, query.rank(0));
  const Shape &x = query.shape(0), &dy = query.shape(1);
  require_equal(query, dy[0], x[0], "images N of x and dy");
  require_divisible(query, x[1], groups, "channels C");
  require_divisible(query, dy[1], groups, "output channels M");
  Shape result = {dy[1], floordiv(x[1], Dim(groups))};
  for (size_t i = 0; i < windows.spatial; ++i) {
    const Dim count = window_count(query, windows, i, kernel[i], false);
    if (known_greater(dy[2 + i], count))
      fail_shape(query,
                 "at most " + count.to_string() + " positions of dy on spatial axis " + std::to_string(i),
                 dy[2 + i].to_string());
    result.push_back(kernel[i]);
  }
  query.results[0].shape = std::move(result);
}

void shape_conv_transpose(ShapeQuery& query) {
  check_tf32(query);
  const Windows windows = require_windows(query);
  require_kernel(query);
  const int64_t groups = require_groups(query);
  const Ints& output_padding = require_ints(query, "output_padding", windows.spatial, 0);
  const Shape &x = query.shape(0), &w = query.shape(1);
  require_equal(query, x[1], w[0], "channels C of x and w");
  require_divisible(query, x[1], groups, "channels C");
  const Dim channels = w[1] * Dim(groups);
  require_shape(query, 2, {channels});
  Shape result = {x[0], channels};
  for (size_t i = 0; i < windows.spatial; ++i) {
    if (output_padding[i] >= std::max(windows.strides[i], windows.dilations[i]))
      fail_attribute(query, "output_padding", "less than the stride or the dilation",
                     to_string(output_padding));
    const Dim size = (x[2 + i] - Dim(1)) * Dim(windows.strides[i]) + extent(w[2 + i], windows.dilations[i]) +
                     Dim(output_padding[i]) - Dim(windows.low(i)) - Dim(windows.high(i));
    if (known_greater(Dim(0), size))
      fail_shape(query, "a result size of at least 0 on spatial axis " + std::to_string(i), size.to_string());
    result.push_back(size);
  }
  query.results[0].shape = std::move(result);
}

void shape_pool(ShapeQuery& query) {
  const Windows windows = require_windows(query);
  const Ints& kernel = require_ints(query, "kernel", windows.spatial, 1);
  const Shape& x = query.shape(0);
  Shape result = {x[0], x[1]};
  for (size_t i = 0; i < windows.spatial; ++i)
    result.push_back(window_count(query, windows, i, Dim(kernel[i]), query.attrs.get_bool("ceil_mode")));
  query.results[0].shape = std::move(result);
}

}  // namespace aicf
