// Gradient cases of recurrent layers.
#include "autodiff/testing/gradient_operands.h"
#include "ir/recurrent.h"

namespace aicf::testing {

void add_recurrent(Cases& cases) {
  const auto add = [&](const std::string& cell, const std::string& direction, bool bias, int64_t length,
                       std::map<int64_t, std::string> symbols = {}) {
    const Attrs attrs = {{"cell", cell}, {"direction", direction}};
    const int64_t directions = direction_count(attrs), units = 3;
    const int64_t gates = units * gate_count(recurrent_cell(attrs));
    const Operand state = x({directions, 2, units}, -1, 1);
    std::vector<Operand> operands = {x({length, 2, directions * gates}, -1, 1), state,
                                     x({directions, gates, units}, -1, 1),
                                     bias ? x({directions, gates}, -1, 1) : kNone};
    if (cell == "lstm") operands.push_back(state);
    cases.push_back({"recurrent_" + cell + "_" + direction, Op::recurrent, operands, attrs, symbols});
  };
  add("lstm", "bidirectional", true, 4);
  add("lstm", "forward", false, 5, {{5, "t"}});
  add("gru", "reverse", true, 5, {{5, "t"}});
  add("gru", "bidirectional", false, 1);
  add("rnn_tanh", "forward", true, 4);
  add("rnn_relu", "bidirectional", false, 4);
  const Operand steps = x({2, 2, 3}, -1, 1), state = x({1, 2, 3}, -1, 1);
  cases.push_back({"recurrent_backward",
                   Op::recurrent_backward,
                   {x({1, 12, 3}, -1, 1), state, steps, steps, x({2, 2, 12}, 0.1, 0.9), steps, state, steps},
                   {{"cell", std::string("lstm")}}});
}

}  // namespace aicf::testing
