#include "import/onnx_ops/window.h"

#include <algorithm>

namespace aicf::onnx {
namespace {

// Of a kernel, stride, dilation or pad: sums and products of them stay far from overflow.
constexpr int64_t kMaxWindow = 1 << 24;

// SAME_*: as many windows as strides fit; the odd padding element goes behind (UPPER) or in front (LOWER).
// Halves of a total below 0 are rounded towards 0, as onnxruntime does.
void pad_same(NodeContext& n, Window& w, const Shape& x, bool upper, Rest rest) {
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    // With a stride of 1 every size takes the same padding.
    const int64_t size =
        w.strides[i] == 1 ? extent(w, i) : x[2 + i].require_constant("auto_pad of node '" + n.origin() + "'");
    const int64_t windows = (size + w.strides[i] - 1) / w.strides[i];
    const int64_t least = rest == Rest::kIsCut ? -size : 0;
    const int64_t total = std::max(least, (windows - 1) * w.strides[i] + extent(w, i) - size);
    w.pads[i] = upper ? total / 2 : (total + 1) / 2;
    w.pads[w.kernel.size() + i] = total - w.pads[i];
  }
}

}  // namespace

int64_t extent(const Window& w, size_t i) { return (w.kernel[i] - 1) * w.dilations[i] + 1; }

void check_length(NodeContext& n, const Ints& values, size_t length, const char* what) {
  if (values.size() != length)
    n.bad(std::string("attribute '") + what + "'", std::to_string(length) + " numbers", to_string(values));
}

bool is_same(const std::string& mode) { return mode == "SAME_UPPER" || mode == "SAME_LOWER"; }

Window read_window(NodeContext& n, const Shape& x, Ints kernel, Rest rest) {
  if (x.size() < 3) n.bad("x", "rank >= 3", to_string(x));
  const size_t spatial = x.size() - 2;
  Window w{n.attr_ints("kernel_shape", std::move(kernel)), n.attr_ints("strides", Ints(spatial, 1)),
           n.attr_ints("dilations", Ints(spatial, 1)), n.attr_ints("pads", Ints(2 * spatial, 0))};
  check_length(n, w.kernel, spatial, "kernel_shape");
  check_length(n, w.strides, spatial, "strides");
  check_length(n, w.dilations, spatial, "dilations");
  check_length(n, w.pads, 2 * spatial, "pads");
  for (size_t i = 0; i < spatial; ++i)
    if (w.kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1 || w.kernel[i] > kMaxWindow ||
        w.dilations[i] > kMaxWindow || w.strides[i] > kMaxWindow)
      n.bad("kernel, strides and dilations", "1 to 2^24", to_string(w.kernel));
  for (const int64_t pad : w.pads)
    if (pad < -kMaxWindow || pad > kMaxWindow) n.bad("pads", "at most 2^24", to_string(w.pads));
  const std::string mode = n.attr_str("auto_pad", "NOTSET");
  if (mode == "VALID")
    w.pads.assign(2 * spatial, 0);
  else if (is_same(mode))
    pad_same(n, w, x, mode == "SAME_UPPER", rest);
  else if (mode != "NOTSET" && !mode.empty())
    n.unsupported("auto_pad=" + mode);
  return w;
}

ValueId cut_rest(NodeContext& n, ValueId x, Window& w) {
  const size_t spatial = w.kernel.size();
  for (size_t i = 0; i < spatial; ++i) {
    int64_t &low = w.pads[i], &high = w.pads[spatial + i];
    const Dim size = n.shape_of(x)[2 + i];
    x = n.slice_axis(x, static_cast<int64_t>(2 + i), std::max<int64_t>(0, -low),
                     size + Dim(std::min<int64_t>(0, high)));
    low = std::max<int64_t>(0, low);
    high = std::max<int64_t>(0, high);
  }
  return x;
}

PaddedFirst pad_first(NodeContext& n, ValueId x, Ints kernel, double fill, Rest rest, bool known_sizes_too) {
  PaddedFirst padded{false, x, {}, {}, {}, {}};
  const std::string mode = n.attr_str("auto_pad", "NOTSET");
  const Shape shape = n.shape_of(x);
  if (!is_same(mode) || shape.size() < 3) return padded;
  const Ints strides = n.attr_ints("strides", Ints(shape.size() - 2, 1));
  check_length(n, strides, shape.size() - 2, "strides");
  for (size_t i = 0; i < strides.size(); ++i)
    padded.used = padded.used || (strides[i] > 1 && (known_sizes_too || !shape[2 + i].is_constant()));
  if (!padded.used) return padded;
  n.set_attr_str("auto_pad", "VALID");
  const Window w = read_window(n, shape, std::move(kernel));
  padded.low.assign(shape.size(), Dim(0));
  padded.begin = padded.high = padded.low;
  for (size_t i = 0; i < strides.size(); ++i) {
    const Dim& size = shape[2 + i];
    const Dim windows = ceildiv(size, Dim(w.strides[i]));
    const Dim wanted = (windows - Dim(1)) * Dim(w.strides[i]) + Dim(extent(w, i)) - size;
    const bool upper = mode == "SAME_UPPER";
    const Dim total = max(wanted, Dim(0));
    padded.low[2 + i] = upper ? floordiv(total, Dim(2)) : ceildiv(total, Dim(2));
    if (rest == Rest::kIsCut && n.bounds_of(wanted).lo < 0) {
      const Dim over = max(Dim(0) - wanted - Dim(upper ? 0 : 1), Dim(0));
      padded.begin[2 + i] = floordiv(over, Dim(2));
    }
    padded.high[2 + i] = Dim(extent(w, i) - 1);
    padded.windows.push_back(windows);
  }
  padded.x = padded.pad(n, x, fill);
  return padded;
}

Ints kernel_of(NodeContext& n, const Shape& w) {
  Ints kernel;
  for (size_t i = 2; i < w.size(); ++i)
    kernel.push_back(w[i].require_constant("kernel of node '" + n.origin() + "'"));
  return kernel;
}

}  // namespace aicf::onnx
