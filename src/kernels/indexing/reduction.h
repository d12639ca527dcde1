// How a scatter combines the updates of one place with what is there: its param `reduction`.
#pragma once

#include <cstdint>

namespace aicf {

enum class ScatterReduction : int64_t { none, add, mul, max, min };

}  // namespace aicf
