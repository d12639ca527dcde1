// The candidates of a problem that only its key says, as their rows rank them; measured_order.h has the
// order in which selection takes them.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "select/choose.h"

namespace aicf::select_testing {

inline Window window_of(const KeyOperand& operand, ValueId root) {
  Window window{operand.dtype, Dim(0), {}, {}, root};
  for (const Interval& size : operand.sizes) window.sizes.emplace_back(size.hi);
  for (const Interval& stride : operand.strides) window.strides.emplace_back(stride.hi);
  return window;
}

// The whole numbers of a key are params, the others fparams; "-" says that there are none.
inline void set_params(RowCall& row, const std::string& text) {
  std::istringstream numbers(text == "-" ? "" : text);
  for (std::string number; numbers >> number;) {
    if (number.find("0x") == std::string::npos)
      row.params.emplace_back(std::stoll(number));
    else
      row.fparams.push_back(std::strtod(number.c_str(), nullptr));
  }
}

inline std::vector<Candidate> candidates_of(const ProblemKey& key) {
  KernelCall call;
  for (const KeyOperand& operand : key.inputs)
    call.inputs.push_back(window_of(operand, static_cast<ValueId>(call.inputs.size())));
  for (const KeyOperand& operand : key.outputs)
    call.outputs.push_back(window_of(operand, static_cast<ValueId>(call.inputs.size())));
  set_params(call.what.emplace<RowCall>(), key.params);
  const Problem problem = problem_of_call(call, key.op, key.region != "-");
  const Target target = Target::from_name(key.target);
  return list_candidates(call, target.candidates(problem), target, {});
}

}  // namespace aicf::select_testing
