#include "ir/recurrent.h"

#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

struct Layer {
  RecurrentCell cell;
  Dim length, batch, directions, hidden, gates;  // gates: all of a direction
};

// `w` and `h`: which operands these are; length and batch come from operand `walked`.
Layer layer_of(const ShapeQuery& query, size_t w, size_t h, size_t walked) {
  require_choice(query, "cell", {"lstm", "gru", "rnn_tanh", "rnn_relu"});
  require_choice(query, "direction", {"forward", "reverse", "bidirectional"});
  require_rank(query, w, 3);
  require_rank(query, walked, 3);
  const RecurrentCell cell = recurrent_cell(query.attrs);
  const Dim hidden = query.shape(w)[2], directions(direction_count(query.attrs));
  const Shape& steps = query.shape(walked);
  const Layer layer = {cell, steps[0], steps[1], directions, hidden, hidden * Dim(gate_count(cell))};
  require_shape(query, w, {directions, layer.gates, hidden});
  require_shape(query, h, {directions, layer.batch, hidden});
  return layer;
}

void require_c(const ShapeQuery& query, const Layer& layer, size_t c) {
  const bool has_cells = layer.cell == RecurrentCell::kLstm;
  if (has_cells != (query.operands[c] != nullptr))
    fail_shape(query, has_cells ? "operand 'c' of an LSTM" : "no operand 'c'",
               has_cells ? "none" : describe_operand(query, c));
  require_shape(query, c, {layer.directions, layer.batch, layer.hidden});
}

// [T, B, D times `count` numbers of each unit]
Shape of_steps(const Layer& layer, int64_t count) {
  return {layer.length, layer.batch, layer.directions * layer.hidden * Dim(count)};
}

int64_t cell_count(const Layer& layer) { return layer.cell == RecurrentCell::kLstm ? 1 : 0; }

}  // namespace

void shape_recurrent(ShapeQuery& query) {
  const Layer layer = layer_of(query, 2, 1, 0);
  require_shape(query, 0, {layer.length, layer.batch, layer.directions * layer.gates});
  require_shape(query, 3, {layer.directions, layer.gates});
  require_c(query, layer, 4);
  query.results[0].shape = of_steps(layer, 1);
  query.results[1].shape = of_steps(layer, cell_count(layer));
  query.results[2].shape = of_steps(layer, query.attrs.get_bool("keep") ? kept_count(layer.cell) : 0);
}

void shape_recurrent_backward(ShapeQuery& query) {
  const Layer layer = layer_of(query, 0, 1, 2);
  require_shape(query, 2, of_steps(layer, 1));
  require_shape(query, 3, of_steps(layer, cell_count(layer)));
  require_shape(query, 4, of_steps(layer, kept_count(layer.cell)));
  require_shape(query, 5, of_steps(layer, 1));
  require_c(query, layer, 6);
  require_shape(query, 7, of_steps(layer, cell_count(layer)));
  query.results[0].shape = {layer.length, layer.batch, layer.directions * layer.gates};
  query.results[1].shape = query.shape(1);
  query.results[2].shape = {layer.directions, layer.batch, layer.hidden * Dim(cell_count(layer))};
}

}  // namespace aicf
