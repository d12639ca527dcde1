// Domain com.microsoft: what onnxruntime's optimizers write in place of the standard ops. Formulas are those
// of its ContribOperators.md.
#include <cmath>

#include "import/onnx_ops/heads.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// alpha op(A) op(B), batches as numpy means them.
void fused_matmul(NodeContext& n) {
  if (n.attr_int("transBatchA", 0) != 0 || n.attr_int("transBatchB", 0) != 0)
    n.unsupported("transBatchA or transBatchB");
  if (n.rank(0) < 2 || n.rank(1) < 2) n.unsupported("an operand that is a vector");
  const bool transpose_a = n.attr_int("transA", 0) != 0, transpose_b = n.attr_int("transB", 0) != 0;
  const double alpha = n.attr_float("alpha", 1.0);
  const ValueId y =
      n.add(Op::matmul, {n.in(0), n.in(1)}, {{"transpose_x", transpose_a}, {"transpose_y", transpose_b}});
  n.out(0, alpha == 1.0 ? y : n.add(Op::mul, {y, n.scalar(n.dtype_of(y), alpha)}));
}

void quick_gelu(NodeContext& n) {
  const ValueId x = n.in(0), alpha = n.scalar(n.dtype(0), n.attr_float("alpha", 1.702));
  n.out(0, n.add(Op::mul, {x, n.add(Op::sigmoid, {n.add(Op::mul, {x, alpha})})}));
}

ValueId rms_norm_last(NodeContext& n, ValueId x, size_t scale) {
  return n.add(Op::rms_norm, {x, n.in(scale)},
               {{"axis", int64_t{-1}}, {"epsilon", n.attr_float("epsilon", 1e-5)}});
}

void simplified_layer_norm(NodeContext& n) {
  if (n.axis(n.attr_int("axis", -1), n.rank(0)) != n.rank(0) - 1)
    n.unsupported("an axis that is not the last");
  n.ignore("stash_type");  // ours is never below f32
  n.out(0, rms_norm_last(n, n.in(0), 1));
}

void skip_simplified_layer_norm(NodeContext& n) {
  ValueId sum = n.add(Op::add, {n.in(0), n.in(1)});
  if (n.has(3)) sum = n.add(Op::add, {sum, n.in(3)});
  n.out(0, rms_norm_last(n, sum, 2));
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

// The mask of keys as something to add to scores [B, H, S, T]: 0, or mask_filter_value where they are hidden.
// Forms: lengths [B], keys [B, T], scores [B, S, T].
ValueId additive_mask(NodeContext& n, size_t i, const Dim& batch, const Dim& keys, DType dtype) {
  const double hidden = n.attr_float("mask_filter_value", -10000.0);
  if (!n.has(i)) return kNoValue;
  const Shape s = n.shape(i);
  ValueId kept = kNoValue;
  if (s.size() == 1 && s[0] == batch) {
    const ValueId key =
        n.add(Op::iota, {}, {{"shape", Shape{Dim(1), keys}}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
    const ValueId length = n.reshape(n.cast(n.in(i), DType::i64), {batch, Dim(1)});
    kept = n.reshape(n.add(Op::lt, {key, length}), {batch, Dim(1), Dim(1), keys});
  } else if (s.size() == 2 || s.size() == 3) {
    const ValueId seen = n.add(Op::ne, {n.in(i), n.iscalar(n.dtype(i), 0)});
    kept =
        n.reshape(seen, s.size() == 2 ? Shape{s[0], Dim(1), Dim(1), s[1]} : Shape{s[0], Dim(1), s[1], s[2]});
  } else {
    n.unsupported("a mask of shape " + to_string(s));
  }
  return n.add(Op::select, {kept, n.scalar(dtype, 0), n.scalar(dtype, hidden)});
}

struct Heads {
  ValueId q, k, v;  // [B, H, S, D]
};

void attend(NodeContext& n, const Heads& h, size_t mask_input, size_t bias_input) {
  const Shape q = n.shape_of(h.q);
  const Dim keys = n.shape_of(h.k)[2];
  const DType dtype = n.dtype_of(h.q);
  ValueId mask = additive_mask(n, mask_input, q[0], keys, dtype);
  if (n.has(bias_input))
    mask = mask == kNoValue ? n.in(bias_input) : n.add(Op::add, {mask, n.in(bias_input)});
  const double given = n.attr_float("scale", 0.0);
  const double scale =
      given != 0.0 ? given : 1.0 / std::sqrt(static_cast<double>(q[3].require_constant("head size")));
  const bool causal = n.attr_int("unidirectional", 0) != 0;
  if (causal && q[2] != keys) n.unsupported("unidirectional with more keys than queries");
  n.out(0,
        merge_heads(n, n.add(Op::attention, {h.q, h.k, h.v, mask}, {{"scale", scale}, {"causal", causal}})));
}

void refuse(NodeContext& n, std::initializer_list<const char*> attributes) {
  for (const char* name : attributes)
    if (n.attr_int(name, 0) != 0) n.unsupported(std::string(name) + "=1");
}

// Self-attention of x [B, S, I] by weights [I, Q + K + V] of all three.
void packed_attention(NodeContext& n) {
  refuse(n, {"do_rotary", "past_present_share_buffer", "rotary_embedding_dim"});
  if (n.has(4) || n.has(6) || n.wants(1)) n.unsupported("past or present keys and values");
  n.require_rank(0, 3);
  n.require_rank(1, 2);
  const int64_t heads = n.attr_int("num_heads");
  const int64_t columns = n.shape(1)[1].require_constant("columns of the weights of Attention");
  const std::vector<int64_t> sizes = n.attr_ints("qkv_hidden_sizes", {columns / 3, columns / 3, columns / 3});
  if (heads < 1 || sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != columns)
    n.bad("weights", "as many columns as Q, K and V have together", std::to_string(columns));
  const ValueId all = n.add(Op::linear, {n.in(0), n.in(1), n.in_or_none(2)}, {{"transpose_w", false}});
  const auto part = [&](int64_t first, int64_t count) {
    if (count % heads != 0) n.bad("hidden size", "a multiple of num_heads", std::to_string(count));
    return split_heads(n, n.slice_axis(all, 2, Dim(first), Dim(first + count)), heads);
  };
  attend(n, {part(0, sizes[0]), part(sizes[0], sizes[1]), part(sizes[0] + sizes[1], sizes[2])}, 3, 5);
}

// Q, K and V [B, T, H D] apart, or K and V as [B, H, T, D]; one bias for the three.
void multi_head_attention(NodeContext& n) {
  if (!n.has(1) || !n.has(2) || n.rank(0) != 3) n.unsupported("Q, K and V packed into one tensor");
  if (n.has(6) || n.has(7) || n.wants(1) || n.wants(2)) n.unsupported("past or present keys and values");
  const int64_t heads = n.attr_int("num_heads");
  int64_t first = 0;
  const auto part = [&](size_t i) {
    const Shape& s = n.shape(i);
    ValueId x = n.in(i);
    if (n.has(3)) {
      if (s.size() != 3) n.unsupported("a bias beside keys of rank 4");
      const int64_t count = s[2].require_constant("hidden size of MultiHeadAttention");
      x = n.add(Op::add, {x, n.slice_axis(n.in(3), 0, Dim(first), Dim(first + count))});
      first += count;
    }
    return split_heads(n, x, heads);
  };
  const ValueId q = part(0), k = part(1), v = part(2);
  attend(n, {q, k, v}, 4, 5);
}

}  // namespace

std::vector<OpRule> contrib_rules() {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  constexpr const char* kDomain = "com.microsoft";
  return {
      {"FusedMatMul", fused_matmul, 1, kLast, kDomain},
      {"QuickGelu", quick_gelu, 1, kLast, kDomain},
      {"SimplifiedLayerNormalization", simplified_layer_norm},
      {"SkipSimplifiedLayerNormalization", skip_simplified_layer_norm, 1, kLast, kDomain},
      {"EmbedLayerNormalization", embed_layer_norm, 1, kLast, kDomain},
      {"Attention", packed_attention, 1, kLast, kDomain},
      {"MultiHeadAttention", multi_head_attention, 1, kLast, kDomain},
  };
}

}  // namespace aicf::onnx
