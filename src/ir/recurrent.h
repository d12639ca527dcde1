// What recurrent and its gradient share: the cells by name, their counts of gates and of directions.
#pragma once

#include <string>

#include "ir/attr.h"

namespace aicf {

enum class RecurrentCell : uint8_t { kLstm, kGru, kTanh, kRelu };

inline RecurrentCell recurrent_cell(const Attrs& attrs) {
  const std::string& name = attrs.get_str("cell");
  if (name == "lstm") return RecurrentCell::kLstm;
  if (name == "gru") return RecurrentCell::kGru;
  return name == "rnn_tanh" ? RecurrentCell::kTanh : RecurrentCell::kRelu;
}

inline int64_t gate_count(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm ? 4 : cell == RecurrentCell::kGru ? 3 : 1;
}
// Of each unit, numbers that recurrent keeps for its gradient.
inline int64_t kept_count(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm || cell == RecurrentCell::kGru ? 4 : 0;
}

inline int64_t direction_count(const Attrs& attrs) {
  return attrs.get_str("direction") == "bidirectional" ? 2 : 1;
}
// Whether this direction walks from the last step to the first.
inline bool is_reversed(const Attrs& attrs, int64_t direction) {
  return direction == 1 || attrs.get_str("direction") == "reverse";
}

}  // namespace aicf
