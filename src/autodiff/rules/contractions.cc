// matmul and linear.
#include "autodiff/vjp.h"

namespace aicf {
namespace {

// In tf32 if the op whose gradient it is part of is.
ValueId matmul(const Vjp& v, ValueId x, ValueId y, bool transpose_x, bool transpose_y) {
  return v.e.op(
      Op::matmul, {x, y},
      {{"transpose_x", transpose_x}, {"transpose_y", transpose_y}, {"tf32", v.attrs().get_bool("tf32")}});
}

// All axes but the last as one.
ValueId as_rows(Emitter& e, ValueId x) {
  const Shape shape = e.shape(x);
  const Shape leading(shape.begin(), shape.end() - 1);
  return e.reshape(x, {element_count(leading), shape.back()});
}

}  // namespace

// With X and Y the operands as multiplied: dX = dy Y^T, dY = X^T dy; a transposed operand gets the transposed
// of that. Where Y has no batch axes those of x count as rows, so that no gradient per batch is stored and
// summed.
Values vjp_matmul(const Vjp& v) {
  Emitter& e = v.e;
  const bool tx = v.attrs().get_bool("transpose_x"), ty = v.attrs().get_bool("transpose_y");
  ValueId x = v.x(0), dy = v.dy();
  const ValueId y = v.x(1);
  Values gradients(2, kNoValue);
  if (v.wants(0)) gradients[0] = tx ? matmul(v, y, dy, ty, true) : matmul(v, dy, y, false, !ty);
  if (v.wants(1)) {
    if (!tx && e.rank(y) == 2) {
      x = as_rows(e, x);
      dy = as_rows(e, dy);
    }
    gradients[1] = ty ? matmul(v, dy, x, true, tx) : matmul(v, x, dy, !tx, false);
  }
  return gradients;
}

Values vjp_linear(const Vjp& v) {
  Emitter& e = v.e;
  const bool transposed = v.attrs().get_bool("transpose_w");
  const ValueId dy = v.dy(), dy_rows = as_rows(e, dy);
  Values gradients(3, kNoValue);
  if (v.wants(0))
    gradients[0] =
        e.op(Op::linear, {dy, v.x(1)}, {{"transpose_w", !transposed}, {"tf32", v.attrs().get_bool("tf32")}});
  if (v.wants(1)) {
    const ValueId x_rows = as_rows(e, v.x(0));
    gradients[1] =
        transposed ? matmul(v, dy_rows, x_rows, true, false) : matmul(v, x_rows, dy_rows, true, false);
  }
  if (v.wants(2)) gradients[2] = e.reduce(Op::reduce_sum, dy_rows, {0}, false);
  return gradients;
}

}  // namespace aicf
