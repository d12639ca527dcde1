// Domain com.microsoft: what onnxruntime's optimizers write in place of the standard ops, but for attention
// and quantised ops. Formulas are those of its ContribOperators.md.
#include "import/onnx_ops/recurrent_cell.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// alpha op(A) op(B), batches as numpy means them. transBatch puts the first axis before the last, transA and
// transB then exchange the last two.
void fused_matmul(NodeContext& n) {
  if (n.rank(0) < 2 || n.rank(1) < 2) n.unsupported("an operand that is a vector");
  const bool transpose_a = n.attr_int("transA", 0) != 0, transpose_b = n.attr_int("transB", 0) != 0;
  const double alpha = n.attr_float("alpha", 1.0);
  const auto operand = [&](size_t i, std::string_view batch_first) {
    if (n.attr_int(batch_first, 0) == 0) return n.in(i);
    Ints perm;
    for (int64_t axis = 1; axis < n.rank(i) - 1; ++axis) perm.push_back(axis);
    perm.insert(perm.end(), {0, n.rank(i) - 1});
    return n.transpose(n.in(i), perm);
  };
  const ValueId a = operand(0, "transBatchA"), b = operand(1, "transBatchB");
  const ValueId y = n.add(Op::matmul, {a, b}, {{"transpose_x", transpose_a}, {"transpose_y", transpose_b}});
  n.out(0, alpha == 1.0 ? y : n.add(Op::mul, {y, n.scalar(n.dtype_of(y), alpha)}));
}

// x by the activation that an optimizer fused behind a product or convolution; `numbers` are its alpha and
// beta, or the bounds of Clip.
ValueId activated(NodeContext& n, ValueId x, const std::vector<float>& numbers) {
  const std::string name = n.attr_str("activation", "");
  if (name.empty()) return x;
  if (name != "Clip") return activate(n, make_activation(n, name, numbers), x);
  if (numbers.size() != 2) n.bad("activation_params", "2 numbers", std::to_string(numbers.size()));
  const auto bound = [&](size_t i) { return n.scalar(n.dtype_of(x), static_cast<double>(numbers[i])); };
  return n.add(Op::clamp, {x, bound(0), bound(1)});
}

// act(conv(x, w) + bias + z)
void fused_conv(NodeContext& n) {
  ValueId y = convert_as(n, "Conv");
  if (n.has(3)) y = n.add(Op::add, {y, n.in(3)});
  n.out(0, activated(n, y, n.attr_floats("activation_params")));
}

// act(alpha op(A) op(B) + beta C)
void fused_gemm(NodeContext& n) {
  std::vector<float> numbers;
  for (const char* name : {"activation_alpha", "activation_beta"})
    if (n.has_attr(name)) numbers.push_back(static_cast<float>(n.attr_float(name, 0)));
  n.ignore("activation_gamma");  // of activations that are refused by name
  n.out(0, activated(n, convert_as(n, "Gemm"), numbers));
}

void quick_gelu(NodeContext& n) {
  const ValueId x = n.in(0), alpha = n.scalar(n.dtype(0), n.attr_float("alpha", 1.702));
  n.out(0, n.add(Op::mul, {x, n.add(Op::sigmoid, {n.add(Op::mul, {x, alpha})})}));
}

ValueId rms_norm_last(NodeContext& n, ValueId x, size_t scale, double epsilon) {
  return n.add(Op::rms_norm, {x, n.in(scale)},
               {{"axis", int64_t{-1}}, {"epsilon", n.attr_float("epsilon", epsilon)}});
}

void simplified_layer_norm(NodeContext& n) {
  if (n.axis(n.attr_int("axis", -1), n.rank(0)) != n.rank(0) - 1)
    n.unsupported("an axis that is not the last");
  n.ignore("stash_type");  // ours is never below f32
  n.out(0, rms_norm_last(n, n.in(0), 1, 1e-5));
}

void skip_simplified_layer_norm(NodeContext& n) {
  ValueId sum = n.add(Op::add, {n.in(0), n.in(1)});
  if (n.has(3)) sum = n.add(Op::add, {sum, n.in(3)});
  n.out(0, rms_norm_last(n, sum, 2, 1e-12));
  if (n.wants(3)) n.out(3, sum);
}

// Words, positions and segments; output 1 counts the unmasked words of each sentence.
void embed_layer_norm(NodeContext& n) {
  n.require_rank(0, 2);
  const auto rows = [&](size_t table, ValueId ids) {
    return n.add(Op::gather, {n.in(table), ids}, {{"axis", int64_t{0}}});
  };
  const Shape ids = n.shape(0);
  ValueId sum = rows(2, n.in(0));
  const ValueId positions = n.has(8) ? rows(3, n.in(8)) : n.slice_axis(n.in(3), 0, Dim(0), ids[1]);
  sum = n.add(Op::add, {sum, positions});
  if (n.has(1) && !n.has(4)) n.unsupported("segments without a table of them");
  if (n.has(1)) sum = n.add(Op::add, {sum, rows(4, n.in(1))});
  n.out(0, n.add(Op::layer_norm, {sum, n.in(5), n.in(6)},
                 {{"axis", int64_t{-1}}, {"epsilon", n.attr_float("epsilon", 1e-12)}}));
  n.ignore("mask_index_type");  // says what output 1 is when there is no mask: zeros, whatever it is
  const ValueId mask =
      n.has(7) ? n.cast(n.in(7), DType::i32) : n.broadcast(n.iscalar(DType::i32, 0), {ids[0], ids[1]});
  if (n.wants(1))
    n.out(1, n.add(Op::reduce_sum, {mask}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", false}}));
  if (n.wants(2)) n.out(2, sum);
}

}  // namespace

std::vector<OpRule> contrib_rules() {
  return {
      {"FusedMatMul", fused_matmul, 1, kContrib},
      {"TransposeMatMul", fused_matmul, 1, kContrib},
      {"FusedConv", fused_conv, 1, kContrib},
      {"FusedGemm", fused_gemm, 1, kContrib},
      {"QuickGelu", quick_gelu, 1, kContrib},
      {"SimplifiedLayerNormalization", simplified_layer_norm},
      {"SkipSimplifiedLayerNormalization", skip_simplified_layer_norm, 1, kContrib},
      {"EmbedLayerNormalization", embed_layer_norm, 1, kContrib},
  };
}

}  // namespace aicf::onnx
