// One axis of a Resize: where the elements of the result lie in the input, by the formulas of the ONNX
// operator list, as numbers or as values of the graph.
#pragma once

#include <optional>

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

struct Resize {
  std::string mode, coordinates, nearest;
  double cubic_a, extrapolation;
  bool antialias, exclude_outside;
};

// floor(size * scale) with the product rounded to f32, as onnxruntime has it.
Dim scaled_size(NodeContext& n, const Dim& size, double scale);

struct ResizedAxis {
  int64_t axis = 0;
  Dim size_in, size_out;
  std::optional<double> scale;  // absent: size_out / size_in
  bool by_scale = false;        // the model gives the scale, of f32
  std::string nearest;          // how this axis rounds
  int64_t in = 0, out = 0;      // the sizes, if they are known
  double roi_start = 0, roi_end = 1;

  bool known() const { return size_in.is_constant() && size_out.is_constant(); }
};

// Position in the input of output element y, by coordinate_transformation_mode. `T` is the type it is
// computed in: double or float, or At below.
template <typename T>
struct Position {
  T in, out, scale, half, one, two, zero;
};

// The position in the input of element `at` of the result. `if_one(width, a, b)` gives a where width is 1,
// else b.
template <typename T, typename Choose>
T source(NodeContext& n, const Resize& r, const ResizedAxis& a, const Position<T>& p, T at,
         const Choose& if_one) {
  const T width = p.scale * p.in;
  const T half = (at + p.half) / p.scale - p.half;
  if (r.coordinates == "half_pixel") return half;
  if (r.coordinates == "tf_half_pixel_for_nn") return (at + p.half) / p.scale;
  if (r.coordinates == "asymmetric") return at / p.scale;
  if (r.coordinates == "align_corners") return if_one(width, p.zero, at * (p.in - p.one) / (width - p.one));
  if (r.coordinates == "pytorch_half_pixel") return if_one(p.out, p.zero, half);
  if (r.coordinates == "half_pixel_symmetric")
    return p.in / p.two * (p.one - p.out / width) + (at + p.half) / p.scale - p.half;
  n.unsupported("coordinate_transformation_mode=" + r.coordinates +
                (a.known() ? "" : " of an axis whose size is not known when compiling"));
}

// x times the matrix [in, out] along the axis.
ValueId weighted(NodeContext& n, const ResizedAxis& a, ValueId x, ValueId matrix);

// An axis one of whose sizes is known only at run time.
ValueId resize_unknown_axis(NodeContext& n, const Resize& r, const ResizedAxis& a, ValueId x);

}  // namespace aicf::onnx
