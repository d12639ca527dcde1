// RoiAlign: regions of feature maps sampled at a fixed grid of points.
#include <cmath>

#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// x [N, C, H, W], rois [R, 4] as x1 y1 x2 y2, batch index of each [R]; gives [R, C, rows, columns]. Every
// cell has samples x samples points, each between four pixels; points more than a pixel outside give 0.
class RoiAlign {
 public:
  explicit RoiAlign(NodeContext& n)
      : n_(n),
        x_(n.shape(0)),
        rows_(n.attr_int("output_height", 1)),
        columns_(n.attr_int("output_width", 1)),
        samples_(n.attr_int("sampling_ratio", 0)),
        scale_(n.attr_float("spatial_scale", 1.0)) {
    n.require_rank(0, 4);
    n.require_rank(1, 2);
    n.require_rank(2, 1);
    count_ = n.shape(1)[0];
    if (!(n.shape(1)[1] == Dim(4))) n.bad("rois", "[R, 4]", to_string(n.shape(1)));
    if (samples_ == 0) n.unsupported("sampling_ratio=0: as many points as the size of each region asks for");
    for (const int64_t size : {rows_, columns_, samples_})
      if (size < 1 || size > (1 << 12))
        n.bad("output sizes and sampling_ratio", "1 to 4096", std::to_string(size));
    mode_ = n.attr_str("mode", "avg");
    if (mode_ != "avg" && mode_ != "max") n.unsupported("mode=" + mode_);
    // Before 16 the coordinates were not shifted by half a pixel, and regions were at least one pixel large.
    const std::string rule =
        n.attr_str("coordinate_transformation_mode", n.opset() < 16 ? "output_half_pixel" : "half_pixel");
    if (rule != "half_pixel" && rule != "output_half_pixel")
      n.unsupported("coordinate_transformation_mode=" + rule);
    half_pixel_ = rule == "half_pixel";
  }

  ValueId run() const {
    const SampledAxis y = axis_of(1, rows_, x_[2]), x = axis_of(0, columns_, x_[3]);
    const Dim high(rows_ * samples_), wide(columns_ * samples_);
    const auto tall = [&](ValueId v) { return n_.reshape(v, {count_, high, Dim(1)}); };
    const auto flat = [&](ValueId v) { return n_.reshape(v, {count_, Dim(1), wide}); };
    const ValueId image = n_.reshape(n_.transpose(n_.in(0), {0, 2, 3, 1}), {x_[0] * x_[2] * x_[3], x_[1]});
    const ValueId first = op(Op::mul, n_.reshape(n_.cast(n_.in(2), DType::i64), {count_, Dim(1), Dim(1)}),
                             n_.size_scalar(x_[2] * x_[3], DType::i64));
    const ValueId width = n_.size_scalar(x_[3], DType::i64);
    ValueId sum = kNoValue;
    for (const auto& [row, row_weight] : {std::pair{y.low, y.low_weight}, std::pair{y.high, y.high_weight}})
      for (const auto& [column, weight] :
           {std::pair{x.low, x.low_weight}, std::pair{x.high, x.high_weight}}) {
        const ValueId at = op(Op::add, op(Op::add, first, op(Op::mul, tall(row), width)), flat(column));
        const ValueId pixels = n_.add(Op::gather, {image, at}, {{"axis", int64_t{0}}});
        const ValueId share =
            n_.reshape(op(Op::mul, tall(row_weight), flat(weight)), {count_, high, wide, Dim(1)});
        const ValueId term = op(Op::mul, pixels, n_.cast(share, n_.dtype(0)));
        sum = sum == kNoValue ? term : op(mode_ == "max" ? Op::max : Op::add, sum, term);
      }
    const ValueId cells =
        n_.reshape(sum, {count_, Dim(rows_), Dim(samples_), Dim(columns_), Dim(samples_), x_[1]});
    const ValueId pooled = n_.add(mode_ == "max" ? Op::reduce_max : Op::reduce_mean, {cells},
                                  {{"axes", Ints{2, 4}}, {"keepdims", false}});
    return n_.transpose(pooled, {0, 3, 1, 2});
  }

 private:
  // The two pixels around each point of an axis and their weights, [R, points].
  struct SampledAxis {
    ValueId low, high, low_weight, high_weight;
  };

  ValueId num(double v) const { return n_.scalar(n_.dtype(1), v); }
  ValueId op(Op o, ValueId a, ValueId b) const { return n_.add(o, {a, b}); }

  // Column `at` of the regions, in pixels, [R, 1].
  ValueId edge(int64_t at) const {
    const ValueId scaled = op(Op::mul, n_.slice_axis(n_.in(1), 1, at, at + 1), num(scale_));
    return half_pixel_ ? op(Op::sub, scaled, num(0.5)) : scaled;
  }

  SampledAxis axis_of(int64_t coordinate, int64_t cells, const Dim& size) const {
    const ValueId start = edge(coordinate);
    ValueId length = op(Op::sub, edge(coordinate + 2), start);
    if (!half_pixel_) length = op(Op::max, length, num(1));
    const int64_t points = cells * samples_;
    Array places = n_.generated(n_.dtype(1), {1, points});  // in cells
    for (int64_t i = 0; i < points; ++i)
      places.set_f64(i, static_cast<double>(i / samples_) +
                            (static_cast<double>(i % samples_) + 0.5) / static_cast<double>(samples_));
    const ValueId cell = op(Op::div, length, num(static_cast<double>(cells)));
    const ValueId at = op(Op::add, start, op(Op::mul, cell, n_.constant_of(places)));
    const DType dtype = n_.dtype(1);
    const ValueId end = n_.size_scalar(size, dtype), last = n_.size_scalar(size - Dim(1), dtype);
    const ValueId inside = op(Op::bit_and, op(Op::ge, at, num(-1)), op(Op::le, at, end));
    const ValueId within = n_.add(Op::clamp, {at, num(0), last});
    const ValueId low = n_.add(Op::floor, {within});
    const ValueId high = op(Op::min, op(Op::add, low, num(1)), last);
    const ValueId rest = op(Op::sub, within, low);
    const auto kept = [&](ValueId weight) { return n_.add(Op::select, {inside, weight, num(0)}); };
    return {n_.cast(low, DType::i64), n_.cast(high, DType::i64), kept(op(Op::sub, num(1), rest)), kept(rest)};
  }

  NodeContext& n_;
  Shape x_;
  int64_t rows_, columns_, samples_;
  double scale_;
  Dim count_;
  std::string mode_;
  bool half_pixel_ = true;
};

void roi_align(NodeContext& n) { n.out(0, RoiAlign(n).run()); }

}  // namespace

std::vector<OpRule> roi_rules() { return {{"RoiAlign", roi_align, 10}}; }

}  // namespace aicf::onnx
