// Linear quantisation: q = saturate(round(x / scale) + zero point), x = (q - zero point) scale.
#include "import/onnx_ops/quant.h"

#include "import/onnx_ops/carried.h"
#include "import/onnx_ops/registry.h"
#include "import/onnx_ops/small_floats.h"

namespace aicf::onnx {

namespace {

ValueId rounded(NodeContext& n, ValueId scaled, ValueId zero_point) {
  const ValueId y = n.add(Op::round, {scaled});
  return zero_point == kNoValue ? y : n.add(Op::add, {y, n.cast(zero_point, n.dtype_of(y))});
}

}  // namespace

ValueId repeat_blocks(NodeContext& n, ValueId x, size_t axis, int64_t block, const Dim& size) {
  const Shape own = n.shape_of(x);
  Shape thin = own, wide = own, whole = own;
  thin.insert(thin.begin() + static_cast<std::ptrdiff_t>(axis) + 1, Dim(1));
  wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(axis) + 1, Dim(block));
  whole[axis] = own[axis] * Dim(block);
  const ValueId repeated = n.reshape(n.broadcast(n.reshape(x, thin), wide), whole);
  return n.slice_axis(repeated, static_cast<int64_t>(axis), 0, size);
}

ValueId quantized(NodeContext& n, ValueId scaled, ValueId zero_point, DType dtype) {
  return n.cast(rounded(n, scaled, zero_point), dtype);
}

// scale = (max(x, 0) - min(x, 0)) / 255, zero = round(-min / scale).
DynamicallyQuantized quantize_dynamically(NodeContext& n, ValueId x) {
  const DType f = n.dtype_of(x);
  Ints axes;
  for (size_t i = 0; i < n.shape_of(x).size(); ++i) axes.push_back(static_cast<int64_t>(i));
  const ValueId zero = n.scalar(f, 0), top = n.scalar(f, 255);
  const ValueId high = n.add(Op::max, {n.add(Op::reduce_max, {x}, {{"axes", axes}}), zero});
  const ValueId low = n.add(Op::min, {n.add(Op::reduce_min, {x}, {{"axes", axes}}), zero});
  // Of nothing but zeros onnxruntime makes 1; the formula divides by 0.
  const ValueId range = n.add(Op::sub, {high, low});
  const ValueId scale =
      n.add(Op::select, {n.add(Op::eq, {range, zero}), n.scalar(f, 1), n.add(Op::div, {range, top})});
  const ValueId point =
      n.add(Op::round, {n.add(Op::clamp, {n.add(Op::sub, {zero, n.add(Op::div, {low, scale})}), zero, top})});
  const ValueId values = n.add(Op::add, {n.add(Op::round, {n.add(Op::div, {x, scale})}), point});
  return {n.cast(values, DType::u8), scale, n.cast(point, DType::u8)};
}

namespace {

// Scale or zero point shaped to meet x: a scalar, a vector along `axis`, or one entry per block along `axis`.
ValueId spread(NodeContext& n, size_t i, int64_t axis, int64_t block) {
  const Shape x = n.shape(0), own = n.shape(i);
  if (own.empty() || (own.size() == 1 && own[0] == Dim(1) && block == 0)) return n.reshape(n.in(i), {});
  const size_t at = static_cast<size_t>(n.axis(axis, n.rank(0)));
  if (block == 0) {
    Shape thin(x.size(), Dim(1));
    thin[at] = own[0];
    return n.reshape(n.in(i), thin);
  }
  if (own.size() != x.size()) n.bad("a blocked scale or zero point", "the rank of x", to_string(own));
  return repeat_blocks(n, n.in(i), at, block, x[at]);
}

void quantize(NodeContext& n) {
  const int64_t axis = n.attr_int("axis", 1), block = n.attr_int("block_size", 0);
  const bool saturate = n.attr_int("saturate", 1) != 0;
  const int64_t precision = n.attr_int("precision", 0), wanted = n.attr_int("output_dtype", 0);
  if (precision != 0 && precision != 1)
    n.unsupported("precision=" + data_type_name(static_cast<int>(precision)));
  DType dtype = n.has(2) ? n.dtype(2) : DType::u8;
  const CarriedType* carried = n.has(2) ? n.carried(2) : nullptr;
  if (wanted != 0) {
    const auto known = storage_dtype(static_cast<int>(wanted));
    if (!known) n.unsupported("data type " + data_type_name(static_cast<int>(wanted)));
    dtype = *known;
    carried = carried_type(static_cast<int>(wanted));
  }
  const ValueId x = n.cast(n.in(0), DType::f32), scale = n.cast(spread(n, 1, axis, block), DType::f32);
  const ValueId scaled = n.add(Op::div, {x, scale});
  if (carried && carried->format) {  // a zero point of floats is zero: added, it takes the sign of another
    const ValueId plus = n.add(Op::add, {scaled, n.scalar(DType::f32, 0)});
    return out_carried(n, 0, encoded(n, plus, *carried, saturate), *carried);
  }
  ValueId y = rounded(n, scaled, n.has(2) ? spread(n, 2, axis, block) : kNoValue);
  if (!carried) return n.out(0, n.cast(y, dtype));
  const auto bound = [&](int64_t value) { return n.scalar(DType::f32, static_cast<double>(value)); };
  y = n.add(Op::clamp, {y, bound(carried->low), bound(carried->high)});
  out_carried(n, 0, n.cast(y, dtype), *carried);
}

void dequantize(NodeContext& n) {
  const int64_t axis = n.attr_int("axis", 1), block = n.attr_int("block_size", 0),
                wanted = n.attr_int("output_dtype", 0);
  const DType scale_dtype = n.dtype(1);
  DType dtype = scale_dtype;
  if (wanted != 0) {
    const auto known = dtype_from_onnx(static_cast<int>(wanted));
    if (!known) n.unsupported("data type " + data_type_name(static_cast<int>(wanted)));
    dtype = *known;
  }
  // A zero point of floats is zero.
  const bool real = n.carried(0) && n.carried(0)->format;
  ValueId x = real ? decoded(n, n.in(0), *n.carried(0)) : n.in(0);
  if (n.has(2) && !real)
    x = n.add(Op::sub, {n.cast(x, DType::i32), n.cast(spread(n, 2, axis, block), DType::i32)});
  const ValueId scaled =
      n.add(Op::mul, {n.cast(x, DType::f32), n.cast(spread(n, 1, axis, block), DType::f32)});
  n.out(0, n.cast(scaled, dtype));
}

void dynamic_quantize(NodeContext& n) {
  const DynamicallyQuantized y = quantize_dynamically(n, n.in(0));
  n.out(0, y.values);
  n.out(1, y.scale);
  n.out(2, y.zero);
}

// Inputs a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero. f64 holds the integer sums exactly.
void qlinear_matmul(NodeContext& n) {
  if (n.rank(0) < 2 || n.rank(3) < 2) n.unsupported("vector operands");
  // A vector of scales or zero points belongs to the rows of a or the columns of b.
  auto shaped = [&](size_t i, bool rows) {
    const ValueId v = n.cast(n.in(i), DType::f64);
    const Shape shape = n.shape_of(v);
    if (shape.size() != 1) return v;
    if (shape[0] == Dim(1)) return n.reshape(v, {});
    return rows ? n.reshape(v, {shape[0], Dim(1)}) : v;
  };
  auto centered = [&](size_t x, size_t zero, bool rows) {
    return n.add(Op::sub, {n.cast(n.in(x), DType::f64), shaped(zero, rows)});
  };
  const ValueId product = n.add(Op::matmul, {centered(0, 2, true), centered(3, 5, false)});
  const ValueId factor =
      n.add(Op::div, {n.add(Op::mul, {shaped(1, true), shaped(4, false)}), shaped(6, true)});
  n.out(0, quantized(n, n.add(Op::mul, {product, factor}), shaped(7, true), n.dtype(7)));
}

}  // namespace

std::vector<OpRule> quant_rules() {
  return {{"QuantizeLinear", quantize, 1, kContrib},
          {"DequantizeLinear", dequantize, 1, kContrib},
          {"QuantizeLinear", quantize},
          {"DequantizeLinear", dequantize},
          {"DynamicQuantizeLinear", dynamic_quantize},
          {"QLinearMatMul", qlinear_matmul}};
}

}  // namespace aicf::onnx
