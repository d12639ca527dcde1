// RNN, GRU and LSTM: unrolled over a short sequence whose length is known when compiling, else a scan. W [D,
// G H, I], R [D, G H, H], B [D, 2 G H].
#include "import/onnx_ops/recurrent_cell.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

constexpr int64_t kMaxUnrolledSteps = 512;

// Slice d of a stacked [D, ...] operand.
ValueId of_direction(NodeContext& n, ValueId x, int64_t d) {
  Shape shape = n.shape_of(x);
  shape.erase(shape.begin());
  return n.reshape(n.slice_axis(x, 0, d, d + 1), shape);
}

struct Layer {
  int64_t gates;
  std::vector<std::string> defaults;  // activations of a direction
  bool has_cell;
  // W and R are 8-bit numbers [D, I, G H] and [D, H, G H], with scales and zero points at inputs 8 to 11.
  bool quantised = false;
};

// What a direction walks along: x W^T of all steps [T, B, G H], and the lengths of the sequences [B, 1] if
// they differ.
struct Walk {
  ValueId wx, lengths;
  Dim length;
  bool reverse;
};

struct Run {
  ValueId sequence, h, c;  // [T, B, H] in time order, [B, H]
};

struct State {
  ValueId output, h, c;
};

// Step `t`, an i64 scalar. Where a sequence has ended its state stays and its output is zero.
State step(const Cell& cell, bool has_cell, ValueId wx, ValueId h, ValueId c, ValueId t, ValueId lengths) {
  NodeContext& n = cell.n;
  State next{kNoValue, kNoValue, c};
  if (has_cell)
    std::tie(next.h, next.c) = cell.lstm(wx, h, c);
  else
    next.h = cell.gates == 3 ? cell.gru(wx, h) : cell.rnn(wx, h);
  next.output = next.h;
  if (lengths == kNoValue) return next;
  const ValueId alive = n.add(Op::lt, {t, lengths});
  next.output = n.add(Op::select, {alive, next.h, cell.num(0)});
  next.h = n.add(Op::select, {alive, next.h, h});
  if (has_cell) next.c = n.add(Op::select, {alive, next.c, c});
  return next;
}

// Per-direction [B, H] joined as [D, B, H] at axis `axis`.
ValueId join_directions(NodeContext& n, const std::vector<ValueId>& parts, int64_t axis) {
  std::vector<ValueId> thin;
  for (ValueId part : parts) {
    Shape shape = n.shape_of(part);
    shape.insert(shape.begin() + axis, Dim(1));
    thin.push_back(n.reshape(part, shape));
  }
  return n.add(Op::concat, thin, {{"axis", axis}});
}

Run unrolled(const Cell& cell, const Layer& layer, const Walk& walk, int64_t length, ValueId h, ValueId c) {
  NodeContext& n = cell.n;
  std::vector<ValueId> outputs(static_cast<size_t>(length));
  for (int64_t k = 0; k < length; ++k) {
    const int64_t t = walk.reverse ? length - 1 - k : k;
    const State next =
        step(cell, layer.has_cell, of_direction(n, walk.wx, t), h, c, n.iscalar(DType::i64, t), walk.lengths);
    outputs[static_cast<size_t>(t)] = next.output;
    h = next.h;
    c = next.c;
  }
  return {join_directions(n, outputs, 0), h, c};
}

// Carried: h, c, then what stays the same; walked: the rows of `wx`, the number of the step.
Run scanned(const Cell& cell, const Layer& layer, const Walk& walk, ValueId h, ValueId c) {
  NodeContext& n = cell.n;
  const auto turned = [&](ValueId x) {
    return walk.reverse ? n.add(Op::reverse, {x}, {{"axes", std::vector<int64_t>{0}}}) : x;
  };
  GraphContext context(n.context().program(), "body", &n.context());
  NodeContext body(context, n.proto(), {}, {}, n.opset(), {});
  Graph& graph = body.graph();
  std::vector<ValueId> operands, kept;
  const auto add_input = [&](const TensorType& type) {
    return graph.add_input("in" + std::to_string(graph.inputs().size()), type);
  };
  const auto carry = [&](ValueId outer) {
    if (outer == kNoValue) return kNoValue;
    operands.push_back(outer);
    return add_input(n.graph().type(outer));
  };
  const auto keep = [&](ValueId outer) {
    const ValueId inner = carry(outer);
    if (inner != kNoValue) kept.push_back(inner);
    return inner;
  };
  const auto walk_along = [&](ValueId outer) {
    operands.push_back(outer);
    TensorType row = n.graph().type(outer);
    row.shape.erase(row.shape.begin());
    return add_input(row);
  };
  const ValueId h_in = carry(h), c_in = carry(c);
  const Cell inside{body,
                    cell.gates,
                    cell.hidden,
                    cell.activations,
                    cell.clip,
                    cell.linear_before_reset,
                    cell.input_forget,
                    {keep(cell.r.values), keep(cell.r.scale), keep(cell.r.zero)},
                    keep(cell.bias_r),
                    keep(cell.peephole)};
  const ValueId lengths = keep(walk.lengths);
  const auto carried = static_cast<int64_t>(operands.size());
  const ValueId wx = walk_along(turned(walk.wx));
  const ValueId t = walk_along(turned(
      n.add(Op::iota, {}, {{"shape", Shape{walk.length}}, {"axis", int64_t{0}}, {"dtype", DType::i64}})));

  const State next = step(inside, layer.has_cell, wx, h_in, c_in, t, lengths);
  std::vector<ValueId> results = {next.h};
  if (layer.has_cell) results.push_back(next.c);
  results.insert(results.end(), kept.begin(), kept.end());
  results.push_back(next.output);
  for (ValueId id : results) graph.add_output(id, "out" + std::to_string(graph.outputs().size()));
  const NodeId node =
      n.graph().add_node(Op::scan, operands, {{"carried", carried}, {"reverse", false}}, {graph}, n.origin());
  const std::vector<ValueId> values = n.graph().node(node).results;
  return {turned(values.back()), values[0], layer.has_cell ? values[1] : kNoValue};
}

// A node: what its attributes say, and the operands that all directions share.
struct Recurrence {
  const Layer& layer;
  int64_t directions = 1, hidden = 0;
  bool reverse = false;                      // the first direction
  std::vector<Activation> activations = {};  // of one direction after the other
  double clip = 0;
  bool batch_first = false, linear_before_reset = false, input_forget = false;
  ValueId x = kNoValue, lengths = kNoValue, zero_state = kNoValue;  // [T, B, I], [B, 1], [B, H]
};

void read_direction(NodeContext& n, Recurrence& r) {
  const std::string direction = n.attr_str("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    n.unsupported("direction=" + direction);
  r.directions = direction == "bidirectional" ? 2 : 1;
  r.reverse = direction == "reverse";
}

std::vector<Activation> activations_of(NodeContext& n, const Recurrence& r) {
  std::vector<std::string> defaults;
  for (int64_t d = 0; d < r.directions; ++d)
    defaults.insert(defaults.end(), r.layer.defaults.begin(), r.layer.defaults.end());
  std::vector<Activation> activations = read_activations(n, defaults);
  if (activations.size() < defaults.size())
    n.bad("activations", std::to_string(defaults.size()) + " names", std::to_string(activations.size()));
  activations.resize(defaults.size());  // onnxruntime's optimizer writes those of two directions for one
  return activations;
}

void check_ranks(NodeContext& n, const Layer& layer) {
  if (layer.quantised)
    for (const size_t input : {size_t{8}, size_t{10}})
      if (n.rank(input) != 1) n.require_rank(input, 2);
  for (const auto& [input, rank] :
       {std::pair<size_t, int>{0, 3}, {1, 3}, {2, 3}, {3, 2}, {5, 3}, {6, 3}, {7, 2}})
    if (n.has(input)) n.require_rank(input, rank);
}

Recurrence read_recurrence(NodeContext& n, const Layer& layer) {
  Recurrence r{layer};
  read_direction(n, r);
  r.activations = activations_of(n, r);
  check_ranks(n, layer);
  r.hidden = n.shape(2)[layer.quantised ? 1 : 2].require_constant("hidden size");
  n.ignore("hidden_size");  // W and R say the same
  r.clip = n.attr_float("clip", 0);
  r.batch_first = n.attr_int("layout", 0) != 0;
  r.linear_before_reset = layer.gates == 3 && n.attr_int("linear_before_reset", 0) != 0;
  r.input_forget = layer.has_cell && n.attr_int("input_forget", 0) != 0;
  r.x = r.batch_first ? n.transpose(n.in(0), {1, 0, 2}) : n.in(0);
  const Shape shape = n.shape_of(r.x);
  const auto length = shape[0].constant();
  if (length && *length < 1) n.unsupported("a sequence length of " + std::to_string(*length));
  if (n.has(4)) r.lengths = n.reshape(n.cast(n.in(4), DType::i64), {shape[1], Dim(1)});
  r.zero_state = n.broadcast(n.scalar(n.dtype(0), 0), {shape[1], Dim(r.hidden)});
  return r;
}

// W or R of a direction, at input `i`; its scale at input `scale`, its zero point behind.
GateWeights weights_of(NodeContext& n, const Layer& layer, size_t i, size_t scale, int64_t d) {
  GateWeights w{of_direction(n, n.in(i), d)};
  if (!layer.quantised) return w;
  w.scale = of_direction(n, n.in(scale), d);
  if (n.has(scale + 1)) w.zero = of_direction(n, n.in(scale + 1), d);
  return w;
}

Run run_direction(NodeContext& n, const Recurrence& r, int64_t d) {
  const Layer& layer = r.layer;
  Cell cell{n,      layer.gates,           r.hidden,       {},
            r.clip, r.linear_before_reset, r.input_forget, weights_of(n, layer, 2, 10, d)};
  const auto functions = static_cast<std::ptrdiff_t>(layer.defaults.size());
  cell.activations.assign(r.activations.begin() + d * functions, r.activations.begin() + (d + 1) * functions);
  ValueId bias_w = kNoValue;
  if (n.has(3)) {
    const ValueId bias = of_direction(n, n.in(3), d);
    bias_w = n.slice_axis(bias, 0, 0, layer.gates * r.hidden);
    cell.bias_r = n.slice_axis(bias, 0, layer.gates * r.hidden, 2 * layer.gates * r.hidden);
  }
  if (layer.has_cell && n.has(7)) cell.peephole = of_direction(n, n.in(7), d);
  const Walk walk{cell.project(r.x, weights_of(n, layer, 1, 8, d), bias_w), r.lengths, n.shape_of(r.x)[0],
                  r.reverse || d == 1};
  const auto initial = [&](size_t i) {
    if (!n.has(i)) return r.zero_state;
    return of_direction(n, r.batch_first ? n.transpose(n.in(i), {1, 0, 2}) : n.in(i), d);
  };
  const ValueId h = initial(5), c = layer.has_cell ? initial(6) : kNoValue;
  const auto length = walk.length.constant();
  return length && *length <= kMaxUnrolledSteps ? unrolled(cell, layer, walk, *length, h, c)
                                                : scanned(cell, layer, walk, h, c);
}

void recurrent(NodeContext& n, const Layer& layer) {
  const Recurrence r = read_recurrence(n, layer);
  std::vector<ValueId> sequences, last_h, last_c;
  for (int64_t d = 0; d < r.directions; ++d) {
    const Run run = run_direction(n, r, d);
    sequences.push_back(run.sequence);
    last_h.push_back(run.h);
    last_c.push_back(run.c);
  }
  // Y [T, D, B, H], or [B, T, D, H] with the batch first.
  if (n.wants(0)) {
    const ValueId y = join_directions(n, sequences, 1);
    n.out(0, r.batch_first ? n.transpose(y, {2, 0, 1, 3}) : y);
  }
  const int64_t at = r.batch_first ? 1 : 0;
  if (n.wants(1)) n.out(1, join_directions(n, last_h, at));
  if (layer.has_cell && n.wants(2)) n.out(2, join_directions(n, last_c, at));
}

void rnn(NodeContext& n) { recurrent(n, {1, {"Tanh"}, false}); }
void gru(NodeContext& n) { recurrent(n, {3, {"Sigmoid", "Tanh"}, false}); }
void lstm(NodeContext& n) { recurrent(n, {4, {"Sigmoid", "Tanh", "Tanh"}, true}); }
void quantised_lstm(NodeContext& n) { recurrent(n, {4, {"Sigmoid", "Tanh", "Tanh"}, true, true}); }

}  // namespace

std::vector<OpRule> recurrent_rules() {
  return {{"RNN", rnn, 7},
          {"GRU", gru, 7},
          {"LSTM", lstm, 7},
          {"DynamicQuantizeLSTM", quantised_lstm, 1, kContrib}};
}

}  // namespace aicf::onnx
