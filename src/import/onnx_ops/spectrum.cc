// Fourier transforms as products with constant cosines and sines, and the weights that turn spectra into
// mels.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

constexpr int64_t kMaxTransform = 1 << 13;

struct Transform {
  Array cosines, sines;  // [rows, columns]
};

// Entry (i, k) has the angle 2 pi i k / length and the weight of row i.
Transform transform_matrices(const NodeContext& n, DType dtype, int64_t length, int64_t rows, int64_t columns,
                             double sign, const std::vector<double>& weights) {
  Transform t{n.generated(dtype, {rows, columns}), n.generated(dtype, {rows, columns})};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < columns; ++k) {
      // The product is reduced first, so that large indices lose no accuracy.
      const double angle =
          2 * std::numbers::pi * static_cast<double>(i * k % length) / static_cast<double>(length);
      const double weight = weights[static_cast<size_t>(i)];
      t.cosines.set_f64(i * columns + k, weight * std::cos(angle));
      t.sines.set_f64(i * columns + k, sign * weight * std::sin(angle));
    }
  return t;
}

// x with `length` elements on the axis: the first of them, or zeros behind them.
ValueId fitted(NodeContext& n, ValueId x, int64_t axis, int64_t length) {
  const Shape shape = n.shape_of(x);
  const int64_t size = shape[static_cast<size_t>(axis)].require_constant("transformed axis");
  if (length <= size) return n.slice_axis(x, axis, 0, length);
  std::vector<Dim> low(shape.size(), Dim(0)), high = low;
  high[static_cast<size_t>(axis)] = Dim(length - size);
  return n.add(Op::pad, {x, kNoValue}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
}

void check_fourier(const NodeContext& n, int64_t length) {
  if (length < 1 || length > kMaxTransform) n.unsupported("a transform of length " + std::to_string(length));
}

// Real and imaginary parts on the last axis of x come apart, the transformed axis goes last, and what the
// transform gives goes back.
class Parts {
 public:
  Parts(NodeContext& n, ValueId x, int64_t axis) : n_(n), x_(x), shape_(n.shape_of(x)) {
    count_ = shape_.back().require_constant("real and imaginary parts of DFT");
    if (count_ != 1 && count_ != 2) n.bad("input", "1 or 2 parts on the last axis", std::to_string(count_));
    for (int64_t i = 0; i + 1 < static_cast<int64_t>(shape_.size()); ++i) last_.push_back(i);
    std::swap(last_[static_cast<size_t>(axis)], last_.back());
  }
  int64_t count() const { return count_; }
  ValueId part(int64_t which) const {
    Shape shape = shape_;
    shape.pop_back();
    const auto at = static_cast<int64_t>(shape.size());
    return n_.transpose(n_.reshape(n_.slice_axis(x_, at, which, which + 1), shape), last_);
  }
  ValueId back(ValueId v) const {
    const ValueId moved = n_.transpose(v, last_);
    Shape shape = n_.shape_of(moved);
    shape.emplace_back(1);
    return n_.reshape(moved, shape);
  }

 private:
  NodeContext& n_;
  ValueId x_;
  Shape shape_;
  int64_t count_ = 0;
  Ints last_;
};

// Real signals from the first half of their spectrum; the other half is its conjugate.
void real_inverse(NodeContext& n, int64_t axis) {
  const int64_t size = n.shape(0)[static_cast<size_t>(axis)].require_constant("transformed axis");
  const int64_t length = n.has(1) ? n.require_int(1, "dft_length") : 2 * (size - 1);
  check_fourier(n, length);
  const int64_t bins = length / 2 + 1;
  std::vector<double> weights(static_cast<size_t>(bins), 2.0 / static_cast<double>(length));
  weights[0] /= 2;
  if (length % 2 == 0 && bins > 1) weights.back() /= 2;
  const Parts parts(n, fitted(n, n.in(0), axis, bins), axis);
  const Transform t = transform_matrices(n, n.dtype(0), length, bins, length, -1, weights);
  ValueId y = n.add(Op::matmul, {parts.part(0), n.constant_of(t.cosines)});
  if (parts.count() == 2) y = n.add(Op::add, {y, n.add(Op::matmul, {parts.part(1), n.constant_of(t.sines)})});
  n.out(0, parts.back(y));
}

// Before opset 20 the axis was an attribute that defaulted to 1; since then input 2, default -2.
void dft(NodeContext& n) {
  const bool inverse = n.attr_int("inverse", 0) != 0, onesided = n.attr_int("onesided", 0) != 0;
  const int64_t rank = n.rank(0);
  int64_t axis = n.opset() < 20 ? n.attr_int("axis", 1) : -2;
  if (n.opset() >= 20 && n.has(2)) axis = n.require_int(2, "axis");
  axis = n.axis(axis, rank);
  if (axis == rank - 1)
    n.bad("axis", "not the last one, which holds real and imaginary parts", std::to_string(axis));
  if (rank < 3) n.bad("input", "rank >= 3", std::to_string(rank));
  if (inverse && onesided) return real_inverse(n, axis);
  const int64_t size = n.shape(0)[static_cast<size_t>(axis)].require_constant("transformed axis");
  const int64_t length = n.has(1) ? n.require_int(1, "dft_length") : size;
  check_fourier(n, length);
  const Parts parts(n, fitted(n, n.in(0), axis, length), axis);
  const std::vector<double> weights(static_cast<size_t>(length),
                                    inverse ? 1.0 / static_cast<double>(length) : 1.0);
  const Transform t = transform_matrices(n, n.dtype(0), length, length, onesided ? length / 2 + 1 : length,
                                         inverse ? 1 : -1, weights);
  const ValueId cosines = n.constant_of(t.cosines), sines = n.constant_of(t.sines);
  ValueId re = n.add(Op::matmul, {parts.part(0), cosines}), im = n.add(Op::matmul, {parts.part(0), sines});
  if (parts.count() == 2) {
    const ValueId imaginary = parts.part(1);
    re = n.add(Op::sub, {re, n.add(Op::matmul, {imaginary, sines})});
    im = n.add(Op::add, {im, n.add(Op::matmul, {imaginary, cosines})});
  }
  n.out(0, n.add(Op::concat, {parts.back(re), parts.back(im)}, {{"axis", rank - 1}}));
}

// The DFT of frames of a signal [B, L, 1 or 2]: a convolution whose filters are the windowed cosines and
// sines.
void stft(NodeContext& n) {
  n.require_rank(0, 3);
  const bool onesided = n.attr_int("onesided", 1) != 0;
  const int64_t step = n.require_int(1, "frame_step");
  if (n.has(2)) n.require_rank(2, 1);
  if (!n.has(3) && !n.has(2)) n.bad("frame_length", "it or a window", "neither");
  const int64_t length =
      n.has(3) ? n.require_int(3, "frame_length") : n.shape(2)[0].require_constant("length of the window");
  const int64_t parts = n.shape(0)[2].require_constant("real and imaginary parts of STFT");
  if (step < 1 || step > (1 << 24)) n.bad("frame_step", "1 to 2^24", std::to_string(step));
  check_fourier(n, length);
  if (parts != 1 && parts != 2) n.bad("signal", "1 or 2 parts on the last axis", std::to_string(parts));
  if (parts == 2 && onesided) n.bad("onesided", "0 for a complex signal", "1");
  const int64_t bins = onesided ? length / 2 + 1 : length;
  const std::vector<double> ones(static_cast<size_t>(bins), 1.0);
  const Transform t = transform_matrices(n, n.dtype(0), length, bins, length, 1, ones);
  // (a + ib)(cos - i sin): real rows a cos + b sin, imaginary rows b cos - a sin.
  Array filters = n.generated(n.dtype(0), {2 * bins, parts, length});
  for (int64_t k = 0; k < bins; ++k)
    for (int64_t i = 0; i < length; ++i) {
      const double cosine = t.cosines.get_f64(k * length + i), sine = t.sines.get_f64(k * length + i);
      filters.set_f64(k * parts * length + i, cosine);
      filters.set_f64((bins + k) * parts * length + i, -sine);
      if (parts == 1) continue;
      filters.set_f64((k * parts + 1) * length + i, sine);
      filters.set_f64(((bins + k) * parts + 1) * length + i, cosine);
    }
  ValueId w = n.constant_of(std::move(filters));
  if (n.has(2)) w = n.add(Op::mul, {w, n.reshape(n.in(2), {Dim(1), Dim(1), Dim(length)})});
  const ValueId y =
      n.add(Op::conv, {n.transpose(n.in(0), {0, 2, 1}), w, kNoValue},
            {{"strides", Ints{step}}, {"pads", Ints{0, 0}}, {"dilations", Ints{1}}, {"groups", int64_t{1}}});
  const Shape shape = n.shape_of(y);
  n.out(0, n.transpose(n.reshape(y, {shape[0], Dim(2), Dim(bins), shape[2]}), {0, 3, 2, 1}));
}

// Triangles over the bins of a spectrum, [dft_length / 2 + 1, num_mel_bins], as the operator list computes
// them.
void mel_weights(NodeContext& n) {
  const int64_t mels = n.require_int(0, "num_mel_bins"), length = n.require_int(1, "dft_length"),
                rate = n.require_int(2, "sample_rate");
  const double low = n.require_scalar(3, "lower_edge_hertz").get_f64(0),
               high = n.require_scalar(4, "upper_edge_hertz").get_f64(0);
  const int code = static_cast<int>(n.attr_int("output_datatype", 1));
  const auto dtype = dtype_from_onnx(code);
  if (!dtype) n.unsupported("data type " + data_type_name(code));
  if (mels < 1 || mels > (1 << 16) || length < 1 || length > (1 << 24) || rate < 1)
    n.bad("num_mel_bins, dft_length and sample_rate", "at least 1",
          std::to_string(mels) + ", " + std::to_string(length) + ", " + std::to_string(rate));
  if (!(low >= 0 && low <= high && std::isfinite(high)))
    n.bad("edges", "0 <= lower_edge_hertz <= upper_edge_hertz",
          std::to_string(low) + ", " + std::to_string(high));
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const int64_t bins = length / 2 + 1;
  const double pace = (mel(high) - mel(low)) / static_cast<double>(mels + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < mels + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * pace + mel(low)) / 2595) - 1);
    const double edge = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(edge < static_cast<double>(bins) || (i == mels + 1 && edge <= static_cast<double>(bins))))
      n.bad("upper_edge_hertz", "at most half of sample_rate", std::to_string(high));
    edges.push_back(static_cast<int64_t>(edge));
  }
  Array weights = n.generated(*dtype, {bins, mels});
  const auto set = [&](int64_t bin, int64_t i, double value) { weights.set_f64(bin * mels + i, value); };
  for (int64_t i = 0; i < mels; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t lower = edges[at], centre = edges[at + 1], upper = edges[at + 2];
    if (lower == centre) set(centre, i, 1);
    for (int64_t j = lower; lower < centre && j <= centre; ++j)
      set(j, i, static_cast<double>(j - lower) / static_cast<double>(centre - lower));
    for (int64_t j = centre; j < upper; ++j)
      set(j, i, static_cast<double>(upper - j) / static_cast<double>(upper - centre));
  }
  n.out_array(0, std::move(weights));
}

// By elimination with the largest pivot of each column; a column of zeros makes it 0.
void det(NodeContext& n) {
  constexpr int64_t kMaxRows = 64;
  const Shape shape = n.shape(0);
  if (shape.size() < 2) n.bad("x", "rank >= 2", to_string(shape));
  const int64_t rows = shape.back().require_constant("rows of a matrix of Det");
  if (shape[shape.size() - 2] != Dim(rows)) n.bad("x", "square matrices", to_string(shape));
  if (rows > kMaxRows) n.unsupported("matrices of " + std::to_string(rows) + " rows");
  const Shape batch(shape.begin(), shape.end() - 2);
  const Dim count = element_count(batch);
  const DType dtype = n.dtype(0);
  const ValueId zero = n.scalar(dtype, 0), one = n.scalar(dtype, 1);
  ValueId product = n.broadcast(one, {count, Dim(1), Dim(1)}),
          a = n.reshape(n.in(0), {count, Dim(rows), Dim(rows)});
  for (int64_t size = rows; size > 0; --size) {
    const ValueId column = n.add(Op::abs, {n.slice_axis(a, 2, 0, 1)});
    const ValueId best = n.add(Op::argmax, {column}, {{"axis", int64_t{1}}, {"keepdims", true}});
    const ValueId pivot_row = n.add(Op::gather_elements, {a, n.broadcast(best, {count, Dim(1), Dim(size)})},
                                    {{"axis", int64_t{1}}});
    const ValueId pivot = n.slice_axis(pivot_row, 2, 0, 1);
    const ValueId stays = n.add(Op::eq, {best, n.iscalar(DType::i64, 0)});
    const ValueId sign = n.add(Op::select, {stays, one, n.scalar(dtype, -1)});
    product = n.add(Op::mul, {product, n.add(Op::mul, {pivot, sign})});
    if (size == 1) break;
    // The first row goes where the pivot's was.
    const ValueId row =
        n.add(Op::iota, {},
              {{"shape", Shape{Dim(1), Dim(size), Dim(1)}}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
    const ValueId swapped = n.slice_axis(
        n.add(Op::select, {n.add(Op::eq, {row, best}), n.slice_axis(a, 1, 0, 1), a}), 1, 1, size);
    const ValueId share = n.add(Op::div, {n.slice_axis(swapped, 2, 0, 1), pivot});
    const ValueId factor = n.add(Op::select, {n.add(Op::eq, {pivot, zero}), zero, share});
    a = n.add(Op::sub, {n.slice_axis(swapped, 2, 1, size),
                        n.add(Op::mul, {factor, n.slice_axis(pivot_row, 2, 1, size)})});
  }
  n.out(0, n.reshape(product, batch));
}

}  // namespace

std::vector<OpRule> spectrum_rules() {
  return {{"DFT", dft}, {"STFT", stft}, {"MelWeightMatrix", mel_weights}, {"Det", det}};
}

}  // namespace aicf::onnx
