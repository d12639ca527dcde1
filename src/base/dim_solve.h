// Reading sizes off arrays: an axis that is declared as a + c * size gives that size its value.
#pragma once

#include <optional>
#include <string>

#include "base/dim.h"

namespace aicf {

struct SolvedSize {
  const std::string& name;       // of the Dim's atom
  std::optional<int64_t> value;  // none if no whole value makes the axis this long
};

// nullopt unless the Dim is such a sum over one size.
std::optional<SolvedSize> solve(const Dim& dim, int64_t length);

}  // namespace aicf
