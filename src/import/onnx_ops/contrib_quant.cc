// Domain com.microsoft: quantised ops that onnxruntime's quantiser and optimizers write. Sums of 8-bit
// products are exact; everything else is computed in f32 from the dequantised operands and rounded once at
// the end.
#include <algorithm>

#include "import/onnx_ops/quant.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// A scale or zero point of a whole tensor.
ValueId whole(NodeContext& n, size_t i) {
  const Shape shape = n.shape(i);
  if (!shape.empty() && shape != Shape{Dim(1)})
    n.unsupported("scales or zero points of shape " + to_string(shape));
  return n.reshape(n.in(i), {});
}

// Inputs x, scale and zero point (which may be absent) from `first` on, as f32.
ValueId real(NodeContext& n, size_t first) {
  ValueId x = n.cast(n.in(first), DType::f32);
  if (n.has(first + 2)) x = n.add(Op::sub, {x, n.cast(whole(n, first + 2), DType::f32)});
  return n.add(Op::mul, {x, n.cast(whole(n, first + 1), DType::f32)});
}

// Output 0 from y of f32, by the scale and zero point (which may be absent) at inputs `first` and first + 1.
void give(NodeContext& n, ValueId y, size_t first) {
  const bool has_zero = n.has(first + 1);
  const DType dtype = has_zero ? n.dtype(first + 1) : n.dtype(0);
  const ValueId scaled = n.add(Op::div, {y, n.cast(whole(n, first), DType::f32)});
  n.out(0, quantized(n, scaled, has_zero ? whole(n, first + 1) : kNoValue, dtype));
}

// Inputs a, its scale and zero point, b, its scale and zero point, then those of the result.
template <Op op>
void qlinear_binary(NodeContext& n) {
  give(n, n.add(op, {real(n, 0), real(n, 3)}), 6);
}

void qlinear_sigmoid(NodeContext& n) { give(n, n.add(Op::sigmoid, {real(n, 0)}), 3); }

void qlinear_leaky_relu(NodeContext& n) {
  give(n, n.add(Op::leaky_relu, {real(n, 0)}, {{"alpha", n.attr_float("alpha", 0.01)}}), 3);
}

void qlinear_where(NodeContext& n) { give(n, n.add(Op::select, {n.in(0), real(n, 1), real(n, 4)}), 7); }

void qlinear_reduce_mean(NodeContext& n) {
  Ints axes;
  for (int64_t axis : n.attr_ints("axes")) axes.push_back(n.axis(axis, n.rank(0)));
  for (int64_t i = 0; i < n.rank(0) && !n.has_attr("axes"); ++i) axes.push_back(i);
  give(n,
       n.add(Op::reduce_mean, {real(n, 0)}, {{"axes", axes}, {"keepdims", n.attr_int("keepdims", 1) != 0}}),
       3);
}

// Below opset 13 the axes from `axis` on are one.
void qlinear_softmax(NodeContext& n) {
  const int64_t opset = n.attr_int("opset"),
                axis = n.axis(n.attr_int("axis", opset < 13 ? 1 : -1), n.rank(0));
  const ValueId x = real(n, 0);
  if (opset >= 13) return give(n, n.add(Op::softmax, {x}, {{"axis", axis}}), 3);
  const Shape shape = n.shape(0);
  const Shape plane = {element_count(Shape(shape.begin(), shape.begin() + axis)),
                       element_count(Shape(shape.begin() + axis, shape.end()))};
  give(n, n.reshape(n.add(Op::softmax, {n.reshape(x, plane)}, {{"axis", int64_t{1}}}), shape), 3);
}

// The scale and zero point of the result, then x, scale and zero point of each part.
void qlinear_concat(NodeContext& n) {
  std::vector<ValueId> parts;
  for (size_t i = 2; i + 2 < n.input_count(); i += 3) parts.push_back(real(n, i));
  if (parts.empty()) n.bad("inputs", "at least one part", "none");
  const ValueId y = n.add(Op::concat, parts, {{"axis", n.axis(n.attr_int("axis"), n.rank(2))}});
  const ValueId scaled = n.add(Op::div, {y, n.cast(whole(n, 0), DType::f32)});
  n.out(0, quantized(n, scaled, whole(n, 1), n.dtype(1)));
}

// --- layouts: [N, spatial..., C] if channels_last=1

ValueId channels_first(NodeContext& n, ValueId x) {
  const auto rank = static_cast<int64_t>(n.shape_of(x).size());
  Ints perm = {0, rank - 1};
  for (int64_t i = 1; i < rank - 1; ++i) perm.push_back(i);
  return n.transpose(x, perm);
}

ValueId channels_last(NodeContext& n, ValueId x) {
  const auto rank = static_cast<int64_t>(n.shape_of(x).size());
  Ints perm = {0};
  for (int64_t i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return n.transpose(x, perm);
}

void contrib_qlinear_conv(NodeContext& n) {
  const bool last = n.attr_int("channels_last", 0) != 0;
  if (last) n.set_input(0, channels_first(n, n.in(0)));
  const ValueId y = convert_as(n, "QLinearConv");
  if (last) n.out(0, channels_last(n, y));
}

// A pool of the dequantised input.
void qlinear_pool(NodeContext& n, std::string_view op) {
  const bool last = n.attr_int("channels_last", 0) != 0;
  const ValueRef quantised = n.ref(0);
  const ValueId x = real(n, 0);
  n.set_input(0, last ? channels_first(n, x) : x);
  const ValueId y = convert_as(n, op);
  n.set_input(0, quantised);  // whose dtype the result has
  give(n, last ? channels_last(n, y) : y, 3);
}

void qlinear_average_pool(NodeContext& n) { qlinear_pool(n, "AveragePool"); }
void qlinear_global_average_pool(NodeContext& n) { qlinear_pool(n, "GlobalAveragePool"); }

// --- products

// The product in f32 by its scale, plus a bias if there is one.
ValueId scaled_product(NodeContext& n, ValueId product, ValueId scale, size_t bias) {
  const ValueId y = n.add(Op::mul, {n.cast(product, DType::f32), scale});
  return n.has(bias) ? n.add(Op::add, {y, n.in(bias)}) : y;
}

// a, b, a_scale, b_scale, a_zero, b_zero, bias; scales and zero points of b may be vectors over its columns.
void matmul_integer_to_float(NodeContext& n) {
  const ValueId product = integer_matmul(n, n.in(0), n.in_or_none(4), n.in(1), n.in_or_none(5));
  n.out(0, scaled_product(n, product, n.add(Op::mul, {whole(n, 2), n.in(3)}), 6));
}

// a of f32, b, b_scale, b_zero, bias.
void dynamic_quantize_matmul(NodeContext& n) {
  const DynamicallyQuantized a = quantize_dynamically(n, n.in(0));
  const ValueId product = integer_matmul(n, a.values, a.zero, n.in(1), n.in_or_none(3));
  n.out(0, scaled_product(n, product, n.add(Op::mul, {a.scale, n.in(2)}), 4));
}

// alpha op(A) op(B) + C, with C in i32 in units of the scales of A and B; quantised if the result has a
// scale.
void qgemm(NodeContext& n) {
  const auto side = [&](size_t i, const char* name) {
    n.require_rank(i, 2);
    return n.attr_int(name, 0) != 0 ? n.transpose(n.in(i), {1, 0}) : n.in(i);
  };
  ValueId product = integer_matmul(n, side(0, "transA"), n.in(2), side(3, "transB"), n.in(5));
  if (n.has(6)) product = n.add(Op::add, {product, n.in(6)});
  ValueId scale = n.add(Op::mul, {whole(n, 1), n.in(4)});
  if (const double alpha = n.attr_float("alpha", 1.0); alpha != 1.0)
    scale = n.add(Op::mul, {scale, n.scalar(DType::f32, alpha)});
  const ValueId y = n.add(Op::mul, {n.cast(product, DType::f32), scale});
  if (n.has(7)) return give(n, y, 7);
  n.out(0, y);
}

// Number i of a row of packed unsigned numbers, the lowest bits first.
int64_t packed(const Array& bytes, int64_t row_bytes, int64_t row, int64_t i, int64_t bits) {
  const int64_t per_byte = 8 / bits;
  const int64_t byte = bytes.get_i64(row * row_bytes + i / per_byte);
  return (byte >> (bits * (i % per_byte))) & ((int64_t{1} << bits) - 1);
}

// Weights [N, blocks, bytes] of 2, 4 or 8 bits with a scale and zero point per block, as f32 [N, K].
Array dequantized_weights(NodeContext& n, int64_t columns, int64_t depth, int64_t bits, int64_t block) {
  const Array weights = n.require_constant(1, "the weights"), scales = n.require_constant(2, "the scales");
  const int64_t blocks = (depth + block - 1) / block, blob = block * bits / 8,
                zero_bytes = (blocks * bits + 7) / 8;
  if (weights.dtype() != DType::u8 || weights.count() != columns * blocks * blob)
    n.bad("weights", "u8 of N x blocks x bytes: " + std::to_string(columns * blocks * blob),
          std::to_string(weights.count()) + " of " + std::string(dtype_name(weights.dtype())));
  if (scales.count() != columns * blocks)
    n.bad("scales", std::to_string(columns * blocks) + " numbers", std::to_string(scales.count()));
  std::optional<Array> zeros;
  if (n.has(3)) zeros = n.require_constant(3, "the zero points");
  const bool packs_zeros = zeros && zeros->dtype() == DType::u8;
  if (zeros && zeros->count() != columns * (packs_zeros ? zero_bytes : blocks))
    n.bad("zero_points", "one per block", std::to_string(zeros->count()) + " elements");
  Array result = n.generated(DType::f32, {columns, depth});
  for (int64_t row = 0; row < columns; ++row)
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t b = i / block;
      const double zero = !zeros        ? static_cast<double>(int64_t{1} << (bits - 1))
                          : packs_zeros ? static_cast<double>(packed(*zeros, zero_bytes, row, b, bits))
                                        : zeros->get_f64(row * blocks + b);
      const double q = static_cast<double>(packed(weights, blocks * blob, row, i, bits));
      result.set_f64(row * depth + i, (q - zero) * scales.get_f64(row * blocks + b));
    }
  return result;
}

// a [..., K] by weights of N columns in blocks along K, which become f32 when importing.
void matmul_nbits(NodeContext& n) {
  const int64_t bits = n.attr_int("bits", 4), block = n.attr_int("block_size");
  if (bits != 2 && bits != 4 && bits != 8) n.unsupported("bits=" + std::to_string(bits));
  if (block < 16 || block > (1 << 16) || (block & (block - 1)) != 0)
    n.bad("block_size", "a power of two from 16 on", std::to_string(block));
  const int64_t columns = n.attr_int("N"), depth = n.attr_int("K");
  if (columns < 1 || depth < 1 || columns > kMaxGeneratedElements || depth > kMaxGeneratedElements)
    n.bad("K and N", "at least 1", std::to_string(depth) + " and " + std::to_string(columns));
  n.ignore("accuracy_level");  // the least precision allowed; ours is f32
  if (n.has(4)) n.unsupported("g_idx");
  if (n.attr_int("weight_prepacked", 0) != 0) n.unsupported("weight_prepacked");
  const ValueId w = n.cast(n.constant_of(dequantized_weights(n, columns, depth, bits, block)), n.dtype(0));
  n.out(0, n.add(Op::linear, {n.in(0), w, n.in_or_none(5)}, {{"transpose_w", true}}));
}

}  // namespace

std::vector<OpRule> contrib_quant_rules() {
  return {
      {"QLinearAdd", qlinear_binary<Op::add>, 1, kContrib},
      {"QLinearMul", qlinear_binary<Op::mul>, 1, kContrib},
      {"QLinearSigmoid", qlinear_sigmoid, 1, kContrib},
      {"QLinearLeakyRelu", qlinear_leaky_relu, 1, kContrib},
      {"QLinearWhere", qlinear_where, 1, kContrib},
      {"QLinearReduceMean", qlinear_reduce_mean, 1, kContrib},
      {"QLinearSoftmax", qlinear_softmax, 1, kContrib},
      {"QLinearConcat", qlinear_concat, 1, kContrib},
      {"QLinearConv", contrib_qlinear_conv, 1, kContrib},
      {"QLinearAveragePool", qlinear_average_pool, 1, kContrib},
      {"QLinearGlobalAveragePool", qlinear_global_average_pool, 1, kContrib},
      {"MatMulIntegerToFloat", matmul_integer_to_float, 1, kContrib},
      {"DynamicQuantizeMatMul", dynamic_quantize_matmul, 1, kContrib},
      {"QGemm", qgemm, 1, kContrib},
      {"MatMulNBits", matmul_nbits, 1, kContrib},
  };
}

}  // namespace aicf::onnx
