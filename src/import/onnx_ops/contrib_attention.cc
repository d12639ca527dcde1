// Domain com.microsoft: attention as onnxruntime's optimizers and model builders write it. Formulas are those
// of its ContribOperators.md. A past is concatenated in front of keys and values, or, for
// GroupQueryAttention, ends where the lengths say.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "import/onnx_ops/heads.h"
#include "import/onnx_ops/quant.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

constexpr size_t kNoInput = SIZE_MAX;

struct Heads {
  ValueId q, k, v;  // [B, H, S, D]
};

ValueId index_along(NodeContext& n, const Shape& shape, int64_t axis) {
  return n.add(Op::iota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", DType::i64}});
}

// The mask of keys as something to add to scores [B, H, S, T]: 0, or mask_filter_value where they are hidden.
// Forms: lengths [B], keys [B, T], scores [B, S, T].
ValueId additive_mask(NodeContext& n, size_t i, const Dim& batch, const Dim& keys, DType dtype) {
  const double hidden = n.attr_float("mask_filter_value", -10000.0);
  if (!n.has(i)) return kNoValue;
  const Shape s = n.shape(i);
  ValueId kept = kNoValue;
  if (s.size() == 1 && s[0] == batch) {
    const ValueId length = n.reshape(n.cast(n.in(i), DType::i64), {batch, Dim(1)});
    kept =
        n.reshape(n.add(Op::lt, {index_along(n, {Dim(1), keys}, 1), length}), {batch, Dim(1), Dim(1), keys});
  } else if (s.size() == 2 || s.size() == 3) {
    const ValueId seen = n.add(Op::ne, {n.in(i), n.iscalar(n.dtype(i), 0)});
    kept =
        n.reshape(seen, s.size() == 2 ? Shape{s[0], Dim(1), Dim(1), s[1]} : Shape{s[0], Dim(1), s[1], s[2]});
  } else {
    n.unsupported("a mask of shape " + to_string(s));
  }
  return n.add(Op::select, {kept, n.scalar(dtype, 0), n.scalar(dtype, hidden)});
}

double scale_of(NodeContext& n, const Dim& head_size) {
  const double given = n.attr_float("scale", 0.0);
  return given != 0.0 ? given : 1.0 / std::sqrt(static_cast<double>(head_size.require_constant("head size")));
}

void attend(NodeContext& n, const Heads& h, size_t mask_input, size_t bias_input, bool has_past) {
  const Shape q = n.shape_of(h.q);
  const Dim keys = n.shape_of(h.k)[2];
  const DType dtype = n.dtype_of(h.q);
  ValueId mask = additive_mask(n, mask_input, q[0], keys, dtype);
  if (bias_input != kNoInput && n.has(bias_input))
    mask = mask == kNoValue ? n.in(bias_input) : n.add(Op::add, {mask, n.in(bias_input)});
  const bool causal = n.attr_int("unidirectional", 0) != 0;
  if (causal && !has_past && q[2] != keys) n.unsupported("unidirectional with more keys than queries");
  n.out(0, merge_heads(n, n.add(Op::attention, {h.q, h.k, h.v, mask},
                                {{"scale", scale_of(n, q[3])}, {"causal", causal}})));
}

void refuse(NodeContext& n, std::initializer_list<const char*> attributes) {
  for (const char* name : attributes)
    if (n.attr_int(name, 0) != 0) n.unsupported(std::string(name) + "=1");
}

ValueId join(NodeContext& n, ValueId past, ValueId present) {
  return n.add(Op::concat, {past, present}, {{"axis", int64_t{2}}});
}

// One of the tensors stacked along `axis` of x, which goes away.
ValueId part_of(NodeContext& n, ValueId x, size_t axis, int64_t index) {
  Shape shape = n.shape_of(x);
  const ValueId part = n.slice_axis(x, static_cast<int64_t>(axis), Dim(index), Dim(index + 1));
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return n.reshape(part, shape);
}

// Past and present keys and values in one tensor [2, B, H, T, D].
void add_stacked_past(NodeContext& n, Heads& h, size_t past_input) {
  if (n.has(past_input)) {
    n.require_rank(past_input, 5);
    if (n.shape(past_input)[0] != Dim(2))
      n.bad("past", "keys and values, [2, …]", to_string(n.shape(past_input)));
    h.k = join(n, part_of(n, n.in(past_input), 0, 0), h.k);
    h.v = join(n, part_of(n, n.in(past_input), 0, 1), h.v);
  }
  if (!n.wants(1)) return;
  const auto thin = [&](ValueId x) {
    Shape shape = n.shape_of(x);
    shape.insert(shape.begin(), Dim(1));
    return n.reshape(x, shape);
  };
  n.out(1, n.add(Op::concat, {thin(h.k), thin(h.v)}, {{"axis", int64_t{0}}}));
}

// Q, K and V side by side in the columns of [B, S, Q + K + V], which have these sizes.
Heads split_columns(NodeContext& n, ValueId all, const std::vector<int64_t>& sizes,
                    const std::vector<int64_t>& heads) {
  int64_t first = 0;
  const auto part = [&](size_t i) {
    if (heads[i] < 1 || sizes[i] % heads[i] != 0)
      n.bad("hidden size", "a multiple of the number of heads", std::to_string(sizes[i]));
    const ValueId columns = n.slice_axis(all, 2, Dim(first), Dim(first + sizes[i]));
    first += sizes[i];
    return split_heads(n, columns, heads[i]);
  };
  const ValueId q = part(0), k = part(1), v = part(2);
  return {q, k, v};
}

// Where the operands of a self-attention stand among the inputs of its node.
struct PackedInputs {
  size_t mask, bias, past;
};

// By `all` [B, S, Q + K + V], the product of x and the weights of all three.
void attend_packed(NodeContext& n, ValueId all, const PackedInputs& inputs) {
  const int64_t heads = n.attr_int("num_heads");
  const int64_t columns = n.shape_of(all)[2].require_constant("columns of the weights of Attention");
  const std::vector<int64_t> sizes = n.attr_ints("qkv_hidden_sizes", {columns / 3, columns / 3, columns / 3});
  const bool fit =
      std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size >= 0 && size <= columns; });
  if (heads < 1 || sizes.size() != 3 || !fit || sizes[0] + sizes[1] + sizes[2] != columns)
    n.bad("weights", "as many columns as Q, K and V have together", std::to_string(columns));
  Heads h = split_columns(n, all, sizes, {heads, heads, heads});
  add_stacked_past(n, h, inputs.past);
  attend(n, h, inputs.mask, inputs.bias, n.has(inputs.past));
}

// Self-attention of x [B, S, I] by weights [I, Q + K + V] of all three.
void packed_attention(NodeContext& n) {
  refuse(n, {"do_rotary", "past_present_share_buffer", "rotary_embedding_dim"});
  if (n.has(6)) n.unsupported("a past in a buffer that is shared with the present");
  n.require_rank(0, 3);
  n.require_rank(1, 2);
  const ValueId all = n.add(Op::linear, {n.in(0), n.in(1), n.in_or_none(2)}, {{"transpose_w", false}});
  attend_packed(n, all, {3, 5, 4});
}

// The same of 8-bit x and weights; the scale and zero point of the weights may be vectors over their columns.
// Inputs x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past.
void quantised_attention(NodeContext& n) {
  refuse(n, {"do_rotary", "past_present_share_buffer"});
  n.require_rank(0, 3);
  n.require_rank(1, 2);
  const ValueId product = integer_matmul(n, n.in(0), n.in_or_none(6), n.in(1), n.in_or_none(7));
  const ValueId scale = n.add(Op::mul, {n.reshape(n.in(3), {}), n.in(4)});
  const ValueId scaled = n.add(Op::mul, {n.cast(product, n.dtype(3)), scale});
  attend_packed(n, n.add(Op::add, {scaled, n.in(2)}), {5, kNoInput, 8});
}

// Q, K and V [B, T, H D] apart, or K and V as [B, H, T, D], or packed as [B, T, H, 3, D], or K and V packed
// as [B, T, H, 2, D]; one bias for the three.
void multi_head_attention(NodeContext& n) {
  if (n.has(8) || n.has(9)) n.unsupported("a past in a buffer that is shared with the present");
  const int64_t heads = n.attr_int("num_heads");
  const auto unpacked = [&](size_t input, int64_t index) {
    const Shape& s = n.shape(input);
    if (s[2] != Dim(heads) || s[3] != Dim(input == 0 ? 3 : 2))
      n.bad("packed operands", "[B, T, num_heads, " + std::string(input == 0 ? "3" : "2") + ", D]",
            to_string(s));
    return n.transpose(part_of(n, n.in(input), 3, index), {0, 2, 1, 3});
  };
  int64_t first = 0;
  const auto apart = [&](size_t i) {
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
  if (n.has(3)) n.require_rank(3, 1);
  Heads h{};
  const bool all_packed = n.rank(0) == 5, kv_packed = !all_packed && n.has(1) && !n.has(2) && n.rank(1) == 5;
  if ((all_packed || kv_packed) && n.has(3)) n.unsupported("a bias beside packed keys");
  if (all_packed) {
    h = {unpacked(0, 0), unpacked(0, 1), unpacked(0, 2)};
  } else if (kv_packed) {
    h = {apart(0), unpacked(1, 0), unpacked(1, 1)};
  } else {
    if (!n.has(1) || !n.has(2) || n.rank(0) != 3)
      n.unsupported("Q, K and V of shape " + to_string(n.shape(0)));
    h.q = apart(0);
    h.k = apart(1);
    h.v = apart(2);
  }
  if (n.has(3) && n.shape(3)[0] != Dim(first))
    n.bad("bias", "as long as Q, K and V are wide, " + std::to_string(first), to_string(n.shape(3)));
  if (n.has(6) != n.has(7)) n.bad("past", "both keys and values", "one of them");
  if (n.has(6)) h.k = join(n, n.in(6), h.k);
  if (n.has(7)) h.v = join(n, n.in(7), h.v);
  if (n.wants(1)) n.out(1, h.k);
  if (n.wants(2)) n.out(2, h.v);
  attend(n, h, 4, 5, n.has(6));
}

// Rows of the caches at `positions` [B or 1, S] as [B or 1, 1, S, R/2].
ValueId angles(NodeContext& n, size_t cache, ValueId positions) {
  n.require_rank(cache, 2);
  const ValueId rows = n.add(Op::gather, {n.in(cache), positions}, {{"axis", int64_t{0}}});
  Shape s = n.shape_of(rows);
  s.insert(s.begin() + 1, Dim(1));
  return n.reshape(rows, s);
}

// x [B, S, H D] or [B, H, S, D]; position_ids [B, S], or [1]: the first of consecutive ones.
void contrib_rotary_embedding(NodeContext& n) {
  refuse(n, {"is_packed_batching"});
  if (n.attr_float("scale", 1.0) != 1.0) n.unsupported("a scale");
  n.require_rank(2, 2);
  const int64_t width = n.attr_int("rotary_embedding_dim", 0);  // otherwise the caches' width says it
  int64_t heads = n.attr_int("num_heads", 0);
  const bool flat = n.rank(0) == 3;
  if (flat && heads == 0) {
    if (width != 0) n.bad("num_heads", "given beside rotary_embedding_dim", "nothing");
    const int64_t size = 2 * n.shape(2)[1].require_constant("columns of cos_cache");
    heads = n.shape(0)[2].require_constant("hidden size of RotaryEmbedding") / std::max<int64_t>(size, 1);
  }
  const ValueId x = split_heads(n, n.in(0), heads);
  const Dim steps = n.shape_of(x)[2];
  ValueId positions = n.cast(n.in(1), DType::i64);
  if (n.rank(1) == 1) positions = n.add(Op::add, {index_along(n, {Dim(1), steps}, 1), positions});
  const ValueId y = n.add(Op::rope, {x, angles(n, 2, positions), angles(n, 3, positions)},
                          {{"interleaved", n.attr_int("interleaved", 0) != 0}});
  n.out(0, flat ? merge_heads(n, y) : y);
}

// What a GroupQueryAttention knows of its sequences.
struct Cached {
  ValueId length;     // rows in use after this call, [B, 1] of i64
  ValueId past;       // and before it
  ValueId positions;  // [B, S] of the new rows
  Dim capacity;       // rows of the present cache
  bool is_prompt;     // nothing is past and the new rows fill the cache: row i is position i
};

Cached read_cached(NodeContext& n, const Shape& q) {
  if (n.has(3) != n.has(4)) n.bad("past", "both keys and values", "one of them");
  if (n.has(3)) n.require_rank(3, 4);
  const Dim& steps = q[2];
  const Dim total = n.require_size(6, "total_sequence_length");
  const auto number = [&](int64_t value) { return n.iscalar(DType::i64, value); };
  Cached c;
  c.length = n.add(Op::add, {n.reshape(n.cast(n.in(5), DType::i64), {q[0], Dim(1)}), number(1)});
  // A prompt may be padded behind: then a length is below the number of steps, and nothing is past.
  const ValueId before = n.add(Op::sub, {c.length, n.size_scalar(steps, DType::i64)});
  c.past = n.add(Op::max, {before, number(0)});
  c.positions = n.add(Op::add, {index_along(n, {Dim(1), steps}, 1), c.past});
  const Dim held = n.has(3) ? n.shape(3)[2] : Dim(0);
  const Interval grown = n.bounds_of(total - held);
  c.capacity = grown.lo >= 0 ? total : grown.hi <= 0 ? held : max(total, held);
  c.is_prompt = held == Dim(0) && c.capacity == steps;
  return c;
}

// The rows of x [B, Hk, T, D] at places [B or 1, T] below `end` [B, 1], zeros elsewhere.
ValueId rows_below(NodeContext& n, ValueId x, ValueId places, ValueId end) {
  const ValueId kept = n.add(Op::lt, {places, end});
  const Shape s = n.shape_of(kept);
  return n.add(Op::select, {n.reshape(kept, {s[0], Dim(1), s[1], Dim(1)}), x, n.scalar(n.dtype_of(x), 0)});
}

// The cache at its capacity: the past of each sequence, the new rows behind it, and zeros.
ValueId present(NodeContext& n, const Cached& c, size_t past_input, ValueId rows) {
  const Shape r = n.shape_of(rows);
  const ValueId zero = n.scalar(n.dtype_of(rows), 0);
  ValueId cache = n.broadcast(zero, {r[0], r[1], c.capacity, r[3]});
  if (n.has(past_input)) {
    n.require_rank(past_input, 4);
    const Dim held = n.shape(past_input)[2];
    std::vector<Dim> low(4, Dim(0)), high = low;
    high[2] = c.capacity - held;
    cache = rows_below(n, n.in(past_input), index_along(n, {Dim(1), held}, 1), c.past);
    if (!(high[2] == Dim(0)))
      cache =
          n.add(Op::pad, {cache, zero}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  }
  const Shape p = n.shape_of(c.positions);
  const ValueId index = n.broadcast(n.reshape(c.positions, {p[0], Dim(1), p[1], Dim(1)}), r);
  return n.add(Op::scatter_elements, {cache, index, rows_below(n, rows, c.positions, c.length)},
               {{"axis", int64_t{2}}, {"reduction", std::string("none")}});
}

// Key j is seen by the query at position p if p - window < j <= p.
ValueId seen_keys(NodeContext& n, const Cached& c, const Dim& keys, int64_t window) {
  const Shape p = n.shape_of(c.positions);
  const ValueId query = n.reshape(c.positions, {p[0], Dim(1), p[1], Dim(1)});
  const ValueId key = index_along(n, {Dim(1), Dim(1), Dim(1), keys}, 3);
  const ValueId before = n.add(Op::le, {key, query});
  if (window < 0) return before;
  const ValueId reach = n.add(Op::sub, {query, n.iscalar(DType::i64, window)});
  return n.add(Op::bit_and, {before, n.add(Op::gt, {key, reach})});
}

// Q [B, S, Hq D], K and V [B, S, Hk D], or all three side by side in the first; caches [B, Hk, T, D].
void group_query_attention(NodeContext& n) {
  refuse(n, {"smooth_softmax", "qk_output", "kv_cache_bit_width", "sliding_window_cache"});
  for (const char* name : {"k_quant_type", "v_quant_type"})
    if (const std::string type = n.attr_str(name, "NONE"); type != "NONE") n.unsupported(name + ("=" + type));
  if (n.attr_int("causal", 1) == 0) n.unsupported("causal=0");
  n.ignore("qk_norm_epsilon");  // of inputs 14 and 15, which are refused
  for (size_t i = 11; i < 16; ++i)
    if (n.has(i)) n.unsupported("input " + std::to_string(i));
  n.require_rank(0, 3);
  const int64_t heads = n.attr_int("num_heads"), kv_heads = n.attr_int("kv_num_heads");
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
    n.bad("num_heads", "a multiple of kv_num_heads", std::to_string(heads));
  Heads h{};
  if (n.has(1)) {
    h = {split_heads(n, n.in(0), heads), split_heads(n, n.in(1), kv_heads),
         split_heads(n, n.in(2), kv_heads)};
  } else {
    const int64_t columns = n.shape(0)[2].require_constant("columns of packed Q, K and V");
    if (heads > columns || kv_heads > columns || columns % (heads + 2 * kv_heads) != 0)
      n.bad("packed Q, K and V", "columns for num_heads + 2 · kv_num_heads heads of one size",
            std::to_string(columns));
    const int64_t size = columns / (heads + 2 * kv_heads);
    h = split_columns(n, n.in(0), {heads * size, kv_heads * size, kv_heads * size},
                      {heads, kv_heads, kv_heads});
  }
  const Shape q = n.shape_of(h.q);
  const Cached cached = read_cached(n, q);
  const bool interleaved = n.attr_int("rotary_interleaved", 0) != 0;
  if (n.attr_int("do_rotary", 0) != 0) {
    const ValueId at = n.has(9) ? n.cast(n.in(9), DType::i64) : cached.positions;
    const ValueId cos = angles(n, 7, at), sin = angles(n, 8, at);
    h.q = n.add(Op::rope, {h.q, cos, sin}, {{"interleaved", interleaved}});
    h.k = n.add(Op::rope, {h.k, cos, sin}, {{"interleaved", interleaved}});
  } else {
    for (size_t i = 7; i < 10; ++i) n.ignore_input(i);
  }
  const ValueId k = present(n, cached, 3, h.k), v = present(n, cached, 4, h.v);
  if (n.wants(1)) n.out(1, k);
  if (n.wants(2)) n.out(2, v);
  const DType dtype = n.dtype_of(h.q);
  const int64_t window = n.attr_int("local_window_size", -1);
  if (window == 0) n.bad("local_window_size", "-1 (none) or a positive number of keys", "0");
  // Of a prompt the op itself says which keys are seen, and kernels leave out the others.
  ValueId mask = cached.is_prompt ? n.in_or_none(10) : seen_keys(n, cached, cached.capacity, window);
  if (n.has(10) && !cached.is_prompt) {
    const ValueId hidden = n.scalar(dtype, -INFINITY);
    mask = n.add(Op::select, {mask, n.scalar(dtype, 0), hidden});
    mask = n.add(Op::add, {mask, n.in(10)});
  }
  n.out(0, merge_heads(n, n.add(Op::attention, {h.q, k, v, mask},
                                {{"scale", scale_of(n, q[3])},
                                 {"causal", cached.is_prompt},
                                 {"softcap", n.attr_float("softcap", 0.0)},
                                 {"window", cached.is_prompt ? std::max<int64_t>(window, 0) : 0}})));
}

}  // namespace

std::vector<OpRule> contrib_attention_rules() {
  return {
      {"Attention", packed_attention, 1, kContrib},
      {"QAttention", quantised_attention, 1, kContrib},
      {"MultiHeadAttention", multi_head_attention, 1, kContrib},
      {"GroupQueryAttention", group_query_attention, 1, kContrib},
      {"RotaryEmbedding", contrib_rotary_embedding, 1, kContrib},
  };
}

}  // namespace aicf::onnx
