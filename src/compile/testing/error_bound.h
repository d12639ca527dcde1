// The reference in f64 with a running first-order error bound per element: how far a computation that rounds
// every step to its dtype may lie from it. An infinite bound excludes an element: a decision (comparison,
// rounding to an integer, order) fell within its bound, a value left its dtype's range, or it is not finite;
// everything computed from it is excluded too. Integers have bound 0 or infinity.
#pragma once

#include <map>
#include <string>

#include "ir/graph.h"
#include "ir/reference/tensor.h"

namespace aicf::testing {

struct Bounded {
  reference::RefTensor value;
  std::vector<double> bound;
};

// Outputs by name, and the new value of each updated variable as "update:<name>".
std::map<std::string, Bounded> bounded_outputs(const Program& program,
                                               const std::map<std::string, Array>& inputs,
                                               const SymbolValues& sizes);

}  // namespace aicf::testing
