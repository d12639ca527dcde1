// Ops of linear-attention and state-space decoders: a causal convolution that carries its last positions, and
// the recurrences of linear attention, unrolled over a length known when compiling.
#include <cmath>

#include "import/onnx_ops/heads.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// Unrolling a longer sequence would make a graph nobody wants.
constexpr int64_t kMaxStatefulSteps = 512;

ValueId zeros(NodeContext& n, DType dtype, const Shape& shape) {
  return n.broadcast(n.scalar(dtype, 0), shape);
}

// x [B, C, L], w [C, 1, k], bias [C], past [B, C, k-1]; the state is the last k-1 positions of past and x.
void causal_conv_with_state(NodeContext& n) {
  n.require_rank(0, 3);
  n.require_rank(1, 3);
  const Shape x = n.shape(0), w = n.shape(1);
  const int64_t kernel = w[2].require_constant("kernel of CausalConvWithState"),
                channels = x[1].require_constant("channels of CausalConvWithState");
  if (kernel < 1) n.bad("weight", "a kernel of 1 or more", to_string(w));
  const ValueId past = n.has(3) ? n.in(3) : zeros(n, n.dtype(0), {x[0], x[1], Dim(kernel - 1)});
  const ValueId all = n.add(Op::concat, {past, n.in(0)}, {{"axis", int64_t{2}}});
  ValueId y = n.add(Op::conv, {all, n.in(1), n.in_or_none(2)},
                    {{"strides", std::vector<int64_t>{1}},
                     {"pads", std::vector<int64_t>{0, 0}},
                     {"dilations", std::vector<int64_t>{1}},
                     {"groups", channels}});
  const std::string activation = n.attr_str("activation", "none");
  if (activation == "silu" || activation == "swish") {
    y = n.add(Op::silu, {y});
  } else if (activation != "none") {
    n.bad("activation", "none, silu or swish", activation);
  }
  n.out(0, y);
  if (n.wants(1)) n.out(1, n.slice_axis(all, 2, x[2], x[2] + Dim(kernel - 1)));
}

// Operands of a linear attention as [B, heads, T, D] in f32, and what its update rule has.
struct LinearAttention {
  ValueId q, k, v, decay = kNoValue, beta = kNoValue, state = kNoValue;
};

// [B, T, H D] as [B, H, T, D] in f32.
ValueId unpack(NodeContext& n, size_t input, int64_t heads) {
  n.require_rank(input, 3);
  return split_heads(n, n.cast(n.in(input), DType::f32), heads);
}

LinearAttention read_linear_attention(NodeContext& n, int64_t q_heads, int64_t heads) {
  LinearAttention a{unpack(n, 0, q_heads), unpack(n, 1, heads), unpack(n, 2, heads)};
  const std::string rule = n.attr_str("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta",
             delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") n.bad("update_rule", "linear, gated, delta or gated_delta", rule);
  if (gated != n.has(4) || delta != n.has(5))
    n.bad("decay and beta", "those that update_rule " + rule + " reads", "others");
  if (gated) a.decay = n.add(Op::exp, {n.transpose(unpack(n, 4, heads), {0, 1, 3, 2})});
  if (delta) {
    n.require_rank(5, 3);
    a.beta = unpack(n, 5, n.shape(5)[2] == Dim(1) ? 1 : heads);
  }
  const Shape k = n.shape_of(a.k), v = n.shape_of(a.v);
  a.state = n.has(3) ? n.cast(n.in(3), DType::f32) : zeros(n, DType::f32, {k[0], k[1], k[3], v[3]});
  return a;
}

// S' = e^g S + k (beta (v - (e^g S)^T k))^T with what the rule has; returns q^T S', [B, H, queries per head,
// Dv].
ValueId linear_attention_step(NodeContext& n, LinearAttention& a, int64_t t) {
  const auto at = [&](ValueId x, int64_t axis) { return n.slice_axis(x, axis, t, t + 1); };
  const auto product = [&](ValueId x, ValueId y, bool transpose_x) {
    return n.add(Op::matmul, {x, y}, {{"transpose_x", transpose_x}, {"transpose_y", false}});
  };
  if (a.decay != kNoValue) a.state = n.add(Op::mul, {a.state, at(a.decay, 3)});
  const ValueId k = at(a.k, 2);
  ValueId v = at(a.v, 2);
  if (a.beta != kNoValue)
    v = n.add(Op::mul, {at(a.beta, 2), n.add(Op::sub, {v, product(k, a.state, false)})});
  a.state = n.add(Op::add, {a.state, product(k, v, true)});
  const Shape heads = n.shape_of(a.k), q = n.shape_of(a.q);
  const Shape grouped = {q[0], heads[1], floordiv(q[1], heads[1]), q[3]};
  return product(n.reshape(at(a.q, 2), grouped), a.state, false);
}

void linear_attention(NodeContext& n) {
  n.ignore("chunk_size");  // a hint about speed
  const int64_t q_heads = n.attr_int("q_num_heads"), heads = n.attr_int("kv_num_heads");
  if (heads < 1 || q_heads < 1 || q_heads % heads != 0)
    n.bad("q_num_heads", "a multiple of kv_num_heads", std::to_string(q_heads));
  LinearAttention a = read_linear_attention(n, q_heads, heads);
  const Shape q = n.shape_of(a.q), v = n.shape_of(a.v);
  const int64_t length = q[2].constant().value_or(0);
  if (length < 1 || length > kMaxStatefulSteps)
    n.unsupported("a sequence length that is dynamic, or not in 1 to " + std::to_string(kMaxStatefulSteps));
  double scale = n.attr_float("scale", 0);
  if (scale == 0) scale = 1.0 / std::sqrt(static_cast<double>(q[3].require_constant("head size")));
  std::vector<ValueId> steps;
  for (int64_t t = 0; t < length; ++t)
    steps.push_back(n.reshape(linear_attention_step(n, a, t), {q[0], Dim(1), q[1] * v[3]}));
  const ValueId all = n.add(Op::concat, steps, {{"axis", int64_t{1}}});
  n.out(0, n.cast(n.add(Op::mul, {all, n.scalar(DType::f32, scale)}), n.dtype(0)));
  if (n.wants(1)) n.out(1, n.cast(a.state, n.has(3) ? n.dtype(3) : n.dtype(0)));
}

}  // namespace

std::vector<OpRule> stateful_rules() {
  return {{"CausalConvWithState", causal_conv_with_state}, {"LinearAttention", linear_attention}};
}

}  // namespace aicf::onnx
