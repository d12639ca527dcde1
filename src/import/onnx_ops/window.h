// The windows of convolutions and pools.
#pragma once

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

// Strides, pads and dilations of a windowed node over its spatial axes, auto_pad resolved.
struct Window {
  Ints kernel, strides, dilations, pads;
};

// How many elements a window of the axis spans.
int64_t extent(const Window& w, size_t i);

void check_length(NodeContext& n, const Ints& values, size_t length, const char* what);

// Whether auto_pad pads by the sizes.
bool is_same(const std::string& mode);

// What SAME_* does where the strides leave elements over behind the last window: the text of pools has pads
// below 0 there, which cut; that of convolutions knows pads only.
enum class Rest { kStays, kIsCut };

// Of the node's attributes, `kernel` in place of a missing kernel_shape; x has the shape given. Pads are
// below 0 only where the rest is cut.
Window read_window(NodeContext& n, const Shape& x, Ints kernel, Rest rest = Rest::kStays);

// x without what pads below 0 cut off; those pads become 0.
ValueId cut_rest(NodeContext& n, ValueId x, Window& w);

// SAME_* over strides and sizes that only running tells: x is padded first, by what the size needs in front
// and by enough behind, and what the last windows see of that is cut off again.
struct PaddedFirst {
  bool used = false;
  ValueId x = kNoValue;
  std::vector<Dim> low, high;
  std::vector<Dim> begin;  // of what the first windows see, in the padded x
  Shape windows;           // of the spatial axes

  ValueId pad(NodeContext& n, ValueId v, double fill) const {
    v = n.add(Op::pad, {v, n.scalar(n.dtype_of(v), fill)},
              {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
    for (size_t i = 0; i < begin.size(); ++i)
      if (begin[i] != Dim(0)) v = n.slice_axis(v, static_cast<int64_t>(i), begin[i], n.shape_of(v)[i]);
    return v;
  }
  ValueId cut(NodeContext& n, ValueId y) const {
    for (size_t i = 0; i < windows.size(); ++i)
      y = n.slice_axis(y, static_cast<int64_t>(2 + i), Dim(0), windows[i]);
    return y;
  }
};

PaddedFirst pad_first(NodeContext& n, ValueId x, Ints kernel, double fill, Rest rest,
                      bool known_sizes_too = false);

// The spatial sizes of a convolution's weights.
Ints kernel_of(NodeContext& n, const Shape& w);

}  // namespace aicf::onnx
