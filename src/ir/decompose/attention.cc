// Attention and rotary embedding.
#include <limits>

#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

// Whether query i sees key j but for the mask: with i' = i + Tk and j' = j + Tq, which says i + Tk - Tq and j
// without a size that may be negative, causal keeps j' <= i' and a window w keeps |i' - j'| < w.
ValueId seen_keys(Emitter& e, const Dim& queries, const Dim& keys, bool causal, int64_t window) {
  ValueId i = e.op(Op::iota, {}, {{"shape", Shape{queries, 1}}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
  ValueId j = e.op(Op::iota, {}, {{"shape", Shape{1, keys}}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
  if (!(queries == keys)) {
    i = e.add(i, e.size(keys, DType::i64));
    j = e.add(j, e.size(queries, DType::i64));
  }
  if (window == 0) return e.op(Op::le, {j, i});
  const ValueId width = e.scalar_int(DType::i64, window);
  const ValueId ahead = causal ? e.op(Op::le, {j, i}) : e.op(Op::lt, {e.sub(j, i), width});
  return e.op(Op::bit_and, {ahead, e.op(Op::lt, {e.sub(i, j), width})});
}

ValueId masked(Emitter& e, ValueId scores, ValueId mask, bool causal, int64_t window) {
  const DType dtype = e.dtype(scores);
  const Shape shape = e.shape(scores);
  ValueId keep = kNoValue;
  if (mask != kNoValue && e.dtype(mask) == DType::boolean) {
    keep = mask;
  } else if (mask != kNoValue) {
    scores = e.add(scores, e.widen(mask));
  }
  if (causal || window > 0) {
    const ValueId seen = seen_keys(e, shape[2], shape[3], causal, window);
    keep = keep == kNoValue ? seen : e.op(Op::bit_and, {keep, seen});
  }
  if (keep == kNoValue) return scores;
  return e.select(keep, scores, e.scalar(dtype, -std::numeric_limits<double>::infinity()));
}

struct Softmax {
  ValueId powers, sum;   // weights = powers / sum
  ValueId weights, lse;  // lse: logarithms of the sums of e^score [B, H, Tq, 1], kNoValue unless asked for
};

// Softmax over the last axis where a row of nothing but -infinity gives 0: its maximum is not subtracted, so
// its powers are 0, and its sum is replaced by 1. Any other row has a sum of at least 1, or in tf32 of at
// least 1/2: there a power of two is divided by in place of e^maximum, so that rounding powers is rounding
// e^score.
Softmax softmax_or_zero(Emitter& e, ValueId scores, bool with_lse, bool tf32) {
  const DType dtype = e.dtype(scores);
  ValueId top = e.reduce(Op::reduce_max, scores, {3}, true);
  const ValueId empty = e.op(Op::eq, {top, e.scalar(dtype, -std::numeric_limits<double>::infinity())});
  if (tf32) {
    constexpr double kLog2 = 0.6931471805599453;
    top = e.mul(e.op(Op::ceil, {e.mul(top, e.scalar(dtype, 1 / kLog2))}), e.scalar(dtype, kLog2));
  }
  const ValueId powers = e.exp(e.sub(scores, e.select(empty, e.scalar(dtype, 0), top)));
  const ValueId sum = e.select(empty, e.scalar(dtype, 1), e.reduce(Op::reduce_sum, powers, {3}, true));
  return {powers, sum, e.div(powers, sum), with_lse ? e.add(top, e.op(Op::log, {sum})) : kNoValue};
}

// Both directions of attention start from the probabilities. With grouped heads the queries that share a key
// head are stacked along the row axis, [B, Hk, G Tq, D]: a reshape, where repeating the keys would copy them.
struct Attention {
  Emitter& e;
  Dim batch, heads, kv_heads, queries, keys, rows;
  ValueId q = kNoValue, k = kNoValue, v = kNoValue;  // in f32 for f16 and bf16; q scaled and stacked
  ValueId weights = kNoValue;                        // [B, Hq, Tq, Tk]
  ValueId bend = kNoValue;                           // d capped score / d score; kNoValue: 1
  ValueId lse = kNoValue;                            // [B, Hq, Tq, 1]
  ValueId powers = kNoValue, sum = kNoValue;         // weights = powers / sum
  bool tf32 = false;
  ValueId scale = kNoValue;  // of what q multiplies, in tf32: its digits are those of the operand

  ValueId stack(ValueId x) const {
    const Dim last = e.shape(x)[3];
    return e.reshape(x, {batch, kv_heads, rows, last});
  }
  ValueId unstack(ValueId x) const {
    const Dim last = e.shape(x)[3];
    return e.reshape(x, {batch, heads, queries, last});
  }
  ValueId product(ValueId x, ValueId y, bool transpose_x, bool transpose_y) const {
    return e.op(Op::matmul, {x, y},
                {{"transpose_x", transpose_x}, {"transpose_y", transpose_y}, {"tf32", tf32}});
  }
  ValueId scaled(ValueId x) const { return tf32 ? e.mul(x, scale) : x; }
};

// A softcap c turns scores s into c tanh(s / c), whose derivative is 1 - tanh(s / c)^2.
ValueId capped(Attention& a, ValueId scores, double cap, bool with_bend) {
  if (cap <= 0) return scores;
  Emitter& e = a.e;
  const ValueId limit = e.scalar(e.dtype(scores), cap), one = e.scalar(e.dtype(scores), 1);
  const ValueId bent = e.op(Op::tanh, {e.div(scores, limit)});
  if (with_bend) a.bend = e.mul(e.sub(one, bent), e.add(one, bent));
  return e.mul(bent, limit);
}

Attention attend(Emitter& e, const Node& node, const Values& x, ValueId mask) {
  const Shape q_shape = e.shape(x[0]), k_shape = e.shape(x[1]);
  const bool grouped = !(q_shape[1] == k_shape[1]);
  Attention a = {e, q_shape[0], q_shape[1], k_shape[1], q_shape[2], k_shape[2], q_shape[2]};
  if (grouped) a.rows = floordiv(a.heads, a.kv_heads) * a.queries;
  a.k = e.widen(x[1]);
  a.v = e.widen(x[2]);
  const ValueId q = e.widen(x[0]);
  a.tf32 = node.attrs.get_bool("tf32");
  a.scale = e.scalar(e.dtype(q), node.attrs.get_float("scale"));
  a.q = a.stack(a.tf32 ? q : e.mul(q, a.scale));
  ValueId scores = a.scaled(a.unstack(a.product(a.q, a.k, false, true)));
  scores = capped(a, scores, node.attrs.get_float("softcap"), node.op == Op::attention_backward);
  scores = masked(e, scores, mask, node.attrs.get_bool("causal"), node.attrs.get_int("window"));
  const Softmax softmax = softmax_or_zero(e, scores, node.op == Op::attention_lse, a.tf32);
  a.powers = softmax.powers;
  a.sum = softmax.sum;
  a.weights = softmax.weights;
  a.lse = softmax.lse;
  return a;
}

// In tf32 powers are rounded, not weights.
ValueId weighted_values(const Attention& a, DType dtype) {
  const ValueId sums = a.unstack(a.product(a.stack(a.tf32 ? a.powers : a.weights), a.v, false, false));
  return a.e.cast(a.tf32 ? a.e.div(sums, a.sum) : sums, dtype);
}

}  // namespace

Values decompose_attention(Emitter& e, const Node& node, const Values& x) {
  return {weighted_values(attend(e, node, x, x[3]), e.dtype(x[0]))};
}

Values decompose_attention_lse(Emitter& e, const Node& node, const Values& x) {
  const Attention a = attend(e, node, x, x[3]);
  return {weighted_values(a, e.dtype(x[0])),
          e.cast(e.reshape(a.lse, {a.batch, a.heads, a.queries}), DType::f32)};
}

// With weights P and dP = dout v^T, the gradient of the scores is P (dP - sum(P dP)), whose sum over the keys
// is sum(dout out) (Dao et al. 2022, "FlashAttention", appendix B).
Values decompose_attention_backward(Emitter& e, const Node& node, const Values& x) {
  const Attention a = attend(e, node, x, x[5]);
  const ValueId out = e.widen(x[3]), dout = e.widen(x[4]), dout_rows = a.stack(dout);
  const ValueId along = e.reduce(Op::reduce_sum, e.mul(dout, out), {3}, true);
  const ValueId dweights = a.unstack(a.product(dout_rows, a.v, false, true));
  ValueId dscores = e.mul(a.weights, e.sub(dweights, along));
  if (a.bend != kNoValue) dscores = e.mul(dscores, a.bend);
  dscores = a.stack(dscores);
  const ValueId scale = e.scalar(e.dtype(a.q), node.attrs.get_float("scale"));
  const ValueId dq = e.mul(a.unstack(a.product(dscores, a.k, false, false)), scale);
  const ValueId dk = a.scaled(a.product(dscores, a.q, true, false));
  const ValueId dv = a.product(a.stack(a.weights), dout_rows, true, false);
  const DType dtype = e.dtype(x[0]);
  return {e.cast(dq, dtype), e.cast(dk, dtype), e.cast(dv, dtype)};
}

namespace {

struct Pair {
  ValueId first, second;
};

Pair rotate(Emitter& e, const Pair& x, ValueId cosine, ValueId sine) {
  return {e.sub(e.mul(x.first, cosine), e.mul(x.second, sine)),
          e.add(e.mul(x.second, cosine), e.mul(x.first, sine))};
}

// Rotates the R elements of x's last axis, whose pairs are neighbours.
ValueId rotate_interleaved(Emitter& e, ValueId x, const Dim& pairs, ValueId cosine, ValueId sine) {
  const Shape shape = e.shape(x);
  Shape column = shape, split = shape;
  column.back() = pairs;
  split.back() = pairs;
  split.push_back(2);
  const ValueId paired = e.reshape(x, split);
  const Pair in = {e.reshape(e.slice_last(paired, 0, 1), column),
                   e.reshape(e.slice_last(paired, 1, 2), column)};
  const Pair out = rotate(e, in, cosine, sine);
  split.back() = 1;
  return e.reshape(e.concat_last({e.reshape(out.first, split), e.reshape(out.second, split)}), shape);
}

}  // namespace

Values decompose_rope(Emitter& e, const Node& node, const Values& x) {
  const ValueId wide = e.widen(x[0]), cosine = e.widen(x[1]), sine = e.widen(x[2]);
  const Dim size = e.shape(wide).back(), pairs = e.shape(cosine).back();
  const Dim rotated = pairs * Dim(2);
  Values parts;
  if (node.attrs.get_bool("interleaved")) {
    parts = {rotate_interleaved(e, e.slice_last(wide, 0, rotated), pairs, cosine, sine)};
  } else {
    const Pair out =
        rotate(e, {e.slice_last(wide, 0, pairs), e.slice_last(wide, pairs, rotated)}, cosine, sine);
    parts = {out.first, out.second};
  }
  if (!(rotated == size)) parts.push_back(e.slice_last(wide, rotated, size));
  const ValueId y = parts.size() == 1 ? parts[0] : e.concat_last(parts);
  return {e.cast(y, e.dtype(x[0]))};
}

Values decompose_rope_append(Emitter& e, const Node& node, const Values& x) {
  const auto rotated = [&](ValueId value) { return decompose_rope(e, node, {value, x[3], x[4]})[0]; };
  const Dim batch = e.shape(x[7])[0], rows = e.shape(x[0])[2];
  const ValueId steps =
      e.op(Op::iota, {},
           {{"shape", Shape{Dim(1), Dim(1), rows, Dim(1)}}, {"axis", int64_t{2}}, {"dtype", DType::i64}});
  const ValueId index = e.add(steps, e.reshape(x[7], {batch, Dim(1), Dim(1), Dim(1)}));
  const auto append = [&](ValueId cache, ValueId value) {
    const ValueId at = e.op(Op::broadcast_to, {index}, {{"shape", e.shape(value)}});
    return e.op(Op::scatter_elements, {cache, at, value},
                {{"axis", int64_t{2}}, {"reduction", std::string("none")}});
  };
  return {rotated(x[0]), append(x[5], rotated(x[1])), append(x[6], x[2])};
}

}  // namespace aicf
