// Views, padding, concatenation.
#include "autodiff/vjp.h"

namespace aicf {
namespace {

// x with step - 1 zeros between neighbours along an axis: x as a column, padded and flattened.
ValueId stretch(Emitter& e, ValueId x, size_t axis, int64_t step) {
  const Shape shape = e.shape(x);
  Shape column = shape, flat = shape;
  const Shape starts(shape.size() + 1, Dim(0));
  column.insert(column.begin() + static_cast<int64_t>(axis) + 1, Dim(1));
  Shape wide = column;
  wide[axis + 1] = Dim(step);
  flat[axis] = shape[axis] * Dim(step);
  const ValueId spaced = e.reshape(place(e, e.reshape(x, column), starts, wide), flat);
  Shape limits = flat;
  limits[axis] = max(flat[axis] - Dim(step - 1), Dim(0));
  return cut(e, spaced, Shape(shape.size(), Dim(0)), limits);
}

}  // namespace

Values vjp_reshape(const Vjp& v) {
  const Shape shape = v.e.shape(v.x());
  return {v.e.reshape(v.dy(), shape)};
}

Values vjp_transpose(const Vjp& v) {
  const Ints& perm = v.attrs().get_ints("perm");
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return {permute(v.e, v.dy(), inverse)};
}

Values vjp_broadcast_to(const Vjp& v) { return {v.dy()}; }

Values vjp_slice(const Vjp& v) {
  const Ints& steps = v.attrs().get_ints("steps");
  ValueId dx = v.dy();
  for (size_t axis = 0; axis < steps.size(); ++axis)
    if (steps[axis] > 1) dx = stretch(v.e, dx, axis, steps[axis]);
  const Shape shape = v.e.shape(v.x());
  return {place(v.e, dx, v.attrs().get_dims("starts"), shape)};
}

Values vjp_reverse(const Vjp& v) {
  return {v.e.op(Op::reverse, {v.dy()}, {{"axes", v.attrs().get_ints("axes")}})};
}

Values vjp_concat(const Vjp& v) {
  const auto axis = static_cast<size_t>(v.attrs().get_int("axis"));
  Shape starts(v.e.shape(v.dy()).size(), Dim(0));
  Values gradients;
  for (size_t i = 0; i < v.node.operands.size(); ++i) {
    Shape limits = v.e.shape(v.x(i));
    limits[axis] = starts[axis] + limits[axis];
    gradients.push_back(v.wants(i) ? cut(v.e, v.dy(), starts, limits) : kNoValue);
    starts[axis] = limits[axis];
  }
  return gradients;
}

}  // namespace aicf
