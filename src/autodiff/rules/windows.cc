// Convolutions and pooling. The gradient of conv's input is conv_transpose; of conv_transpose's, conv; the
// gradient of the weights is conv_weight_gradient.
#include <algorithm>
#include <functional>

#include "autodiff/vjp.h"

namespace aicf {
namespace {

struct Windows {
  Ints strides, pads, dilations;
  bool tf32 = false;
  size_t spatial() const { return strides.size(); }
};

Windows windows_of(const Attrs& attrs) {
  const Attr* tf32 = attrs.find("tf32");  // pooling has none
  return {attrs.get_ints("strides"), attrs.get_ints("pads"), attrs.get_ints("dilations"),
          tf32 != nullptr && std::get<bool>(*tf32)};
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
                             {"groups", groups},
                             {"tf32", windows.tf32}});
  Shape limits = e.shape(sums);
  for (size_t i = 2; i < limits.size(); ++i) limits[i] = full[i];
  return cut(e, sums, Shape(limits.size(), Dim(0)), limits);
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

ValueId product_weight_gradient(Emitter& e, ValueId x, ValueId dy, const Shape& w, bool tf32) {
  const auto as_rows = [&](ValueId image) {
    const Shape shape = e.shape(image);
    return e.reshape(image, {shape[0], shape[1], element_count(Shape(shape.begin() + 2, shape.end()))});
  };
  const ValueId products =
      e.op(Op::matmul, {as_rows(dy), as_rows(x)}, {{"transpose_y", true}, {"tf32", tf32}});
  return e.reshape(e.reduce(Op::reduce_sum, products, {0}, false), w);
}

// Gradient of the weights w [M, C/groups, kernel...] of conv from its input x [N, C, size...] and the
// gradient dy [N, M, positions...] of its result.
ValueId weight_gradient(const Vjp& v, ValueId x, ValueId dy, const Shape& w) {
  Emitter& e = v.e;
  const Windows windows = windows_of(v.attrs());
  if (is_product(v, windows, x, dy, w)) return product_weight_gradient(e, x, dy, w, windows.tf32);
  return e.op(Op::conv_weight_gradient, {x, dy},
              {{"kernel", Shape(w.begin() + 2, w.end())},
               {"strides", windows.strides},
               {"pads", windows.pads},
               {"dilations", windows.dilations},
               {"groups", v.attrs().get_int("groups")},
               {"tf32", windows.tf32}});
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
                               {"groups", v.attrs().get_int("groups")},
                               {"tf32", windows.tf32}});
    // Output padding of a stride or more makes room for further windows.
    gradients[0] = cut(e, sums, Shape(x.size(), Dim(0)), x);
  }
  if (v.wants(1)) gradients[1] = weight_gradient(v, v.dy(), v.x(0), w);
  if (v.wants(2)) gradients[2] = bias_gradient(v);
  return gradients;
}

namespace {

// The positions of x along one spatial axis are s q + r, r below the stride s: the windows that may hold one
// are q + first to q + last.
struct Covering {
  int64_t stride, pad, reach, dilation, first, last;
  Dim size, groups;  // positions, values of q
  int64_t count() const { return last - first + 1; }
  int64_t added_before() const { return std::max<int64_t>(0, -first); }
};

using Coverings = std::vector<Covering>;

Coverings coverings(const Windows& windows, const Ints& kernel, const Shape& full) {
  Coverings all;
  for (size_t i = 0; i < windows.spatial(); ++i) {
    const int64_t stride = windows.strides[i], pad = windows.pads[i],
                  reach = windows.dilations[i] * (kernel[i] - 1);
    const int64_t first = pad > reach ? (pad - reach + stride - 1) / stride : -((reach - pad) / stride);
    all.push_back({stride, pad, reach, windows.dilations[i], first, (stride - 1 + pad) / stride, full[2 + i],
                   ceildiv(full[2 + i], Dim(stride))});
  }
  return all;
}

// Whether a sum over windows is shorter than a scatter; of sizes that are numbers.
bool are_few(const Coverings& axes) {
  constexpr int64_t kMost = 9;
  int64_t count = 1;
  for (const Covering& axis : axes) {
    if (!axis.size.constant()) return false;
    count *= axis.count();
  }
  return count <= kMost;
}

// Sums `term(shifts)` over all shifts, in their row-major order: [N, C, groups, stride, …] as [N, C, size,
// …].
ValueId sum_of_windows(Emitter& e, const Coverings& axes, const Shape& full,
                       const std::function<ValueId(const Ints& shifts)>& term) {
  Ints shifts;
  for (const Covering& axis : axes) shifts.push_back(axis.first);
  ValueId sum = kNoValue;
  for (size_t i = 0; i < axes.size();) {
    const ValueId next = term(shifts);
    sum = sum == kNoValue ? next : e.add(sum, next);
    for (i = 0; i < axes.size(); ++i) {
      const size_t axis = axes.size() - 1 - i;
      if (++shifts[axis] <= axes[axis].last) break;
      shifts[axis] = axes[axis].first;
    }
  }
  Shape joined = {full[0], full[1]};
  for (const Covering& axis : axes) joined.push_back(axis.groups * Dim(axis.stride));
  return cut(e, e.reshape(sum, joined), Shape(full.size(), Dim(0)), full);
}

// v [N, C, windows…] with `none` where a shift finds no window.
ValueId padded(Emitter& e, ValueId v, const Coverings& axes, double none) {
  const Shape shape = e.shape(v), zeros(shape.size(), Dim(0));
  Shape low = zeros, high = zeros;
  for (size_t i = 0; i < axes.size(); ++i) {
    low[2 + i] = Dim(axes[i].added_before());
    high[2 + i] = max(axes[i].groups + Dim(axes[i].last) - shape[2 + i], Dim(0));
  }
  if (low == zeros && high == zeros) return v;
  return e.op(Op::pad, {v, e.scalar(e.dtype(v), none)}, {{"low", low}, {"high", high}});
}

// Padded windows at `shifts` as [N, C, groups, 1, …].
ValueId shifted(Emitter& e, ValueId v, const Coverings& axes, const Ints& shifts) {
  const Shape shape = e.shape(v);
  Shape starts(shape.size(), Dim(0)), limits = shape, apart = {shape[0], shape[1]};
  for (size_t i = 0; i < axes.size(); ++i) {
    starts[2 + i] = Dim(shifts[i] + axes[i].added_before());
    limits[2 + i] = starts[2 + i] + axes[i].groups;
    apart.push_back(axes[i].groups);
    apart.emplace_back(1);
  }
  return e.reshape(cut(e, v, starts, limits), apart);
}

// A line along axis `axis` of spatial ones, as [groups, stride] where the others have 1 and 1.
ValueId number_along(Emitter& e, const Coverings& axes, size_t axis) {
  Shape shape(2 * axes.size(), Dim(1));
  shape[2 * axis] = axes[axis].groups;
  shape[2 * axis + 1] = Dim(axes[axis].stride);
  const Shape line = {axes[axis].groups * Dim(axes[axis].stride)};
  return e.reshape(e.op(Op::iota, {}, {{"shape", line}, {"axis", int64_t{0}}, {"dtype", DType::i64}}), shape);
}

// Whether the windows at `shifts` have a tap at a position: [groups or 1, stride, …].
ValueId has_taps(Emitter& e, const Coverings& axes, const Ints& shifts) {
  ValueId all = kNoValue;
  for (size_t i = 0; i < axes.size(); ++i) {
    Shape shape(2 * axes.size(), Dim(1));
    shape[2 * i + 1] = Dim(axes[i].stride);
    const auto number = [&](int64_t value) { return e.scalar_int(DType::i64, value); };
    const ValueId tap = e.add(
        e.reshape(e.op(Op::iota, {},
                       {{"shape", Shape{Dim(axes[i].stride)}}, {"axis", int64_t{0}}, {"dtype", DType::i64}}),
                  shape),
        number(axes[i].pad - shifts[i] * axes[i].stride));
    const auto both = [&](ValueId a, ValueId b) { return e.op(Op::bit_and, {a, b}); };
    ValueId holds = both(e.op(Op::ge, {tap, number(0)}), e.op(Op::le, {tap, number(axes[i].reach)}));
    if (axes[i].dilation > 1)
      holds = both(holds, e.op(Op::eq, {e.op(Op::mod, {tap, number(axes[i].dilation)}), number(0)}));
    all = all == kNoValue ? holds : both(all, holds);
  }
  return all;
}

// Plane by plane, which a scatter along one axis runs side by side. A window of padding only has index -1;
// its gradient goes nowhere.
ValueId scattered_maxima(const Vjp& v, ValueId inside, ValueId none) {
  Emitter& e = v.e;
  const Shape shape = e.shape(v.x()), pooled = e.shape(v.y());
  const auto positions = [](const Shape& image) {
    return element_count(Shape(image.begin() + 2, image.end()));
  };
  const Dim planes = shape[0] * shape[1];
  const Shape rows = {planes, positions(pooled)};
  const ValueId dy = e.reshape(v.wide(v.dy()), rows), zero = e.scalar_int(DType::i64, 0);
  none = e.reshape(none, rows);
  const ValueId sums =
      e.op(Op::scatter_elements,
           {filled(e, e.dtype(dy), {planes, positions(shape)}), e.select(none, zero, e.reshape(inside, rows)),
            e.select(none, v.number(dy, 0), dy)},
           {{"axis", int64_t{1}}, {"reduction", std::string("add")}});
  return e.reshape(sums, shape);
}

// Whether each position lies in one window, which has few.
bool are_tiles(const Coverings& axes, const Shape& pooled) {
  constexpr int64_t kMost = 9;
  int64_t taps = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Covering& axis = axes[i];
    taps *= axis.stride;
    if (axis.reach != axis.stride - 1 || axis.dilation != 1 || axis.pad != 0 || !axis.size.constant() ||
        !(axis.size == pooled[2 + i] * Dim(axis.stride)))
      return false;
  }
  return taps <= kMost;
}

// Every position finds the maximum of its window again, as max_pool_indices does: a NaN stays, of equals the
// first. One region reads x and dy, and indices are not stored.
ValueId maxima_of_tiles(const Vjp& v, const Coverings& axes) {
  Emitter& e = v.e;
  const Shape shape = e.shape(v.x());
  Shape full = {shape[0], shape[1]}, apart = full, places(2, Dim(1));
  int64_t taps = 1;
  for (const Covering& axis : axes) {
    full.insert(full.end(), {axis.groups, Dim(axis.stride)});
    apart.insert(apart.end(), {axis.groups, Dim(1)});
    places.insert(places.end(), {Dim(1), Dim(axis.stride)});
    taps *= axis.stride;
  }
  const auto everywhere = [&](ValueId x) { return e.op(Op::broadcast_to, {x}, {{"shape", full}}); };
  const auto both = [&](ValueId a, ValueId b) { return e.op(Op::bit_and, {a, b}); };
  const ValueId windows = e.reshape(v.x(), full);
  ValueId best = kNoValue, chosen = e.scalar_int(DType::i32, 0);
  for (int64_t tap = 0; tap < taps; ++tap) {
    Shape starts(full.size(), Dim(0)), limits = full;
    for (size_t i = axes.size(), rest = static_cast<size_t>(tap); i-- > 0;) {
      const auto stride = static_cast<size_t>(axes[i].stride), at = rest % stride;
      starts[3 + 2 * i] = Dim(static_cast<int64_t>(at));
      limits[3 + 2 * i] = Dim(static_cast<int64_t>(at + 1));
      rest /= stride;
    }
    const ValueId value = everywhere(cut(e, windows, starts, limits));
    if (best == kNoValue) {
      best = value;
      continue;
    }
    const ValueId larger = e.op(Op::gt, {value, best}), is_nan = e.op(Op::ne, {value, value});
    const ValueId wins = both(e.op(Op::eq, {best, best}), e.op(Op::bit_or, {larger, is_nan}));
    best = e.select(wins, value, best);
    chosen = e.select(wins, e.scalar_int(DType::i32, tap), chosen);
  }
  const ValueId own = e.reshape(
      e.op(Op::iota, {}, {{"shape", Shape{Dim(taps)}}, {"axis", int64_t{0}}, {"dtype", DType::i32}}), places);
  const ValueId dy = everywhere(e.reshape(v.dy(), apart));
  return e.reshape(e.select(e.op(Op::eq, {chosen, own}), dy, v.number(dy, 0)), shape);
}

}  // namespace

// Each position asks the windows over it whether they chose it.
Values vjp_max_pool(const Vjp& v) {
  Emitter& e = v.e;
  const Shape shape = e.shape(v.x());
  const Coverings axes = coverings(windows_of(v.attrs()), v.attrs().get_ints("kernel"), shape);
  if (are_tiles(axes, e.shape(v.y()))) return {maxima_of_tiles(v, axes)};
  const ValueId indices = e.op(Op::max_pool_indices, {v.x()}, v.attrs());
  const Dim plane = element_count(Shape(shape.begin() + 2, shape.end()));
  Shape first(shape.size(), Dim(1));
  first[0] = shape[0], first[1] = shape[1];
  const ValueId number =
      e.reshape(e.op(Op::iota, {},
                     {{"shape", Shape{shape[0] * shape[1]}}, {"axis", int64_t{0}}, {"dtype", DType::i64}}),
                first);
  const ValueId inside = e.sub(indices, e.mul(number, e.size(plane, DType::i64)));
  const ValueId none = e.op(Op::lt, {indices, e.scalar_int(DType::i64, 0)});
  if (!are_few(axes)) return {scattered_maxima(v, inside, none)};
  const ValueId chosen = e.select(none, e.scalar_int(DType::i64, -1), inside);
  ValueId position = kNoValue;
  Dim step(1);
  for (size_t i = axes.size(); i-- > 0;) {
    const ValueId along = e.mul(number_along(e, axes, i), e.size(step, DType::i64));
    position = position == kNoValue ? along : e.add(position, along);
    step = step * axes[i].size;
  }
  const ValueId places = padded(e, chosen, axes, -1), dy = padded(e, v.dy(), axes, 0), zero = v.number(dy, 0);
  return {sum_of_windows(e, axes, shape, [&](const Ints& shifts) {
    const ValueId here = e.op(Op::eq, {shifted(e, places, axes, shifts), position});
    return v.wide(e.select(here, shifted(e, dy, axes, shifts), zero));
  })};
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
  const Coverings axes = coverings(windows, kernel, full);
  if (are_few(axes)) {
    const ValueId parts = padded(e, share, axes, 0), zero = v.number(parts, 0);
    return {sum_of_windows(e, axes, full, [&](const Ints& shifts) {
      return e.select(has_taps(e, axes, shifts), shifted(e, parts, axes, shifts), zero);
    })};
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
