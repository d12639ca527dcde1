#include "import/onnx_ops/resize_axis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace aicf::onnx {
namespace {

// A value under construction, with the operators of a number.
struct At {
  NodeContext* n;
  ValueId id;
  At with(Op op, const At& other) const { return {n, n->add(op, {id, other.id})}; }
  friend At operator+(const At& a, const At& b) { return a.with(Op::add, b); }
  friend At operator-(const At& a, const At& b) { return a.with(Op::sub, b); }
  friend At operator*(const At& a, const At& b) { return a.with(Op::mul, b); }
  friend At operator/(const At& a, const At& b) { return a.with(Op::div, b); }
  At number(double value) const { return {n, n->scalar(n->dtype_of(id), value)}; }
  At of(Op op) const { return {n, n->add(op, {id})}; }
  At is(Op op, const At& other, const At& yes, const At& no) const {
    return {n, n->add(Op::select, {with(op, other).id, yes.id, no.id})};
  }
};

// Keys' kernel of |x|, the terms in the order of cubic_weights().
At cubic_weights(const At& x, double a) {
  const auto c = [&](double value) { return x.number(value); };
  const At near = ((c(a + 2) * x - c(a + 3)) * x) * x + c(1);
  const At far = ((c(a) * x - c(5 * a)) * x + c(8 * a)) * x - c(4 * a);
  return x.is(Op::le, c(1), near, x.is(Op::lt, c(2), far, c(0)));
}

At positions(NodeContext& n, const Resize& r, const ResizedAxis& a, DType dtype) {
  const auto number = [&](double value) { return At{&n, n.scalar(dtype, value)}; };
  const At in{&n, n.size_scalar(a.size_in, dtype)}, out{&n, n.size_scalar(a.size_out, dtype)};
  const Position<At> p{in,        out,      a.scale ? number(*a.scale) : out / in, number(0.5), number(1),
                       number(2), number(0)};
  const At at{&n, n.cast(n.add(Op::iota, {},
                               {{"shape", Shape{a.size_out}}, {"axis", int64_t{0}}, {"dtype", DType::i64}}),
                         dtype)};
  const auto if_one = [&](const At& width, const At& one, const At& other) {
    return width.is(Op::eq, p.one, one, other);
  };
  return source<At>(n, r, a, p, at, if_one);
}

int64_t scaled(int64_t size, double scale) {
  return static_cast<int64_t>(std::floor(static_cast<float>(size) * static_cast<float>(scale)));
}

// Longer ranges are not walked: no image is larger.
constexpr int64_t kMaxScaledSize = 1 << 20;

}  // namespace

// Of an unknown size: floor(size * above / below) by the least fraction that gives every size of the range,
// which is the greatest scaled size over its size.
Dim scaled_size(NodeContext& n, const Dim& size, double scale) {
  if (const auto known = size.constant()) return Dim(scaled(*known, scale));
  const Interval range = n.bounds_of(size);
  int64_t above = 0, below = 1;
  const auto fits = [&](int64_t at) { return at * above / below == scaled(at, scale); };
  bool found = range.lo >= 0 && range.hi <= kMaxScaledSize && scale < 1e4;
  for (int64_t at = std::max<int64_t>(range.lo, 1); found && at <= range.hi; ++at)
    if (scaled(at, scale) * below > above * at) above = scaled(at, scale), below = at;
  for (int64_t at = range.lo; found && at <= range.hi; ++at) found = fits(at);
  if (!found)
    n.unsupported("a scale of " + std::to_string(scale) + " that f32 rounds unevenly over sizes from " +
                  std::to_string(range.lo) + " to " + std::to_string(range.hi) + "; a shorter range may do");
  const int64_t common = std::gcd(above, below);
  return floordiv(size * Dim(above / common), Dim(below / common));
}

ValueId weighted(NodeContext& n, const ResizedAxis& a, ValueId x, ValueId matrix) {
  Ints last;
  for (int64_t i = 0; i < static_cast<int64_t>(n.shape_of(x).size()); ++i) last.push_back(i);
  std::swap(last[static_cast<size_t>(a.axis)], last.back());
  return last.size() == 1
             ? n.reshape(n.add(Op::matmul, {n.reshape(x, {Dim(1), a.size_in}), matrix}), {a.size_out})
             : n.transpose(n.add(Op::matmul, {n.transpose(x, last), matrix}), last);
}

// Antialiasing would need as many taps as the sizes decide.
ValueId resize_unknown_axis(NodeContext& n, const Resize& r, const ResizedAxis& a, ValueId x) {
  if (r.antialias) n.unsupported("antialias of an axis whose size is not known when compiling");
  const bool nearest = r.mode == "nearest";
  const At at = positions(n, r, a, nearest && a.by_scale ? DType::f32 : DType::f64);
  const At one = at.number(1), below = at.of(Op::floor);
  const At left = at.is(Op::eq, below, below - one, below), ratio = at - left;
  const At last = At{&n, n.size_scalar(a.size_in, n.dtype_of(at.id))} - one;
  const auto clamped = [&](const At& i) {
    return At{&n, n.add(Op::clamp, {i.id, at.number(0).id, last.id})};
  };
  if (nearest) {
    const At right = left + one;
    const At chosen = a.nearest == "ceil"    ? right
                      : a.nearest == "floor" ? ratio.is(Op::eq, one, right, left)
                                             : ratio.is(a.nearest == "round_prefer_ceil" ? Op::ge : Op::gt,
                                                        at.number(0.5), right, left);
    return n.add(Op::gather, {x, n.cast(clamped(chosen).id, DType::i64)}, {{"axis", a.axis}});
  }
  const int64_t radius = r.mode == "linear" ? 1 : 2;
  std::vector<At> weights, taps;
  for (int64_t i = 1 - radius; i <= radius; ++i) {
    const At distance = (at.number(static_cast<double>(i)) - ratio).of(Op::abs);
    At weight = r.mode == "linear" ? At{&n, n.add(Op::max, {at.number(0).id, (one - distance).id})}
                                   : cubic_weights(distance, r.cubic_a);
    taps.push_back(left + at.number(static_cast<double>(i)));
    if (r.exclude_outside)
      weight = taps.back().is(Op::lt, at.number(0), at.number(0),
                              taps.back().is(Op::gt, last, at.number(0), weight));
    weights.push_back(weight);
  }
  if (r.exclude_outside) {
    At sum = at.number(0);
    for (const At& weight : weights) sum = sum + weight;
    for (At& weight : weights) weight = sum.is(Op::eq, at.number(0), weight, weight / sum);
  }
  const At row{
      &n, n.cast(n.add(Op::iota, {},
                       {{"shape", Shape{a.size_in, Dim(1)}}, {"axis", int64_t{0}}, {"dtype", DType::i64}}),
                 DType::f64)};
  At matrix = at.number(0);
  for (size_t i = 0; i < taps.size(); ++i)
    matrix = matrix + row.is(Op::eq, clamped(taps[i]), weights[i], at.number(0));
  return weighted(n, a, x, n.cast(matrix.id, n.dtype_of(x)));
}

}  // namespace aicf::onnx
