// Convolutions and pools.
#include <algorithm>
#include <cmath>

#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// Strides, pads and dilations of a windowed node over its spatial axes, auto_pad resolved.
struct Window {
  Ints kernel, strides, dilations, pads;
};

// Of a kernel, stride, dilation or pad: sums and products of them stay far from overflow.
constexpr int64_t kMaxWindow = 1 << 24;

int64_t extent(const Window& w, size_t i) { return (w.kernel[i] - 1) * w.dilations[i] + 1; }

void check_length(NodeContext& n, const Ints& values, size_t length, const char* what) {
  if (values.size() != length)
    n.bad(std::string("attribute '") + what + "'", std::to_string(length) + " numbers", to_string(values));
}

// SAME_*: as many windows as strides fit; the odd padding element goes behind (UPPER) or in front (LOWER).
void pad_same(NodeContext& n, Window& w, const Shape& x, bool upper) {
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    // With a stride of 1 every size takes the same padding.
    const int64_t size =
        w.strides[i] == 1 ? extent(w, i) : x[2 + i].require_constant("auto_pad of node '" + n.origin() + "'");
    const int64_t windows = (size + w.strides[i] - 1) / w.strides[i];
    const int64_t total = std::max<int64_t>(0, (windows - 1) * w.strides[i] + extent(w, i) - size);
    w.pads[i] = upper ? total / 2 : total - total / 2;
    w.pads[w.kernel.size() + i] = total - w.pads[i];
  }
}

bool is_same(const std::string& mode) { return mode == "SAME_UPPER" || mode == "SAME_LOWER"; }

Window read_window(NodeContext& n, const Shape& x, Ints kernel) {
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
    pad_same(n, w, x, mode == "SAME_UPPER");
  else if (mode != "NOTSET" && !mode.empty())
    n.unsupported("auto_pad=" + mode);
  return w;
}

// SAME_* over strides and sizes that only running tells: x is padded first, by what the size needs in front
// and by enough behind, and what the last windows see of that is cut off again.
struct PaddedFirst {
  bool used = false;
  ValueId x = kNoValue;
  std::vector<Dim> low, high;
  Shape windows;  // of the spatial axes

  ValueId pad(NodeContext& n, ValueId v, double fill) const {
    return n.add(Op::pad, {v, n.scalar(n.dtype_of(v), fill)},
                 {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  }
  ValueId cut(NodeContext& n, ValueId y) const {
    for (size_t i = 0; i < windows.size(); ++i)
      y = n.slice_axis(y, static_cast<int64_t>(2 + i), Dim(0), windows[i]);
    return y;
  }
};

PaddedFirst pad_first(NodeContext& n, ValueId x, Ints kernel, double fill, bool known_sizes_too = false) {
  PaddedFirst padded{false, x, {}, {}, {}};
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
  padded.high = padded.low;
  for (size_t i = 0; i < strides.size(); ++i) {
    const Dim& size = shape[2 + i];
    const Dim windows = ceildiv(size, Dim(w.strides[i]));
    const Dim total = max((windows - Dim(1)) * Dim(w.strides[i]) + Dim(extent(w, i)) - size, Dim(0));
    padded.low[2 + i] = mode == "SAME_UPPER" ? floordiv(total, Dim(2)) : ceildiv(total, Dim(2));
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

// --- convolution; `x` and `w` may be conversions of the node's inputs.

ValueId convolve(NodeContext& n, ValueId x, ValueId w, ValueId bias) {
  const PaddedFirst padded = pad_first(n, x, kernel_of(n, n.shape_of(w)), 0);
  const Window window = read_window(n, n.shape_of(padded.x), kernel_of(n, n.shape_of(w)));
  return padded.cut(n, n.add(Op::conv, {padded.x, w, bias},
                             {{"strides", window.strides},
                              {"pads", window.pads},
                              {"dilations", window.dilations},
                              {"groups", n.attr_int("group", 1)}}));
}

void conv(NodeContext& n) { n.out(0, convolve(n, n.in(0), n.in(1), n.in_or_none(2))); }

// x - zero point in f64, which holds every product sum of 8-bit values exactly.
ValueId centered(NodeContext& n, size_t x, size_t zero_point, bool per_filter) {
  const ValueId wide = n.cast(n.in(x), DType::f64);
  if (!n.has(zero_point)) return wide;
  ValueId zero = n.cast(n.in(zero_point), DType::f64);
  if (per_filter && n.rank(zero_point) == 1 && n.shape(zero_point)[0] != Dim(1)) {
    if (n.rank(x) == 0) n.bad("weights", "rank 3 or more", "a scalar");
    Shape thin(static_cast<size_t>(n.rank(x)), Dim(1));
    thin[0] = n.shape(zero_point)[0];
    zero = n.reshape(zero, thin);
  } else {
    zero = n.reshape(zero, {});
  }
  return n.add(Op::sub, {wide, zero});
}

void conv_integer(NodeContext& n) {
  n.out(0, n.cast(convolve(n, centered(n, 0, 2, false), centered(n, 1, 3, true), kNoValue), DType::i32));
}

// Inputs: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias (i32 in units of x_scale w_scale).
void qlinear_conv(NodeContext& n) {
  const ValueId bias = n.has(8) ? n.cast(n.in(8), DType::f64) : kNoValue;
  const ValueId sum = convolve(n, centered(n, 0, 2, false), centered(n, 3, 5, true), bias);
  auto per_channel = [&](ValueId v) {
    const Shape shape = n.shape_of(v);
    if (shape.empty() || shape[0] == Dim(1)) return n.reshape(v, {});
    Shape thin(n.shape_of(sum).size(), Dim(1));
    thin[1] = shape[0];
    return n.reshape(v, thin);
  };
  const ValueId w_scale = per_channel(n.cast(n.in(4), DType::f64));
  const ValueId x_scale = n.reshape(n.cast(n.in(1), DType::f64), {}),
                y_scale = n.reshape(n.cast(n.in(6), DType::f64), {});
  const ValueId factor = n.add(Op::div, {n.add(Op::mul, {w_scale, x_scale}), y_scale});
  const ValueId rounded = n.add(Op::round, {n.add(Op::mul, {sum, factor})});
  const DType dtype = n.has(7) ? n.dtype(7) : DType::u8;
  const ValueId zero = n.has(7) ? n.reshape(n.cast(n.in(7), DType::f64), {}) : n.scalar(DType::f64, 0);
  n.out(0, n.cast(n.add(Op::add, {rounded, zero}), dtype));
}

// output_shape fixes the result; what it leaves over becomes padding, the odd element behind for SAME_UPPER.
void conv_transpose(NodeContext& n) {
  const Shape x = n.shape(0);
  const std::string mode = n.attr_str("auto_pad", "NOTSET");
  n.set_attr_str("auto_pad", "NOTSET");
  Window w = read_window(n, x, kernel_of(n, n.shape(1)));
  const size_t spatial = w.kernel.size();
  Ints extra = n.attr_ints("output_padding", Ints(spatial, 0));
  Ints wanted = n.attr_ints("output_shape");
  check_length(n, extra, spatial, "output_padding");
  if (wanted.size() == spatial + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty()) check_length(n, wanted, spatial, "output_shape");
  const bool same = is_same(mode);
  if (!same && mode != "NOTSET" && mode != "VALID" && !mode.empty()) n.unsupported("auto_pad=" + mode);
  if (mode == "VALID") w.pads.assign(2 * spatial, 0);
  for (size_t i = 0; i < spatial && (same || !wanted.empty()); ++i) {
    // SAME makes the result `stride` times the size, whatever that is.
    int64_t total = extra[i] + extent(w, i) - w.strides[i];
    if (!wanted.empty())
      total +=
          x[2 + i].require_constant("output_shape of node '" + n.origin() + "'") * w.strides[i] - wanted[i];
    if (total < 0) extra[i] -= total, total = 0;
    w.pads[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pads[spatial + i] = total - w.pads[i];
  }
  // Output padding beyond what the op allows is zeros behind the result.
  std::vector<Dim> low(x.size(), Dim(0)), high = low;
  bool beyond = false;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t limit = std::max(w.strides[i], w.dilations[i]) - 1;
    if (extra[i] > limit) high[2 + i] = Dim(extra[i] - limit), extra[i] = limit, beyond = true;
  }
  if (beyond && n.has(2)) n.unsupported("output_padding beyond the stride, with a bias");
  ValueId y = n.add(Op::conv_transpose, {n.in(0), n.in(1), n.in_or_none(2)},
                    {{"strides", w.strides},
                     {"pads", w.pads},
                     {"dilations", w.dilations},
                     {"output_padding", extra},
                     {"groups", n.attr_int("group", 1)}});
  if (beyond)
    y = n.add(Op::pad, {y, kNoValue}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  n.out(0, y);
}

// --- pools

Attrs pool_attrs(NodeContext& n, const Window& w) {
  return {{"kernel", w.kernel},
          {"strides", w.strides},
          {"pads", w.pads},
          {"dilations", w.dilations},
          {"ceil_mode", n.attr_int("ceil_mode", 0) != 0}};
}

// What never wins a maximum of 8-bit integers or floats.
double lowest(DType dtype) { return dtype == DType::u8 ? 0 : dtype == DType::i8 ? -128 : -INFINITY; }

void max_pool(NodeContext& n) {
  const PaddedFirst padded = pad_first(n, n.in(0), {}, lowest(n.dtype(0)));
  if (padded.used && n.wants(1)) n.unsupported("indices with auto_pad=SAME over a dynamic size");
  Attrs attrs = pool_attrs(n, read_window(n, n.shape_of(padded.x), {}));
  const bool column_major = n.attr_int("storage_order", 0) != 0;
  n.out(0, padded.cut(n, n.add(Op::max_pool, {padded.x}, attrs)));
  if (!n.wants(1)) return;
  attrs.set("column_major", column_major);
  n.out(1, n.add(Op::max_pool_indices, {n.in(0)}, attrs));
}

void average_pool(NodeContext& n) {
  const bool counts_padding = n.attr_int("count_include_pad", 0) != 0;
  // Means that leave the padding out divide twice then; one size does as the range does, to give the same
  // bits.
  const PaddedFirst padded = pad_first(n, n.in(0), {}, 0, !counts_padding);
  Attrs attrs = pool_attrs(n, read_window(n, n.shape_of(padded.x), {}));
  attrs.set("count_include_pad", counts_padding);
  ValueId y = n.add(Op::avg_pool, {padded.x}, attrs);
  if (padded.used && !counts_padding) {
    // The mean with the padding, over the share of each window that is not padding.
    const Shape x = n.shape(0);
    Shape plane = x;
    plane[0] = plane[1] = Dim(1);
    const ValueId ones = padded.pad(n, n.broadcast(n.scalar(n.dtype(0), 1), plane), 0);
    y = n.add(Op::div, {y, n.add(Op::avg_pool, {ones}, attrs)});
  }
  n.out(0, padded.cut(n, y));
}

Ints spatial_axes(NodeContext& n) {
  Ints axes;
  for (int64_t i = 2; i < n.rank(0); ++i) axes.push_back(i);
  return axes;
}

template <Op op>
void global_pool(NodeContext& n) {
  n.out(0, n.add(op, {n.in(0)}, {{"axes", spatial_axes(n)}, {"keepdims", true}}));
}

// x^p, of |x|; p is whole.
ValueId power(NodeContext& n, ValueId x, int64_t p) {
  const ValueId magnitude = n.add(Op::abs, {x});
  if (p == 1) return magnitude;
  return p == 2 ? n.add(Op::mul, {x, x})
                : n.add(Op::pow, {magnitude, n.scalar(n.dtype_of(x), static_cast<double>(p))});
}

ValueId root(NodeContext& n, ValueId x, int64_t p) {
  if (p == 1) return x;
  return p == 2 ? n.add(Op::sqrt, {x})
                : n.add(Op::pow, {x, n.scalar(n.dtype_of(x), 1.0 / static_cast<double>(p))});
}

// The sum over each window is a convolution with ones, each channel on its own.
void lp_pool(NodeContext& n) {
  const int64_t p = n.attr_int("p", 2);
  const PaddedFirst padded = pad_first(n, n.in(0), {}, 0);
  const Shape shape = n.shape_of(padded.x);
  Window w = read_window(n, shape, {});
  const size_t spatial = w.kernel.size();
  if (n.attr_int("ceil_mode", 0) != 0)
    for (size_t i = 0; i < spatial; ++i) {
      const int64_t begins = shape[2 + i].require_constant("ceil_mode") + w.pads[i];
      const int64_t size = begins + w.pads[spatial + i];
      // Not below 0 where the only window hangs over.
      const int64_t over = ((size - extent(w, i)) % w.strides[i] + w.strides[i]) % w.strides[i];
      // As in the other pools, no window begins in the padding behind.
      const bool inside = size - extent(w, i) - over + w.strides[i] < begins;
      if (over != 0 && inside) w.pads[spatial + i] += w.strides[i] - over;
    }
  std::vector<int64_t> sizes = {1, 1};
  sizes.insert(sizes.end(), w.kernel.begin(), w.kernel.end());
  Array ones = n.generated(n.dtype(0), sizes);
  for (int64_t i = 0; i < ones.count(); ++i) ones.set_f64(i, 1.0);
  Shape planes = shape;
  planes[0] = shape[0] * shape[1];
  planes[1] = Dim(1);
  const ValueId sums =
      n.add(Op::conv, {n.reshape(power(n, padded.x, p), planes), n.constant_of(ones), kNoValue},
            {{"strides", w.strides}, {"pads", w.pads}, {"dilations", w.dilations}, {"groups", int64_t{1}}});
  Shape result = n.shape_of(sums);
  result[0] = shape[0];
  result[1] = shape[1];
  n.out(0, padded.cut(n, root(n, n.reshape(sums, result), p)));
}

void global_lp_pool(NodeContext& n) {
  const int64_t p = n.attr_int("p", 2);
  n.out(
      0,
      root(n, n.add(Op::reduce_sum, {power(n, n.in(0), p)}, {{"axes", spatial_axes(n)}, {"keepdims", true}}),
           p));
}

// Values put back where MaxPool found them; indices are flat into the whole tensor of the size the pads and
// strides give.
void max_unpool(NodeContext& n) {
  const Shape x = n.shape(0);
  const Window w = read_window(n, x, {});
  const size_t spatial = w.kernel.size();
  Shape natural = {x[0], x[1]};
  for (size_t i = 0; i < spatial; ++i)
    natural.push_back((x[2 + i] - Dim(1)) * Dim(w.strides[i]) +
                      Dim(w.kernel[i] - w.pads[i] - w.pads[spatial + i]));
  Shape result = n.has(2) ? n.require_sizes(2, "output_shape") : natural;
  if (result.size() != x.size())
    n.bad("output_shape", std::to_string(x.size()) + " sizes", to_string(result));
  const DType dtype = n.dtype(0);
  const ValueId zeros = n.broadcast(n.scalar(dtype, 0), {element_count(natural)});
  const Dim count = element_count(x);
  const ValueId flat =
      n.add(Op::scatter_elements, {zeros, n.reshape(n.in(1), {count}), n.reshape(n.in(0), {count})},
            {{"axis", int64_t{0}}, {"reduction", std::string("none")}});
  // Indices speak of the natural size; a larger output_shape adds zeros behind.
  std::vector<Dim> low(x.size(), Dim(0)), high;
  for (size_t i = 0; i < x.size(); ++i) high.push_back(result[i] - natural[i]);
  n.out(0, n.add(Op::pad, {n.reshape(flat, natural), kNoValue},
                 {{"low", low}, {"high", high}, {"mode", std::string("constant")}}));
}

// Columns [N, C k, L] summed back into images: every element of every block has one place in the padded
// image.
void col2im(NodeContext& n) {
  const Ints image = n.require_ints(1, "image_shape"), block = n.require_ints(2, "block_shape");
  const size_t spatial = image.size();
  const Ints strides = n.attr_ints("strides", Ints(spatial, 1)),
             dilations = n.attr_ints("dilations", Ints(spatial, 1)),
             pads = n.attr_ints("pads", Ints(2 * spatial, 0));
  check_length(n, strides, spatial, "strides");
  check_length(n, dilations, spatial, "dilations");
  check_length(n, pads, 2 * spatial, "pads");
  Ints padded, windows;
  int64_t elements = 1, columns = 1, places = 1;
  if (block.size() != spatial) n.bad("block_shape", "one size per image axis", to_string(block));
  for (size_t i = 0; i < spatial; ++i) {
    for (int64_t size : {image[i], block[i], strides[i], dilations[i]})
      if (size < 1 || size > (1 << 24))
        n.bad("image, block, strides and dilations", "1 to 2^24", std::to_string(size));
    padded.push_back(image[i] + pads[i] + pads[spatial + i]);
    windows.push_back((padded[i] - (dilations[i] * (block[i] - 1) + 1)) / strides[i] + 1);
    elements = checked_mul(elements, block[i]);
    if (windows[i] < 1) n.bad("block_shape", "blocks that fit into the image", to_string(block));
    columns = checked_mul(columns, windows[i]);
    places = checked_mul(places, padded[i]);
  }
  const Shape x = n.shape(0);
  if (x.size() != 3 || x[2] != Dim(columns) || elements < 1)
    n.bad("x", "[N, C " + std::to_string(elements) + ", " + std::to_string(columns) + "]", to_string(x));
  Array index = n.generated(DType::i64, {checked_mul(elements, columns)});
  for (int64_t e = 0; e < elements; ++e)
    for (int64_t c = 0; c < columns; ++c) {
      int64_t place = 0, block_left = e, window_left = c, block_rest = elements, window_rest = columns;
      for (size_t i = 0; i < spatial; ++i) {
        block_rest /= block[i];
        window_rest /= windows[i];
        place = place * padded[i] + (window_left / window_rest) * strides[i] +
                (block_left / block_rest) * dilations[i];
        block_left %= block_rest;
        window_left %= window_rest;
      }
      index.set_i64(e * columns + c, place);
    }
  const Dim channels = floordiv(x[1], Dim(elements));
  const Dim planes = x[0] * channels;
  const Shape flat = {planes, Dim(elements * columns)};
  const ValueId zeros = n.broadcast(n.scalar(n.dtype(0), 0), {planes, Dim(places)});
  const ValueId sums =
      n.add(Op::scatter_elements, {zeros, n.broadcast(n.constant_of(index), flat), n.reshape(n.in(0), flat)},
            {{"axis", int64_t{1}}, {"reduction", std::string("add")}});
  Shape whole = {x[0], channels};
  for (int64_t size : padded) whole.emplace_back(size);
  ValueId y = n.reshape(sums, whole);
  for (size_t i = 0; i < spatial; ++i)
    y = n.slice_axis(y, static_cast<int64_t>(2 + i), pads[i], pads[i] + image[i]);
  n.out(0, y);
}

}  // namespace

std::vector<OpRule> window_rules() {
  return {
      {"Conv", conv},
      {"ConvInteger", conv_integer},
      {"QLinearConv", qlinear_conv},
      {"ConvTranspose", conv_transpose},
      {"MaxPool", max_pool},
      {"AveragePool", average_pool},
      {"GlobalAveragePool", global_pool<Op::reduce_mean>},
      {"GlobalMaxPool", global_pool<Op::reduce_max>},
      {"LpPool", lp_pool},
      {"GlobalLpPool", global_lp_pool},
      {"MaxUnpool", max_unpool},
      {"Col2Im", col2im},
  };
}

}  // namespace aicf::onnx
