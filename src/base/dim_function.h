// The functions of two sizes that an atom of a Dim may stand for, floordiv, mod, max and min: their names,
// and what they are of numbers, of Dims and of ranges.
#pragma once

#include "base/dim.h"

namespace aicf {

const char* function_name(Dim::AtomKind kind);  // "" for a symbol
// bad_shape for a divisor that is not positive.
int64_t apply_function(Dim::AtomKind kind, int64_t a, int64_t b);
Dim apply_function(Dim::AtomKind kind, const Dim& a, const Dim& b);
// Of values that lie in these ranges; divisors count as positive.
Interval apply_function(Dim::AtomKind kind, Interval a, Interval b);

// From the least to the greatest of four numbers.
Interval span(int64_t a, int64_t b, int64_t c, int64_t d);

}  // namespace aicf
