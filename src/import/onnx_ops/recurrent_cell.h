// One step of RNN, GRU and LSTM in one direction. Gate order and formulas as in the ONNX operator list.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};
// By its ONNX name; `numbers` go, in order, to those of alpha and beta that it takes. Unsupported names are
// refused.
Activation make_activation(const NodeContext& n, const std::string& name, const std::vector<float>& numbers);
ValueId activate(NodeContext& n, const Activation& activation, ValueId x);
// Those of all directions, from the attributes `activations`, `activation_alpha` and `activation_beta` or the
// defaults; the numbers go, in order, to those that take one.
std::vector<Activation> read_activations(NodeContext& n, const std::vector<std::string>& defaults);

// A matrix of all gates: [G H, I] of floats, or 8-bit numbers [I, G H] with a scale and zero point each, or
// one per column; what they are multiplied by is then quantised by its range.
struct GateWeights {
  ValueId values, scale = kNoValue, zero = kNoValue;
};

// Emits with `n`, so that a step can stand in the graph of the node or in the body of a scan. Gates are
// columns of [B, G H]; `wx` is x W^T with its bias.
struct Cell {
  NodeContext& n;
  int64_t gates, hidden;
  std::vector<Activation> activations;  // of one direction
  double clip;
  bool linear_before_reset = false, input_forget = false;
  GateWeights r;                                   // over H
  ValueId bias_r = kNoValue, peephole = kNoValue;  // [G H], [3 H]

  // x W^T + bias over the last axis.
  ValueId project(ValueId x, const GateWeights& weights, ValueId bias) const;
  ValueId rnn(ValueId wx, ValueId h) const;
  ValueId gru(ValueId wx, ValueId h) const;
  std::pair<ValueId, ValueId> lstm(ValueId wx, ValueId h, ValueId c) const;
  ValueId num(double value) const {
    return n.scalar(n.dtype_of(r.scale == kNoValue ? r.values : r.scale), value);
  }

 private:
  ValueId add(ValueId a, ValueId b) const { return n.add(Op::add, {a, b}); }
  ValueId mul(ValueId a, ValueId b) const { return n.add(Op::mul, {a, b}); }
  ValueId activate(size_t which, ValueId x) const;
  ValueId gate(ValueId all, int64_t g) const { return n.slice_axis(all, 1, g * hidden, (g + 1) * hidden); }
  ValueId peep(int64_t g) const { return n.slice_axis(peephole, 0, g * hidden, (g + 1) * hidden); }
};

}  // namespace aicf::onnx
