// Windows and grid sampling.
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// --- windows: a sum of cosines; a symmetric window is the periodic one of one element less, closed.

void cosine_window(NodeContext& n, double a0, double a1, double a2) {
  const int64_t size = n.require_int(0, "window size");
  const bool periodic = n.attr_int("periodic", 1) != 0;
  const int code = static_cast<int>(n.attr_int("output_datatype", 1));
  const auto dtype = dtype_from_onnx(code);
  if (!dtype) n.unsupported("data type " + data_type_name(code));
  if (size < 0 || size > (1 << 24)) n.bad("window size", "0 to 2^24", std::to_string(size));
  const double period = static_cast<double>(periodic ? size : size - 1);
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    const double angle = period > 0 ? 2 * std::numbers::pi * static_cast<double>(i) / period : 0;
    values.push_back(a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  n.out_array(0, Array::from<double>(*dtype, {size}, values));
}

void hann(NodeContext& n) { cosine_window(n, 0.5, 0.5, 0); }
void hamming(NodeContext& n) { cosine_window(n, 25.0 / 46, 21.0 / 46, 0); }
void blackman(NodeContext& n) { cosine_window(n, 0.42, 0.5, 0.08); }

// --- GridSample

class GridSample {
 public:
  explicit GridSample(NodeContext& n)
      : n_(n),
        mode_(n.attr_str("mode", "linear")),
        padding_(n.attr_str("padding_mode", "zeros")),
        align_(n.attr_int("align_corners", 0) != 0),
        dtype_(n.dtype(1)),
        x_(n.shape(0)),
        grid_(n.shape(1)) {
    if (mode_ == "bilinear") mode_ = "linear";
    if (mode_ == "bicubic") mode_ = "cubic";
    if (mode_ != "linear" && mode_ != "nearest" && mode_ != "cubic") n.unsupported("mode=" + mode_);
    if (padding_ != "zeros" && padding_ != "border" && padding_ != "reflection")
      n.unsupported("padding_mode=" + padding_);
    if (x_.size() < 3 || grid_.size() != x_.size())
      n.bad("X and grid", "equal ranks of at least 3", to_string(grid_));
    spatial_ = x_.size() - 2;
    if (!(grid_.back() == Dim(static_cast<int64_t>(spatial_))))
      n.bad("grid", std::to_string(spatial_) + " coordinates on the last axis", to_string(grid_));
    for (size_t i = 0; i < spatial_; ++i) places_ = places_ * grid_[1 + i];
  }

  ValueId run() {
    image_ = n_.reshape(n_.in(0), {x_[0], x_[1], element_count(Shape(x_.begin() + 2, x_.end()))});
    // Each axis' taps: integer positions and their weights; every combination of taps adds one gather.
    std::vector<std::vector<std::pair<ValueId, ValueId>>> taps;
    for (size_t i = 0; i < spatial_; ++i) taps.push_back(axis_taps(i));
    ValueId sum = kNoValue;
    add_combinations(taps, 0, kNoValue, kNoValue, sum);
    Shape result = {x_[0], x_[1]};
    result.insert(result.end(), grid_.begin() + 1, grid_.end() - 1);
    return n_.reshape(sum, result);
  }

 private:
  ValueId num(double v) const { return n_.scalar(dtype_, v); }
  ValueId op(Op o, ValueId a, ValueId b) const { return n_.add(o, {a, b}); }

  // Lengths of a sampled axis, which may be known only when running.
  struct GridAxis {
    ValueId size, last, span;  // last = size - 1; span = what reflection goes over, at least 1
  };

  GridAxis axis_of(size_t i) const {
    const ValueId size = n_.size_scalar(x_[2 + i], dtype_), last = n_.size_scalar(x_[2 + i] - Dim(1), dtype_);
    return {size, last, align_ ? op(Op::max, last, num(1)) : size};
  }

  // Coordinates of axis i in pixels, [N, places]; the grid lists the last axis first.
  ValueId pixel(size_t i, const GridAxis& axis) const {
    const int64_t at = static_cast<int64_t>(spatial_ - 1 - i), last = static_cast<int64_t>(grid_.size()) - 1;
    const ValueId g = n_.reshape(n_.slice_axis(n_.in(1), last, at, at + 1), {x_[0], places_});
    const ValueId unit = op(Op::mul, op(Op::add, g, num(1)), num(0.5));
    return align_ ? op(Op::mul, unit, axis.last) : op(Op::sub, op(Op::mul, unit, axis.size), num(0.5));
  }

  // Mirrors x at the centres of the outer pixels, or at their outer edges.
  ValueId reflect(ValueId x, const GridAxis& axis) const {
    const ValueId low = num(align_ ? 0 : -0.5), twice = op(Op::mul, axis.span, num(2));
    const ValueId folded = op(Op::mod, op(Op::sub, x, low), twice);
    return op(Op::add, op(Op::min, folded, op(Op::sub, twice, folded)), low);
  }

  ValueId confine(ValueId x, const GridAxis& axis) const {
    if (padding_ == "reflection") x = reflect(x, axis);
    return padding_ == "zeros" ? x : n_.add(Op::clamp, {x, num(0), axis.last});
  }

  std::vector<std::pair<ValueId, ValueId>> axis_taps(size_t i) const {
    const GridAxis axis = axis_of(i);
    ValueId x = pixel(i, axis);
    // Cubic confines each tap instead of the centre.
    if (mode_ != "cubic") x = confine(x, axis);
    if (mode_ == "nearest") return {tap(n_.add(Op::round, {x}), num(1), axis)};
    const ValueId base = n_.add(Op::floor, {x});
    const ValueId t = op(Op::sub, x, base);
    if (mode_ == "linear")
      return {tap(base, op(Op::sub, num(1), t), axis), tap(op(Op::add, base, num(1)), t, axis)};
    std::vector<std::pair<ValueId, ValueId>> taps;
    for (int k = -1; k <= 2; ++k) {
      const ValueId distance = n_.add(Op::abs, {op(Op::sub, t, num(k))});
      taps.push_back(tap(confine(op(Op::add, base, num(k)), axis), cubic(distance, k == 0 || k == 1), axis));
    }
    return taps;
  }

  // Keys' kernel with a = -0.75: the inner form below distance 1, the outer one up to 2.
  ValueId cubic(ValueId d, bool inner) const {
    const double a = -0.75;
    auto poly = [&](double c3, double c2, double c1, double c0) {
      ValueId v = op(Op::add, op(Op::mul, d, num(c3)), num(c2));
      v = op(Op::add, op(Op::mul, v, d), num(c1));
      return op(Op::add, op(Op::mul, v, d), num(c0));
    };
    return inner ? poly(a + 2, -(a + 3), 0, 1) : poly(a, -5 * a, 8 * a, -4 * a);
  }

  // A position outside reads the edge with weight zero.
  std::pair<ValueId, ValueId> tap(ValueId at, ValueId weight, const GridAxis& axis) const {
    if (padding_ == "zeros") {
      const ValueId inside = op(Op::bit_and, op(Op::ge, at, num(0)), op(Op::le, at, axis.last));
      weight = n_.add(Op::select, {inside, weight, num(0)});
    }
    const ValueId safe = n_.add(Op::clamp, {at, num(0), axis.last});
    return {n_.cast(safe, DType::i64), n_.broadcast(weight, {x_[0], places_})};
  }

  void add_combinations(const std::vector<std::vector<std::pair<ValueId, ValueId>>>& taps, size_t axis,
                        ValueId flat, ValueId weight, ValueId& sum) const {
    if (axis == spatial_) {
      const Shape wide = {x_[0], x_[1], places_}, thin = {x_[0], Dim(1), places_};
      const ValueId index = n_.broadcast(n_.reshape(flat, thin), wide);
      const ValueId value = n_.add(Op::gather_elements, {image_, index}, {{"axis", int64_t{2}}});
      const ValueId term = op(Op::mul, value, n_.cast(n_.reshape(weight, thin), n_.dtype(0)));
      sum = sum == kNoValue ? term : op(Op::add, sum, term);
      return;
    }
    const ValueId stride = n_.size_scalar(x_[2 + axis], DType::i64);
    for (const auto& [at, w] : taps[axis])
      add_combinations(taps, axis + 1, axis == 0 ? at : op(Op::add, op(Op::mul, flat, stride), at),
                       axis == 0 ? w : op(Op::mul, weight, w), sum);
  }

  NodeContext& n_;
  std::string mode_, padding_;
  bool align_;
  DType dtype_;
  Shape x_, grid_;
  size_t spatial_ = 0;
  Dim places_{1};
  ValueId image_ = kNoValue;
};

void grid_sample(NodeContext& n) { n.out(0, GridSample(n).run()); }

// theta [N, d, d + 1] applied to the points of the unit cube, [N, sizes..., d].
void affine_grid(NodeContext& n) {
  const Ints size = n.require_ints(1, "size");
  const bool align = n.attr_int("align_corners", 0) != 0;
  if (size.size() < 4 || size.size() > 5) n.bad("size", "4 or 5 numbers", std::to_string(size.size()));
  const size_t d = size.size() - 2;
  int64_t points = 1;
  for (size_t i = 0; i < d; ++i) {
    if (size[2 + i] < 1) n.bad("size", "at least 1", std::to_string(size[2 + i]));
    points = checked_mul(points, size[2 + i]);
  }
  Array base = n.generated(n.dtype(0), {points, static_cast<int64_t>(d) + 1});
  for (int64_t p = 0; p < points; ++p) {
    int64_t rest = p;
    for (size_t i = d; i-- > 0;) {
      const double count = static_cast<double>(size[2 + i]), at = static_cast<double>(rest % size[2 + i]);
      rest /= size[2 + i];
      const double place = align ? (count > 1 ? -1 + 2 * at / (count - 1) : 0) : (2 * at + 1) / count - 1;
      base.set_f64(p * (static_cast<int64_t>(d) + 1) + static_cast<int64_t>(d - 1 - i), place);
    }
    base.set_f64(p * (static_cast<int64_t>(d) + 1) + static_cast<int64_t>(d), 1);
  }
  const ValueId moved =
      n.add(Op::matmul, {n.constant_of(base), n.in(0)}, {{"transpose_x", false}, {"transpose_y", true}});
  Shape result = {Dim(size[0])};
  for (size_t i = 0; i < d; ++i) result.emplace_back(size[2 + i]);
  result.emplace_back(static_cast<int64_t>(d));
  n.out(0, n.reshape(moved, result));
}

}  // namespace

std::vector<OpRule> signal_rules() {
  return {{"HannWindow", hann},
          {"HammingWindow", hamming},
          {"BlackmanWindow", blackman},
          {"GridSample", grid_sample},
          {"AffineGrid", affine_grid}};
}

}  // namespace aicf::onnx
