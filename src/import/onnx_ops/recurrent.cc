// RNN, GRU and LSTM, unrolled over a sequence length known when compiling. Gate order and formulas as in the
// ONNX operator list: W [D, G H, I], R [D, G H, H], B [D, 2 G H].
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

constexpr int64_t kMaxUnrolled = 512;

struct Cell {
  NodeContext& n;
  int64_t gates, hidden;
  std::vector<std::string> activations;  // of one direction
  double clip;
  ValueId w, r, bias_w = kNoValue, bias_r = kNoValue, peephole = kNoValue;
  bool linear_before_reset = false, input_forget = false;

  ValueId add(ValueId a, ValueId b) const { return n.add(Op::add, {a, b}); }
  ValueId mul(ValueId a, ValueId b) const { return n.add(Op::mul, {a, b}); }
  ValueId num(double v) const { return n.scalar(n.dtype_of(w), v); }

  ValueId activate(size_t which, ValueId x) const {
    if (clip > 0) x = n.add(Op::clamp, {x, num(-clip), num(clip)});
    const std::string& name = activations[which];
    if (name == "Sigmoid") return n.add(Op::sigmoid, {x});
    if (name == "Tanh") return n.add(Op::tanh, {x});
    if (name == "Relu") return n.add(Op::relu, {x});
    if (name == "Softplus") return n.add(Op::softplus, {x});
    n.unsupported("activation " + name);
  }

  // Gate g of x W^T or h R^T, both [B, G H].
  ValueId gate(ValueId all, int64_t g) const { return n.slice_axis(all, 1, g * hidden, (g + 1) * hidden); }
  ValueId peep(int64_t g) const { return n.slice_axis(peephole, 0, g * hidden, (g + 1) * hidden); }

  ValueId project(ValueId x, ValueId weights, ValueId bias) const {
    return n.add(Op::linear, {x, weights, bias}, {{"transpose_w", true}});
  }

  ValueId rnn(ValueId x, ValueId h) const {
    return activate(0, add(project(x, w, bias_w), project(h, r, bias_r)));
  }

  ValueId gru(ValueId x, ValueId h) const {
    const ValueId wx = project(x, w, bias_w), rh = project(h, r, bias_r);
    const ValueId z = activate(0, add(gate(wx, 0), gate(rh, 0))),
                  reset = activate(0, add(gate(wx, 1), gate(rh, 1)));
    ValueId inner;
    if (linear_before_reset) {
      inner = mul(reset, gate(rh, 2));
    } else {
      const ValueId r_h = n.slice_axis(r, 0, 2 * hidden, 3 * hidden);
      const ValueId bias = bias_r == kNoValue ? kNoValue : n.slice_axis(bias_r, 0, 2 * hidden, 3 * hidden);
      inner = project(mul(reset, h), r_h, bias);
    }
    const ValueId candidate = activate(1, add(gate(wx, 2), inner));
    return add(mul(n.add(Op::sub, {num(1), z}), candidate), mul(z, h));
  }

  // Gates i, o, f, c; peepholes i, o, f.
  std::pair<ValueId, ValueId> lstm(ValueId x, ValueId h, ValueId c) const {
    const ValueId all = add(project(x, w, bias_w), project(h, r, bias_r));
    auto peeped = [&](int64_t g, ValueId cell) {
      return peephole == kNoValue ? gate(all, g) : add(gate(all, g), mul(peep(g), cell));
    };
    const ValueId i = activate(0, peeped(0, c));
    const ValueId f = input_forget ? n.add(Op::sub, {num(1), i}) : activate(0, peeped(2, c));
    const ValueId next_c = add(mul(f, c), mul(i, activate(1, gate(all, 3))));
    const ValueId o = activate(0, peeped(1, next_c));
    return {mul(o, activate(2, next_c)), next_c};
  }
};

// Slice d of a stacked [D, ...] operand.
ValueId of_direction(NodeContext& n, ValueId x, int64_t d) {
  Shape shape = n.shape_of(x);
  shape.erase(shape.begin());
  return n.reshape(n.slice_axis(x, 0, d, d + 1), shape);
}

struct Layer {
  int64_t gates;
  size_t functions;  // activations per direction
  std::vector<std::string> defaults;
  bool has_cell;
};

struct Run {
  std::vector<ValueId> outputs;  // per step, in time order
  ValueId h, c;
};

// Where a sequence has ended its state stays and its output is zero.
Run run_direction(const Cell& cell, const Layer& layer, ValueId x, int64_t length, bool reverse, ValueId h,
                  ValueId c, ValueId lengths) {
  NodeContext& n = cell.n;
  Run run{std::vector<ValueId>(static_cast<size_t>(length)), h, c};
  for (int64_t k = 0; k < length; ++k) {
    const int64_t t = reverse ? length - 1 - k : k;
    const ValueId step = of_direction(n, x, t);
    ValueId next_h, next_c = run.c;
    if (layer.has_cell) {
      const auto [new_h, new_c] = cell.lstm(step, run.h, run.c);
      next_h = new_h;
      next_c = new_c;
    } else {
      next_h = layer.gates == 3 ? cell.gru(step, run.h) : cell.rnn(step, run.h);
    }
    ValueId output = next_h;
    if (lengths != kNoValue) {
      const ValueId alive = n.add(Op::lt, {n.iscalar(DType::i64, t), lengths});
      output = n.add(Op::select, {alive, next_h, cell.num(0)});
      next_h = n.add(Op::select, {alive, next_h, run.h});
      if (layer.has_cell) next_c = n.add(Op::select, {alive, next_c, run.c});
    }
    run.outputs[static_cast<size_t>(t)] = output;
    run.h = next_h;
    run.c = next_c;
  }
  return run;
}

// Per-direction [B, H] joined as [D, B, H] at axis `axis`.
ValueId join(NodeContext& n, const std::vector<ValueId>& parts, int64_t axis) {
  std::vector<ValueId> thin;
  for (ValueId part : parts) {
    Shape shape = n.shape_of(part);
    shape.insert(shape.begin() + axis, Dim(1));
    thin.push_back(n.reshape(part, shape));
  }
  return n.add(Op::concat, thin, {{"axis", axis}});
}

void recurrent(NodeContext& n, const Layer& layer) {
  const std::string direction = n.attr_str("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    n.unsupported("direction=" + direction);
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  if (n.has_attr("activation_alpha") || n.has_attr("activation_beta"))
    n.unsupported("activation_alpha and activation_beta");
  std::vector<std::string> activations;
  if (const AttributeProto* a = n.attr("activations")) activations = a->strings;
  if (activations.empty())
    for (int64_t d = 0; d < directions; ++d)
      activations.insert(activations.end(), layer.defaults.begin(), layer.defaults.end());
  if (activations.size() != layer.functions * static_cast<size_t>(directions))
    n.bad("activations", "one set per direction", "others");
  for (const auto& [input, rank] :
       {std::pair<size_t, int>{0, 3}, {1, 3}, {2, 3}, {3, 2}, {5, 3}, {6, 3}, {7, 2}})
    if (n.has(input)) n.require_rank(input, rank);
  const int64_t hidden = n.shape(2)[2].require_constant("hidden size");
  n.ignore("hidden_size");  // W and R say the same
  const double clip = n.attr_float("clip", 0);
  const bool batch_first = n.attr_int("layout", 0) != 0;
  const bool linear_before_reset = layer.gates == 3 && n.attr_int("linear_before_reset", 0) != 0;
  const bool input_forget = layer.has_cell && n.attr_int("input_forget", 0) != 0;

  const ValueId x = batch_first ? n.transpose(n.in(0), {1, 0, 2}) : n.in(0);
  const Shape shape = n.shape_of(x);
  const int64_t length = shape[0].require_constant("sequence length of " + n.op_type);
  if (length < 1 || length > kMaxUnrolled) n.unsupported("a sequence length of " + std::to_string(length));
  ValueId lengths = kNoValue;
  if (n.has(4)) lengths = n.reshape(n.cast(n.in(4), DType::i64), {shape[1], Dim(1)});
  const ValueId zero_state = n.broadcast(n.scalar(n.dtype(0), 0), {shape[1], Dim(hidden)});
  auto initial = [&](size_t i, int64_t d) {
    if (!n.has(i)) return zero_state;
    return of_direction(n, batch_first ? n.transpose(n.in(i), {1, 0, 2}) : n.in(i), d);
  };

  std::vector<ValueId> sequences, last_h, last_c;
  for (int64_t d = 0; d < directions; ++d) {
    Cell cell{n, layer.gates, hidden, {}, clip, of_direction(n, n.in(1), d), of_direction(n, n.in(2), d)};
    cell.activations.assign(activations.begin() + d * static_cast<int64_t>(layer.functions),
                            activations.begin() + (d + 1) * static_cast<int64_t>(layer.functions));
    cell.linear_before_reset = linear_before_reset;
    cell.input_forget = input_forget;
    if (n.has(3)) {
      const ValueId bias = of_direction(n, n.in(3), d);
      cell.bias_w = n.slice_axis(bias, 0, 0, layer.gates * hidden);
      cell.bias_r = n.slice_axis(bias, 0, layer.gates * hidden, 2 * layer.gates * hidden);
    }
    if (layer.has_cell && n.has(7)) cell.peephole = of_direction(n, n.in(7), d);
    const bool reverse = direction == "reverse" || d == 1;
    const Run run = run_direction(cell, layer, x, length, reverse, initial(5, d),
                                  layer.has_cell ? initial(6, d) : kNoValue, lengths);
    sequences.push_back(join(n, run.outputs, 0));
    last_h.push_back(run.h);
    last_c.push_back(run.c);
  }
  // Y [T, D, B, H], or [B, T, D, H] with the batch first.
  if (n.wants(0)) {
    const ValueId y = join(n, sequences, 1);
    n.out(0, batch_first ? n.transpose(y, {2, 0, 1, 3}) : y);
  }
  const int64_t at = batch_first ? 1 : 0;
  if (n.wants(1)) n.out(1, join(n, last_h, at));
  if (layer.has_cell && n.wants(2)) n.out(2, join(n, last_c, at));
}

void rnn(NodeContext& n) { recurrent(n, {1, 1, {"Tanh"}, false}); }
void gru(NodeContext& n) { recurrent(n, {3, 2, {"Sigmoid", "Tanh"}, false}); }
void lstm(NodeContext& n) { recurrent(n, {4, 3, {"Sigmoid", "Tanh", "Tanh"}, true}); }

}  // namespace

std::vector<OpRule> recurrent_rules() { return {{"RNN", rnn, 7}, {"GRU", gru, 7}, {"LSTM", lstm, 7}}; }

}  // namespace aicf::onnx
