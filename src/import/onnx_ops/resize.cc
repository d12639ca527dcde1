// Resize: interpolation is separable, so each resized axis is one gather (nearest) or one product with a
// matrix of weights [in, out]. Indices and weights are constants where the sizes are known when compiling,
// else computed by the same formulas, in the same types, at run time: the results are the same bits.
// Positions that choose an element (nearest) are computed in f32, as onnxruntime does, so that ties fall on
// the same side.
#include <algorithm>
#include <cmath>

#include "import/onnx_ops/registry.h"
#include "import/onnx_ops/resize_axis.h"

namespace aicf::onnx {
namespace {

struct Taps {
  int64_t first;  // may be negative: outside positions repeat the edge
  std::vector<double> weights;
  bool outside = false;  // tf_crop_and_resize: takes the extrapolation value
};

double crop_source(const ResizedAxis& a, int64_t y) {
  const double in = static_cast<double>(a.in), at = static_cast<double>(y), width = *a.scale * in;
  const double length = (a.roi_end - a.roi_start) * (in - 1);
  return a.roi_start * (in - 1) + (width == 1 ? length / 2 : at * length / (width - 1));
}

template <typename T>
double known_source(NodeContext& n, const Resize& r, const ResizedAxis& a, int64_t y) {
  if (r.coordinates == "tf_crop_and_resize") return crop_source(a, y);
  const Position<T> p{
      static_cast<T>(a.in), static_cast<T>(a.out), static_cast<T>(*a.scale), T(0.5), T(1), T(2), T(0)};
  const auto if_one = [](T width, T one, T other) { return width == T(1) ? one : other; };
  return static_cast<double>(source<T>(n, r, a, p, static_cast<T>(y), if_one));
}

// Keys' cubic kernel with parameter a.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

void normalize(std::vector<double>& weights) {
  double sum = 0;
  for (double w : weights) sum += w;
  if (sum != 0)
    for (double& w : weights) w /= sum;
}

// Weights of the neighbours `first`.. of x. A whole x counts as the right end of its interval. By a scale of
// f32 x is nearest to what f32 makes it; by sizes it is exact, so that halves between two are halves.
Taps taps(NodeContext& n, const Resize& r, const ResizedAxis& a, int64_t y) {
  const bool single = r.mode == "nearest" && a.by_scale;
  const double x = single ? known_source<float>(n, r, a, y) : known_source<double>(n, r, a, y);
  const double below = std::floor(x);
  const double left = x == below ? below - 1 : below, ratio = x - left;
  Taps t;
  t.outside = r.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(a.in - 1));
  const int64_t base = static_cast<int64_t>(left);
  const double shrink = r.antialias ? std::min(*a.scale, 1.0) : 1.0;
  if (r.mode == "nearest") {
    bool right = ratio > 0.5;
    if (a.nearest == "round_prefer_ceil") right = ratio >= 0.5;
    if (a.nearest == "floor") right = ratio == 1.0;
    if (a.nearest == "ceil") right = true;
    t.first = base + (right ? 1 : 0);
    t.weights = {1.0};
    return t;
  }
  const double radius = r.mode == "linear" ? 1 : 2;
  const int64_t start = static_cast<int64_t>(std::floor(-radius / shrink)) + 1;
  const int64_t count = 2 - 2 * start;
  t.first = base + start;
  for (int64_t i = 0; i < count; ++i) {
    const double distance = (static_cast<double>(start + i) - ratio) * shrink;
    t.weights.push_back(r.mode == "linear" ? std::max(0.0, 1 - std::abs(distance))
                                           : cubic(distance, r.cubic_a));
    if (r.exclude_outside && (t.first + i < 0 || t.first + i >= a.in)) t.weights.back() = 0;
  }
  if (r.antialias || r.exclude_outside) normalize(t.weights);
  return t;
}

ValueId resize_axis(NodeContext& n, const Resize& r, const ResizedAxis& a, ValueId x) {
  auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i, 0, a.in - 1); };
  std::vector<Taps> rows;
  bool outside = false;
  for (int64_t y = 0; y < a.out; ++y) {
    rows.push_back(taps(n, r, a, y));
    outside = outside || rows.back().outside;
  }
  if (r.mode == "nearest") {
    std::vector<int64_t> index;
    for (const Taps& t : rows) index.push_back(clamp(t.first));
    x = n.add(Op::gather, {x, n.constant_of(Array::from<int64_t>(DType::i64, {a.out}, index))},
              {{"axis", a.axis}});
  } else {
    Array weights = n.generated(n.dtype_of(x), {a.in, a.out});
    std::vector<double> sums(static_cast<size_t>(a.in * a.out), 0.0);
    for (int64_t y = 0; y < a.out; ++y)
      for (size_t k = 0; k < rows[static_cast<size_t>(y)].weights.size(); ++k) {
        const Taps& t = rows[static_cast<size_t>(y)];
        sums[static_cast<size_t>(clamp(t.first + static_cast<int64_t>(k)) * a.out + y)] += t.weights[k];
      }
    for (int64_t i = 0; i < weights.count(); ++i) weights.set_f64(i, sums[static_cast<size_t>(i)]);
    x = weighted(n, a, x, n.constant_of(weights));
  }
  if (!outside) return x;
  Shape thin(n.shape_of(x).size(), Dim(1));
  thin[static_cast<size_t>(a.axis)] = Dim(a.out);
  Array mask(DType::boolean, {a.out});
  for (int64_t y = 0; y < a.out; ++y) mask.set_i64(y, rows[static_cast<size_t>(y)].outside);
  return n.add(Op::select,
               {n.reshape(n.constant_of(mask), thin), n.scalar(n.dtype_of(x), r.extrapolation), x});
}

// Output sizes and scales per axis from `scales` or `sizes`, with the aspect-ratio policies of the latter.
std::vector<ResizedAxis> resized_axes(NodeContext& n) {
  Ints axes = n.attr_ints("axes");
  if (!n.has_attr("axes"))
    for (int64_t i = 0; i < n.rank(0); ++i) axes.push_back(i);
  const std::string policy = n.attr_str("keep_aspect_ratio_policy", "stretch");
  std::vector<double> scales;
  std::vector<Dim> sizes;
  const bool by_scale = n.has(2) && element_count(n.shape(2)) != Dim(0);
  if (by_scale) {
    const Array given = n.require_constant(2, "scales");
    for (int64_t i = 0; i < given.count(); ++i) scales.push_back(given.get_f64(i));
  } else {
    sizes = n.require_sizes(3, "sizes");
  }
  if ((by_scale ? scales.size() : sizes.size()) != axes.size())
    n.bad("scales or sizes", std::to_string(axes.size()) + " numbers", "others");
  std::vector<ResizedAxis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = n.axis(axes[i], n.rank(0));
    const Dim size = n.shape(0)[static_cast<size_t>(axis)];
    if (by_scale && scales[i] == 1.0) continue;
    if (!by_scale && size == sizes[i] && policy == "stretch") continue;
    if (by_scale && !(scales[i] > 0)) n.bad("scales", "above 0", std::to_string(scales[i]));
    ResizedAxis a;
    a.axis = axis;
    a.size_in = size;
    a.size_out = by_scale ? scaled_size(n, size, scales[i]) : sizes[i];
    if (by_scale) a.scale = scales[i], a.by_scale = true;
    result.push_back(a);
  }
  if (by_scale || policy == "stretch" || result.empty()) return result;
  if (policy != "not_larger" && policy != "not_smaller") n.unsupported("keep_aspect_ratio_policy=" + policy);
  const auto ratio = [&](const ResizedAxis& a) {
    const std::string what = "resized axis of node '" + n.origin() + "'";
    return static_cast<double>(a.size_out.require_constant(what)) /
           static_cast<double>(a.size_in.require_constant(what));
  };
  double scale = ratio(result[0]);
  for (const ResizedAxis& a : result)
    scale = policy == "not_larger" ? std::min(scale, ratio(a)) : std::max(scale, ratio(a));
  for (ResizedAxis& a : result) {
    a.scale = scale;
    a.size_out =
        Dim(static_cast<int64_t>(std::floor(scale * static_cast<double>(*a.size_in.constant()) + 0.5)));
  }
  return result;
}

void resize(NodeContext& n) {
  Resize r{n.attr_str("mode", "nearest"),
           n.attr_str("coordinate_transformation_mode", "half_pixel"),
           n.attr_str("nearest_mode", "round_prefer_floor"),
           n.attr_float("cubic_coeff_a", -0.75),
           n.attr_float("extrapolation_value", 0.0),
           n.attr_int("antialias", 0) != 0,
           n.attr_int("exclude_outside", 0) != 0};
  if (r.mode == "bilinear") r.mode = "linear";
  if (r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic") n.unsupported("mode=" + r.mode);
  // Before 11 there was no such attribute, and onnxruntime rounds up where it shrinks and down where it
  // grows.
  const bool by_scale = r.nearest == "by_scale" && n.opset() < 11;
  if (r.nearest != "round_prefer_floor" && r.nearest != "round_prefer_ceil" && r.nearest != "floor" &&
      r.nearest != "ceil" && !by_scale)
    n.unsupported("nearest_mode=" + r.nearest);
  std::vector<ResizedAxis> axes = resized_axes(n);
  for (ResizedAxis& a : axes) a.nearest = !by_scale ? r.nearest : *a.scale < 1 ? "ceil" : "floor";
  if (r.coordinates == "tf_crop_and_resize") {
    const Array roi = n.require_constant(1, "roi");
    const bool partial = n.has_attr("axes");
    const Ints listed = n.attr_ints("axes");
    const int64_t half = roi.count() / 2;
    for (ResizedAxis& a : axes) {
      int64_t at = a.axis;
      for (size_t i = 0; partial && i < listed.size(); ++i)
        if (n.axis(listed[i], n.rank(0)) == a.axis) at = static_cast<int64_t>(i);
      if (at >= half) n.bad("roi", "two numbers per axis", std::to_string(roi.count()));
      a.roi_start = roi.get_f64(at);
      a.roi_end = roi.get_f64(half + at);
    }
  }
  const DType dtype = n.dtype(0);
  ValueId x = r.mode == "nearest" || is_float(dtype) ? n.in(0) : n.cast(n.in(0), DType::f32);
  for (ResizedAxis& a : axes) {
    if (!a.known()) {
      x = resize_unknown_axis(n, r, a, x);
      continue;
    }
    a.in = *a.size_in.constant();
    a.out = *a.size_out.constant();
    if (!a.scale) a.scale = static_cast<double>(a.out) / static_cast<double>(a.in);
    if (!(*a.scale > 0) || a.out < 0 || a.out > (1 << 24))
      n.bad("scales or sizes", "above 0, and results of at most 2^24 along an axis",
            std::to_string(*a.scale) + ", which gives " + std::to_string(a.out));
    if (a.in < 1 && a.out > 0) n.bad("the axis", "at least one element to resize", std::to_string(a.in));
    x = resize_axis(n, r, a, x);
  }
  n.out(0, n.cast(x, dtype));
}

}  // namespace

std::vector<OpRule> resize_rules() { return {{"Resize", resize, 10}, {"Upsample", resize, 7, "", 9}}; }

}  // namespace aicf::onnx
