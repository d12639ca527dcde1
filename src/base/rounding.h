// Integer division that rounds up, of numbers that are not negative by positive ones.
#pragma once

#include "base/dim.h"

namespace aicf {

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// The next multiple of b.
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
// The same of numbers that a stranger may have chosen: size_overflow beyond 63 bits.
inline int64_t checked_round_up(int64_t a, int64_t b) { return checked_mul(ceil_div(a, b), b); }

}  // namespace aicf
