// Decompose cases of recurrent layers and their gradients.
#include "ir/recurrent.h"
#include "ir/testing/decompose_operands.h"

namespace aicf::testing {
namespace {

struct Layer {
  std::string cell, direction;
  bool bias, keep;
  int64_t length;
};

Attrs attrs_of(const Layer& layer) { return {{"cell", layer.cell}, {"direction", layer.direction}}; }

// Batch 2, five units.
void add_layer(std::vector<DecomposeCase>& cases, const Layer& layer, bool symbolic) {
  Attrs attrs = attrs_of(layer);
  const int64_t directions = direction_count(attrs), units = 5;
  const RecurrentCell cell = recurrent_cell(attrs);
  const int64_t gates = units * gate_count(cell);
  const bool is_lstm = cell == RecurrentCell::kLstm;
  const auto steps = [&](int64_t count) { return tame({layer.length, 2, directions * count}, -1, 1); };
  const CaseOperand state = tame({directions, 2, units}, -1, 1), w = tame({directions, gates, units}, -1, 1);
  const CaseOperand none = {OperandKind::kAbsent, {}};
  const std::map<int64_t, std::string> symbols =
      symbolic ? std::map<int64_t, std::string>{{2, "b"}, {layer.length, "t"}}
               : std::map<int64_t, std::string>{};
  const std::string name = "_" + layer.cell + "_" + layer.direction + std::to_string(layer.length);
  std::vector<CaseOperand> operands = {steps(gates), state, w, layer.bias ? tame({directions, gates}) : none};
  if (is_lstm) operands.push_back(state);
  Attrs forward = attrs;
  forward.set("keep", layer.keep);
  // A half that is rounded the other way moves what comes after it.
  constexpr double kSlack = 8;
  cases.push_back({"recurrent" + name, Op::recurrent, operands, forward, symbols, kSlack});
  const CaseOperand kept = tame({layer.length, 2, directions * kept_count(cell) * units}, 0.1, 0.9);
  operands = {w, state, steps(units), steps(is_lstm ? units : 0), kept, steps(units)};
  if (is_lstm) operands.push_back(state);
  if (is_lstm && layer.keep) operands.push_back(steps(units));
  cases.push_back({"recurrent_backward" + name, Op::recurrent_backward, operands, attrs, symbols, kSlack});
}

}  // namespace

void add_recurrent(std::vector<DecomposeCase>& cases) {
  add_layer(cases, {"lstm", "forward", true, false, 3}, true);
  add_layer(cases, {"lstm", "bidirectional", false, true, 3}, false);
  add_layer(cases, {"gru", "reverse", true, true, 3}, true);
  add_layer(cases, {"gru", "bidirectional", false, false, 1}, false);
  add_layer(cases, {"rnn_tanh", "reverse", false, true, 3}, true);
  add_layer(cases, {"rnn_relu", "forward", true, false, 3}, false);
  add_layer(cases, {"lstm", "reverse", true, false, 0}, false);
}

}  // namespace aicf::testing
