// Convolutions.
#include <algorithm>

#include "import/onnx_ops/registry.h"
#include "import/onnx_ops/window.h"

namespace aicf::onnx {
namespace {

// `x` and `w` may be conversions of the node's inputs.
ValueId convolve(NodeContext& n, ValueId x, ValueId w, ValueId bias) {
  const PaddedFirst padded = pad_first(n, x, kernel_of(n, n.shape_of(w)), 0, Rest::kStays);
  const Window window = read_window(n, n.shape_of(padded.x), kernel_of(n, n.shape_of(w)));
  return padded.cut(n, n.add(Op::conv, {padded.x, w, bias},
                             {{"strides", window.strides},
                              {"pads", window.pads},
                              {"dilations", window.dilations},
                              {"groups", n.attr_int("group", 1)}}));
}

void conv(NodeContext& n) { n.out(0, convolve(n, n.in(0), n.in(1), n.in_or_none(2))); }

// x - zero point in f64, which holds every product sum of 8-bit values exactly.
ValueId centered_input(NodeContext& n, size_t x, size_t zero_point, bool per_filter) {
  const ValueId wide = n.cast(n.in(x), DType::f64);
  if (!n.has(zero_point)) return wide;
  ValueId zero = n.cast(n.in(zero_point), DType::f64);
  if (per_filter && n.rank(zero_point) == 1 && n.shape(zero_point)[0] != Dim(1)) {
    if (n.rank(x) == 0) n.bad("weights", "rank 3 or more", "a scalar");
    Shape thin(static_cast<size_t>(n.rank(x)), Dim(1));
    thin[0] = n.shape(zero_point)[0];
    zero = n.reshape(zero, thin);
  } else {
    zero = n.reshape(zero, {});
  }
  return n.add(Op::sub, {wide, zero});
}

void conv_integer(NodeContext& n) {
  n.out(0, n.cast(convolve(n, centered_input(n, 0, 2, false), centered_input(n, 1, 3, true), kNoValue),
                  DType::i32));
}

// Inputs: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias (i32 in units of x_scale w_scale).
void qlinear_conv(NodeContext& n) {
  const ValueId bias = n.has(8) ? n.cast(n.in(8), DType::f64) : kNoValue;
  const ValueId sum = convolve(n, centered_input(n, 0, 2, false), centered_input(n, 3, 5, true), bias);
  auto per_channel = [&](ValueId v) {
    const Shape shape = n.shape_of(v);
    if (shape.empty() || shape[0] == Dim(1)) return n.reshape(v, {});
    Shape thin(n.shape_of(sum).size(), Dim(1));
    thin[1] = shape[0];
    return n.reshape(v, thin);
  };
  const ValueId w_scale = per_channel(n.cast(n.in(4), DType::f64));
  const ValueId x_scale = n.reshape(n.cast(n.in(1), DType::f64), {}),
                y_scale = n.reshape(n.cast(n.in(6), DType::f64), {});
  const ValueId factor = n.add(Op::div, {n.add(Op::mul, {w_scale, x_scale}), y_scale});
  const ValueId rounded = n.add(Op::round, {n.add(Op::mul, {sum, factor})});
  const DType dtype = n.has(7) ? n.dtype(7) : DType::u8;
  const ValueId zero = n.has(7) ? n.reshape(n.cast(n.in(7), DType::f64), {}) : n.scalar(DType::f64, 0);
  n.out(0, n.cast(n.add(Op::add, {rounded, zero}), dtype));
}

// output_shape fixes the result; what it leaves over becomes padding, the odd element behind for SAME_UPPER.
void conv_transpose(NodeContext& n) {
  const Shape x = n.shape(0);
  const std::string mode = n.attr_str("auto_pad", "NOTSET");
  n.set_attr_str("auto_pad", "NOTSET");
  Window w = read_window(n, x, kernel_of(n, n.shape(1)));
  const size_t spatial = w.kernel.size();
  Ints extra = n.attr_ints("output_padding", Ints(spatial, 0));
  Ints wanted = n.attr_ints("output_shape");
  check_length(n, extra, spatial, "output_padding");
  if (wanted.size() == spatial + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty()) check_length(n, wanted, spatial, "output_shape");
  const bool same = is_same(mode);
  if (!same && mode != "NOTSET" && mode != "VALID" && !mode.empty()) n.unsupported("auto_pad=" + mode);
  if (mode == "VALID") w.pads.assign(2 * spatial, 0);
  for (size_t i = 0; i < spatial && (same || !wanted.empty()); ++i) {
    // SAME makes the result `stride` times the size, whatever that is.
    int64_t total = extra[i] + extent(w, i) - w.strides[i];
    if (!wanted.empty())
      total +=
          x[2 + i].require_constant("output_shape of node '" + n.origin() + "'") * w.strides[i] - wanted[i];
    // One element that no window reaches lies behind the result. Half of more would lie before it.
    if (total < 0 && !wanted.empty() && (mode == "SAME_UPPER" || total < -1))
      n.unsupported("output_shape " + std::to_string(wanted[i]) + " beyond the " +
                    std::to_string(wanted[i] + total) + " elements that the windows reach");
    if (total < 0) extra[i] -= total, total = 0;
    w.pads[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pads[spatial + i] = total - w.pads[i];
  }
  // Output padding beyond what the op allows is zeros behind the result.
  std::vector<Dim> low(x.size(), Dim(0)), high = low;
  bool beyond = false;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t limit = std::max(w.strides[i], w.dilations[i]) - 1;
    if (extra[i] > limit) high[2 + i] = Dim(extra[i] - limit), extra[i] = limit, beyond = true;
  }
  if (beyond && n.has(2)) n.unsupported("output_padding beyond the stride, with a bias");
  ValueId y = n.add(Op::conv_transpose, {n.in(0), n.in(1), n.in_or_none(2)},
                    {{"strides", w.strides},
                     {"pads", w.pads},
                     {"dilations", w.dilations},
                     {"output_padding", extra},
                     {"groups", n.attr_int("group", 1)}});
  if (beyond)
    y = n.add(Op::pad, {y, kNoValue}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  n.out(0, y);
}

}  // namespace

std::vector<OpRule> conv_rules() {
  return {
      {"Conv", conv},
      {"ConvInteger", conv_integer},
      {"QLinearConv", qlinear_conv},
      {"ConvTranspose", conv_transpose},
  };
}

}  // namespace aicf::onnx
