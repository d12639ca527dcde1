// Pools, and what undoes them.
#include <algorithm>
#include <cmath>

#include "import/onnx_ops/registry.h"
#include "import/onnx_ops/window.h"

namespace aicf::onnx {
namespace {

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
  const PaddedFirst padded = pad_first(n, n.in(0), {}, lowest(n.dtype(0)), Rest::kIsCut);
  if (padded.used && n.wants(1)) n.unsupported("indices with auto_pad=SAME over a dynamic size");
  Window w = read_window(n, n.shape_of(padded.x), {}, Rest::kIsCut);
  const ValueId x = cut_rest(n, padded.x, w);
  if (x != padded.x && n.wants(1)) n.unsupported("indices with auto_pad=SAME that cuts");
  Attrs attrs = pool_attrs(n, w);
  const bool column_major = n.attr_int("storage_order", 0) != 0;
  n.out(0, padded.cut(n, n.add(Op::max_pool, {x}, attrs)));
  if (!n.wants(1)) return;
  attrs.set("column_major", column_major);
  n.out(1, n.add(Op::max_pool_indices, {n.in(0)}, attrs));
}

void average_pool(NodeContext& n) {
  const bool counts_padding = n.attr_int("count_include_pad", 0) != 0;
  // Means that leave the padding out divide twice then; one size does as the range does, to give the same
  // bits.
  const PaddedFirst padded = pad_first(n, n.in(0), {}, 0, Rest::kIsCut, !counts_padding);
  Window w = read_window(n, n.shape_of(padded.x), {}, Rest::kIsCut);
  const ValueId seen = cut_rest(n, padded.x, w);
  Attrs attrs = pool_attrs(n, w);
  attrs.set("count_include_pad", counts_padding);
  ValueId y = n.add(Op::avg_pool, {seen}, attrs);
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
ValueId absolute_power(NodeContext& n, ValueId x, int64_t p) {
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
  const PaddedFirst padded = pad_first(n, n.in(0), {}, 0, Rest::kIsCut);
  Window w = read_window(n, n.shape_of(padded.x), {}, Rest::kIsCut);
  const ValueId x = n.widened(cut_rest(n, padded.x, w));
  const Shape shape = n.shape_of(x);
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
  Array ones = n.generated(n.dtype_of(x), sizes);
  for (int64_t i = 0; i < ones.count(); ++i) ones.set_f64(i, 1.0);
  Shape planes = shape;
  planes[0] = shape[0] * shape[1];
  planes[1] = Dim(1);
  const ValueId sums =
      n.add(Op::conv, {n.reshape(absolute_power(n, x, p), planes), n.constant_of(ones), kNoValue},
            {{"strides", w.strides}, {"pads", w.pads}, {"dilations", w.dilations}, {"groups", int64_t{1}}});
  Shape result = n.shape_of(sums);
  result[0] = shape[0];
  result[1] = shape[1];
  n.out(0, padded.cut(n, n.cast(root(n, n.reshape(sums, result), p), n.dtype(0))));
}

void global_lp_pool(NodeContext& n) {
  const int64_t p = n.attr_int("p", 2);
  const ValueId sums = n.add(Op::reduce_sum, {absolute_power(n, n.widened(n.in(0)), p)},
                             {{"axes", spatial_axes(n)}, {"keepdims", true}});
  n.out(0, n.cast(root(n, sums, p), n.dtype(0)));
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

std::vector<OpRule> pool_rules() {
  return {
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
