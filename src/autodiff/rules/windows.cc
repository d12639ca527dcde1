// Convolutions and pooling. The gradient of conv's input is conv_transpose; of conv_transpose's, conv; the
// gradient of the weights is a convolution with batch and channels exchanged, strides and dilations too.
#include <algorithm>

#include "autodiff/vjp.h"

namespace aicf {
namespace {

struct Windows {
  Ints strides, pads, dilations;
  size_t spatial() const { return strides.size(); }
};

Windows windows_of(const Attrs& attrs) {
  return {attrs.get_ints("strides"), attrs.get_ints("pads"), attrs.get_ints("dilations")};
}

// Sums what windows at the positions of dy give to the elements under them: [N, C, size of `full`...]. Where
// the last window ends before or behind the end of x is decided by padding if known, else by cutting.
ValueId spread_windows(Emitter& e, ValueId dy, ValueId w, const Windows& windows, const Shape& full,
                       int64_t groups) {
  const Shape dy_shape = e.shape(dy), w_shape = e.shape(w);
  const size_t spatial = windows.spatial();
  Ints pads = windows.pads, output_padding(spatial, 0);
  for (size_t i = 0; i < spatial; ++i) {
    const Dim reach = (dy_shape[2 + i] - Dim(1)) * Dim(windows.strides[i]) +
                      Dim(windows.dilations[i]) * (w_shape[2 + i] - Dim(1)) + Dim(1) - Dim(pads[i]);
    const auto excess = (reach - full[2 + i]).constant();
    pads[spatial + i] = excess && *excess > 0 ? *excess : 0;
    output_padding[i] = !excess ? windows.strides[i] - 1 : *excess < 0 ? -*excess : 0;
  }
  const ValueId sums = e.op(Op::conv_transpose, {dy, w},
                            {{"strides", windows.strides},
                             {"pads", pads},
                             {"dilations", windows.dilations},
                             {"output_padding", output_padding},
                             {"groups", groups}});
  Shape limits = e.shape(sums);
  for (size_t i = 2; i < limits.size(); ++i) limits[i] = full[i];
  return cut(e, sums, Shape(limits.size(), Dim(0)), limits);
}

Ints swapped(size_t rank) {
  Ints perm = axes_from(0, static_cast<int64_t>(rank));
  std::swap(perm[0], perm[1]);
  return perm;
}

// Kernels of one element over all of x, in f32 or wider: one product for each image.
bool is_product(const Vjp& v, const Windows& windows, ValueId x, ValueId dy, const Shape& w) {
  const auto all = [](const Ints& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
  };
  const Shape &size = v.e.shape(x), &positions = v.e.shape(dy);
  const DType dtype = v.e.dtype(x);
  return std::equal(size.begin() + 2, size.end(), positions.begin() + 2) && all(windows.strides, 1) &&
         all(windows.pads, 0) && v.attrs().get_int("groups") == 1 &&
         std::all_of(w.begin() + 2, w.end(), [](const Dim& size) { return size == Dim(1); }) &&
         (dtype == DType::f32 || dtype == DType::f64);
}

ValueId product_weight_gradient(Emitter& e, ValueId x, ValueId dy, const Shape& w) {
  const auto as_rows = [&](ValueId image) {
    const Shape shape = e.shape(image);
    return e.reshape(image, {shape[0], shape[1], element_count(Shape(shape.begin() + 2, shape.end()))});
  };
  const ValueId products = e.op(Op::matmul, {as_rows(dy), as_rows(x)}, {{"transpose_y", true}});
  return e.reshape(e.reduce(Op::reduce_sum, products, {0}, false), w);
}

// Gradient of the weights w [M, C/groups, kernel...] of conv from its input x [N, C, size...] and the
// gradient dy [N, M, positions...] of its result: the channels of a group become the batch, the batch the
// summed channels.
ValueId weight_gradient(const Vjp& v, ValueId x, ValueId dy, const Shape& w) {
  Emitter& e = v.e;
  const Windows windows = windows_of(v.attrs());
  if (is_product(v, windows, x, dy, w)) return product_weight_gradient(e, x, dy, w);
  const int64_t groups = v.attrs().get_int("groups");
  const Shape shape = e.shape(x);
  Shape split = shape, merged = shape;
  split[1] = w[1];
  split.insert(split.begin() + 1, Dim(groups));
  merged[0] = w[1];
  merged[1] = Dim(groups) * shape[0];
  Ints exchange = axes_from(0, static_cast<int64_t>(split.size()));
  std::swap(exchange[0], exchange[2]);
  const ValueId rows = e.reshape(permute(e, e.reshape(x, split), exchange), merged);
  const Ints swap = swapped(shape.size());
  const ValueId sums = e.op(Op::conv, {rows, permute(e, dy, swap)},
                            {{"strides", windows.dilations},
                             {"pads", windows.pads},
                             {"dilations", windows.strides},
                             {"groups", groups}});
  Shape limits = w;
  std::swap(limits[0], limits[1]);
  return permute(e, cut(e, sums, Shape(w.size(), Dim(0)), limits), swap);
}

ValueId bias_gradient(const Vjp& v) {
  return v.e.reduce(Op::reduce_sum, v.dy(), axes_except(1, v.e.rank(v.dy())), false);
}

}  // namespace

Values vjp_conv(const Vjp& v) {
  const Shape x = v.e.shape(v.x(0)), w = v.e.shape(v.x(1));
  Values gradients(3, kNoValue);
  if (v.wants(0))
    gradients[0] = spread_windows(v.e, v.dy(), v.x(1), windows_of(v.attrs()), x, v.attrs().get_int("groups"));
  if (v.wants(1)) gradients[1] = weight_gradient(v, v.x(0), v.dy(), w);
  if (v.wants(2)) gradients[2] = bias_gradient(v);
  return gradients;
}

Values vjp_conv_transpose(const Vjp& v) {
  Emitter& e = v.e;
  const Shape x = e.shape(v.x(0)), w = e.shape(v.x(1));
  Values gradients(3, kNoValue);
  if (v.wants(0)) {
    const Windows windows = windows_of(v.attrs());
    const ValueId sums = e.op(Op::conv, {v.dy(), v.x(1)},
                              {{"strides", windows.strides},
                               {"pads", windows.pads},
                               {"dilations", windows.dilations},
                               {"groups", v.attrs().get_int("groups")}});
    // Output padding of a stride or more makes room for further windows.
    gradients[0] = cut(e, sums, Shape(x.size(), Dim(0)), x);
  }
  if (v.wants(1)) gradients[1] = weight_gradient(v, v.dy(), v.x(0), w);
  if (v.wants(2)) gradients[2] = bias_gradient(v);
  return gradients;
}

// Plane by plane, which a scatter along one axis runs side by side. A window of padding only has index -1;
// its gradient goes nowhere.
Values vjp_max_pool(const Vjp& v) {
  Emitter& e = v.e;
  const Shape shape = e.shape(v.x()), pooled = e.shape(v.y());
  const auto positions = [](const Shape& image) {
    return element_count(Shape(image.begin() + 2, image.end()));
  };
  const Dim planes = shape[0] * shape[1], plane = positions(shape);
  const Shape rows = {planes, positions(pooled)};
  const ValueId zero = e.scalar_int(DType::i64, 0);
  const ValueId indices = e.reshape(e.op(Op::max_pool_indices, {v.x()}, v.attrs()), rows);
  const ValueId number =
      e.op(Op::iota, {}, {{"shape", Shape{planes, 1}}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
  const ValueId inside = e.sub(indices, e.mul(number, e.size(plane, DType::i64)));
  const ValueId none = e.op(Op::lt, {indices, zero});
  const ValueId dy = e.reshape(v.wide(v.dy()), rows);
  const ValueId sums = e.op(Op::scatter_elements,
                            {filled(e, e.dtype(dy), {planes, plane}), e.select(none, zero, inside),
                             e.select(none, v.number(dy, 0), dy)},
                            {{"axis", int64_t{1}}, {"reduction", std::string("add")}});
  return {e.reshape(sums, shape)};
}

namespace {

// How many taps of each window along one spatial axis count in avg_pool's divisor: those inside x, or those
// inside the padded x.
ValueId taps_along(const Vjp& v, const Windows& windows, size_t axis, int64_t kernel, DType dtype) {
  Emitter& e = v.e;
  const bool padded = v.attrs().get_bool("count_include_pad");
  const Dim size = e.shape(v.x())[2 + axis], count = e.shape(v.y())[2 + axis];
  const auto number = [&](int64_t value) { return e.scalar_int(DType::i64, value); };
  const auto line = [&](Shape shape, int64_t along) {
    return e.op(Op::iota, {}, {{"shape", std::move(shape)}, {"axis", along}, {"dtype", DType::i64}});
  };
  const ValueId first = e.mul(line({count, 1}, 0), number(windows.strides[axis]));
  const ValueId offset = e.mul(line({1, kernel}, 1), number(windows.dilations[axis]));
  const ValueId position = e.add(first, offset);  // counted from the start of the low padding
  const Dim low(windows.pads[axis]), high(padded ? windows.pads[windows.spatial() + axis] : 0);
  ValueId inside = e.op(Op::lt, {position, e.size(low + size + high, DType::i64)});
  if (!padded) inside = e.op(Op::bit_and, {inside, e.op(Op::ge, {position, number(windows.pads[axis])})});
  return e.reduce(Op::reduce_sum, e.cast(inside, dtype), {1}, false);
}

}  // namespace

Values vjp_avg_pool(const Vjp& v) {
  Emitter& e = v.e;
  const Windows windows = windows_of(v.attrs());
  const Ints& kernel = v.attrs().get_ints("kernel");
  const Shape full = e.shape(v.x()), pooled = e.shape(v.y());
  ValueId share = v.wide(v.dy());
  const DType dtype = e.dtype(share);
  for (size_t axis = 0; axis < kernel.size(); ++axis) {
    Shape along(kernel.size(), Dim(1));
    along[axis] = pooled[2 + axis];
    share = e.div(share, e.reshape(taps_along(v, windows, axis, kernel[axis], dtype), along));
  }
  // Every plane alone: N C images of one channel under one kernel of ones.
  Shape planes = pooled, plane_full = full, ones = {1, 1};
  planes[0] = plane_full[0] = full[0] * full[1];
  planes[1] = plane_full[1] = Dim(1);
  for (int64_t size : kernel) ones.push_back(Dim(size));
  const ValueId sums =
      spread_windows(e, e.reshape(share, planes), filled(e, dtype, ones, 1), windows, plane_full, 1);
  return {e.reshape(sums, full)};
}

}  // namespace aicf
