// Attention and rotary embedding of the standard domain.
#include <cmath>

#include "import/onnx_ops/heads.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {

ValueId split_heads(NodeContext& n, ValueId x, int64_t heads) {
  const Shape s = n.shape_of(x);
  if (s.size() == 4) return x;
  if (s.size() != 3 || heads < 1) n.bad("operands", "rank 4, or rank 3 with head counts", to_string(s));
  return n.transpose(n.reshape(x, {s[0], s[1], Dim(heads), floordiv(s[2], Dim(heads))}), {0, 2, 1, 3});
}

ValueId merge_heads(NodeContext& n, ValueId x) {
  const Shape s = n.shape_of(x);
  return n.reshape(n.transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

ValueId repeat_heads(NodeContext& n, ValueId x, const Dim& heads) {
  const Shape s = n.shape_of(x);
  if (s[1] == heads) return x;
  const Dim group = floordiv(heads, s[1]);
  const ValueId thin = n.reshape(x, {s[0], s[1], Dim(1), s[2], s[3]});
  return n.reshape(n.broadcast(thin, {s[0], s[1], group, s[2], s[3]}), {s[0], heads, s[2], s[3]});
}

namespace {

struct Problem {
  ValueId q, k, v, mask = kNoValue;
  double scale = 1, softcap = 0;
  bool causal = false;
};

ValueId iota(NodeContext& n, const Shape& shape, int64_t axis) {
  return n.add(Op::iota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", DType::i64}});
}

// Both masks at once: bool masks meet, float masks add, a bool mask turns into 0 and -inf beside a float one.
ValueId combine(NodeContext& n, ValueId a, ValueId b, DType dtype) {
  if (a == kNoValue) return b;
  if (b == kNoValue) return a;
  const bool a_bool = n.dtype_of(a) == DType::boolean, b_bool = n.dtype_of(b) == DType::boolean;
  if (a_bool && b_bool) return n.add(Op::bit_and, {a, b});
  auto additive = [&](ValueId m, bool is_bool) {
    return is_bool ? n.add(Op::select, {m, n.scalar(dtype, 0), n.scalar(dtype, -INFINITY)}) : m;
  };
  return n.add(Op::add, {additive(a, a_bool), additive(b, b_bool)});
}

// The given mask; keys that it does not reach are masked.
ValueId given_mask(NodeContext& n, const Dim& keys, DType dtype) {
  if (!n.has(3)) return kNoValue;
  ValueId mask = n.dtype(3) == DType::boolean ? n.in(3) : n.cast(n.in(3), dtype);
  const Shape s = n.shape_of(mask);
  if (s.empty() || s.back() == keys || s.back() == Dim(1)) return mask;
  std::vector<Dim> low(s.size(), Dim(0)), high = low;
  high.back() = keys - s.back();
  const ValueId fill =
      n.dtype(3) == DType::boolean ? n.iscalar(DType::boolean, 0) : n.scalar(dtype, -INFINITY);
  return n.add(Op::pad, {mask, fill}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
}

// Output 3: the scores at the stage that qk_matmul_output_mode names.
ValueId scores_at(NodeContext& n, const Problem& p, int64_t mode) {
  const DType dtype = n.dtype_of(p.q);
  const ValueId keys = repeat_heads(n, p.k, n.shape_of(p.q)[1]);
  ValueId s = n.add(Op::matmul, {p.q, keys}, {{"transpose_x", false}, {"transpose_y", true}});
  s = n.add(Op::mul, {s, n.scalar(dtype, p.scale)});
  // Softcap precedes the mask, so that -inf stays -inf. Mode 0 is before both only without a softcap.
  if (p.softcap > 0) {
    const ValueId cap = n.scalar(dtype, p.softcap);
    s = n.add(Op::mul, {n.add(Op::tanh, {n.add(Op::div, {s, cap})}), cap});
  }
  if (mode <= 1) return s;
  if (p.mask != kNoValue) s = combine(n, s, p.mask, dtype);
  return mode == 2 ? s : n.add(Op::softmax, {s}, {{"axis", int64_t{-1}}});
}

// Causality aligned at the upper left: key j is visible to query i if j <= i + past.
ValueId causal_mask(NodeContext& n, const Dim& queries, const Dim& keys, const Dim& past) {
  const Shape shape = {queries, keys};
  const ValueId last = n.add(Op::add, {iota(n, shape, 0), n.size_scalar(past, DType::i64)});
  return n.add(Op::le, {iota(n, shape, 1), last});
}

void attention(NodeContext& n) {
  n.ignore("softmax_precision");  // ours is never below f32
  const int64_t q_heads = n.attr_int("q_num_heads", 0), k_heads = n.attr_int("kv_num_heads", 0);
  const bool flat = n.rank(0) == 3;
  Problem p{split_heads(n, n.in(0), q_heads), split_heads(n, n.in(1), k_heads),
            split_heads(n, n.in(2), k_heads)};
  const DType dtype = n.dtype(0);
  Dim past(0);
  if (n.has(4)) {
    n.require_rank(4, 4);
    past = n.shape(4)[2];
    p.k = n.add(Op::concat, {n.in(4), p.k}, {{"axis", int64_t{2}}});
  }
  if (n.has(5)) p.v = n.add(Op::concat, {n.in(5), p.v}, {{"axis", int64_t{2}}});
  if (n.wants(1)) n.out(1, p.k);
  if (n.wants(2)) n.out(2, p.v);
  const Shape q = n.shape_of(p.q);
  const Dim& queries = q[2];
  const Dim keys = n.shape_of(p.k)[2];
  if (n.has_attr("scale")) {
    p.scale = n.attr_float("scale", 0);
  } else {
    p.scale = 1.0 / std::sqrt(static_cast<double>(q[3].require_constant("head size of Attention")));
  }
  p.softcap = n.attr_float("softcap", 0);
  p.mask = given_mask(n, keys, dtype);
  if (n.has(6)) {
    const Dim& batch = q[0];
    const ValueId lengths = n.reshape(n.cast(n.in(6), DType::i64), {batch, Dim(1), Dim(1), Dim(1)});
    p.mask = combine(n, p.mask, n.add(Op::lt, {iota(n, {Dim(1), Dim(1), Dim(1), keys}, 3), lengths}), dtype);
  }
  p.causal = n.attr_int("is_causal", 0) != 0;
  const bool wants_scores = n.wants(3);
  // Our op aligns causality at the lower right; the two agree if the queries are the last keys.
  if (p.causal && (wants_scores || keys - past != queries)) {
    p.mask = combine(n, p.mask, causal_mask(n, queries, keys, past), dtype);
    p.causal = false;
  }
  const int64_t mode = n.attr_int("qk_matmul_output_mode", 0);
  if (wants_scores) n.out(3, scores_at(n, p, mode));
  const ValueId v = n.cast(p.v, dtype), k = n.cast(p.k, dtype);
  const ValueId y = n.add(Op::attention, {p.q, k, v, p.mask},
                          {{"scale", p.scale}, {"causal", p.causal}, {"softcap", p.softcap}});
  n.out(0, flat ? merge_heads(n, y) : y);
}

// Q, K, V of rank 4; score_mod and prob_mod map the scores before and the probabilities after the softmax.
void flex_attention(NodeContext& n) {
  for (size_t i = 0; i < 3; ++i) n.require_rank(i, 4);
  const Shape q = n.shape(0);
  const double scale = n.has_attr("scale")
                           ? n.attr_float("scale", 0)
                           : 1.0 / std::sqrt(static_cast<double>(q[3].require_constant("head size")));
  const DType least = n.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
  n.ignore("softmax_precision");  // ours is never below f32
  const auto modified = [&](ValueId x, std::string_view name) {
    const AttributeProto* a = n.attr(name);
    if (a == nullptr) return x;
    if (!a->g) n.bad("attribute '" + std::string(name) + "'", "a graph", "another type");
    const auto outputs = n.convert_body(*a->g, {n.wrap(x)}, n.context());
    if (outputs.size() != 1) n.bad(std::string(name), "one output", std::to_string(outputs.size()));
    return n.context().materialize(*outputs[0]);
  };
  const ValueId k = repeat_heads(n, n.cast(n.in(1), least), q[1]),
                v = repeat_heads(n, n.cast(n.in(2), least), q[1]);
  const ValueId products =
      n.add(Op::matmul, {n.cast(n.in(0), least), k}, {{"transpose_x", false}, {"transpose_y", true}});
  const ValueId scores = modified(n.add(Op::mul, {products, n.scalar(least, scale)}), "score_mod");
  const ValueId p = modified(n.add(Op::softmax, {scores}, {{"axis", int64_t{-1}}}), "prob_mod");
  n.out(0, n.cast(n.add(Op::matmul, {p, v}, {{"transpose_x", false}, {"transpose_y", false}}), n.dtype(2)));
}

// Caches [B, T, R/2], or [positions, R/2] with position_ids [B, T].
void rotary_embedding(NodeContext& n) {
  const int64_t heads = n.attr_int("num_heads", 0);
  n.ignore("rotary_embedding_dim");  // the caches' width says the same
  const bool flat = n.rank(0) == 3;
  const ValueId x = split_heads(n, n.in(0), heads);
  auto angles = [&](size_t i) {
    ValueId cache = n.in(i);
    if (n.has(3)) cache = n.add(Op::gather, {cache, n.in(3)}, {{"axis", int64_t{0}}});
    Shape s = n.shape_of(cache);
    if (s.size() != 3) n.bad("cos and sin", "[B, T, R/2] after position_ids", to_string(s));
    s.insert(s.begin() + 1, Dim(1));
    return n.reshape(cache, s);
  };
  const ValueId cos = angles(1), sin = angles(2);
  const ValueId y = n.add(Op::rope, {x, cos, sin}, {{"interleaved", n.attr_int("interleaved", 0) != 0}});
  n.out(0, flat ? merge_heads(n, y) : y);
}

}  // namespace

std::vector<OpRule> attention_rules() {
  return {{"Attention", attention},
          {"RotaryEmbedding", rotary_embedding},
          {"FlexAttention", flex_attention, 1, "ai.onnx.preview"}};
}

}  // namespace aicf::onnx
