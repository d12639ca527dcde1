// Attention and rotary embedding.
#include <limits>

#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

// Key j is kept for query i where j + Tq <= i + Tk, which says j <= i + Tk - Tq without a size that may be
// negative.
ValueId causal_mask(Emitter& e, const Dim& queries, const Dim& keys) {
  ValueId i = e.op(Op::iota, {}, {{"shape", Shape{queries, 1}}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
  ValueId j = e.op(Op::iota, {}, {{"shape", Shape{1, keys}}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
  if (!(queries == keys)) {
    i = e.add(i, e.size(keys, DType::i64));
    j = e.add(j, e.size(queries, DType::i64));
  }
  return e.op(Op::le, {j, i});
}

ValueId capped(Emitter& e, ValueId scores, double cap) {
  if (cap <= 0) return scores;
  const ValueId limit = e.scalar(e.dtype(scores), cap);
  return e.mul(e.op(Op::tanh, {e.div(scores, limit)}), limit);
}

ValueId masked(Emitter& e, ValueId scores, ValueId mask, bool causal) {
  const DType dtype = e.dtype(scores);
  const Shape shape = e.shape(scores);
  ValueId keep = kNoValue;
  if (mask != kNoValue && e.dtype(mask) == DType::boolean) {
    keep = mask;
  } else if (mask != kNoValue) {
    scores = e.add(scores, e.widen(mask));
  }
  if (causal) {
    const ValueId past = causal_mask(e, shape[2], shape[3]);
    keep = keep == kNoValue ? past : e.op(Op::bit_and, {keep, past});
  }
  if (keep == kNoValue) return scores;
  return e.select(keep, scores, e.scalar(dtype, -std::numeric_limits<double>::infinity()));
}

// Softmax over the last axis where a row of nothing but -infinity gives 0: its maximum is not subtracted, so
// its powers are 0, and its sum is replaced by 1. Any other row has a sum of at least 1.
ValueId softmax_or_zero(Emitter& e, ValueId scores) {
  const DType dtype = e.dtype(scores);
  const ValueId top = e.reduce(Op::reduce_max, scores, {3}, true);
  const ValueId empty = e.op(Op::eq, {top, e.scalar(dtype, -std::numeric_limits<double>::infinity())});
  const ValueId powers = e.exp(e.sub(scores, e.select(empty, e.scalar(dtype, 0), top)));
  const ValueId sum = e.reduce(Op::reduce_sum, powers, {3}, true);
  return e.div(powers, e.select(empty, e.scalar(dtype, 1), sum));
}

}  // namespace

// With grouped heads the queries that share a key head are stacked along the row axis, [B, Hk, G Tq, D]: a
// reshape, where repeating the keys would copy them.
Values decompose_attention(Emitter& e, const Node& node, const Values& x) {
  ValueId q = e.widen(x[0]);
  const ValueId k = e.widen(x[1]), v = e.widen(x[2]);
  const Shape q_shape = e.shape(q), k_shape = e.shape(k);
  const Dim batch = q_shape[0], heads = q_shape[1], queries = q_shape[2], keys = k_shape[2],
            kv_heads = k_shape[1];
  const bool grouped = !(heads == kv_heads);
  const Dim rows = grouped ? floordiv(heads, kv_heads) * queries : queries;

  q = e.mul(q, e.scalar(e.dtype(q), node.attrs.get_float("scale")));
  if (grouped) q = e.reshape(q, {batch, kv_heads, rows, q_shape[3]});
  ValueId scores = e.op(Op::matmul, {q, k}, {{"transpose_y", true}});
  if (grouped) scores = e.reshape(scores, {batch, heads, queries, keys});
  scores = capped(e, scores, node.attrs.get_float("softcap"));
  scores = masked(e, scores, x[3], node.attrs.get_bool("causal"));
  ValueId weights = softmax_or_zero(e, scores);
  if (grouped) weights = e.reshape(weights, {batch, kv_heads, rows, keys});
  ValueId y = e.op(Op::matmul, {weights, v});
  const Dim v_size = e.shape(v)[3];
  if (grouped) y = e.reshape(y, {batch, heads, queries, v_size});
  return {e.cast(y, e.dtype(x[0]))};
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

}  // namespace aicf
