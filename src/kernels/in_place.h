// Operands whose memory a kernel may overwrite with its result: it reads nothing of them that it has not
// already replaced by what the result holds there.
#pragma once

#include <cstddef>
#include <string_view>

namespace aicf {

// A kernel of `family` may write its result over this operand, both being the same window: it changes the
// elements that it is told to and leaves the others alone. Regions of pointwise ops are another matter: see
// KernelCall::elementwise.
inline bool overwrites_operand(std::string_view family, size_t operand) {
  if (family == "rope_append") return operand == 5 || operand == 6;  // the caches
  return operand == 0 && (family == "scatter_elements" || family == "scatter_nd");
}

}  // namespace aicf
