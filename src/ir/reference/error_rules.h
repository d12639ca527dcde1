// How far a kernel's result may lie from the exact result over the same operands: one row per op, of which
// the running error bounds of `aicf validate` and of the random programs are made. u is the unit roundoff of
// the result's dtype, v that of what it is summed in. After N. J. Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed., SIAM 2002, chapters 2 to 4.
#pragma once

#include <cstdint>

#include "ir/op.h"

namespace aicf::reference {

enum class ErrorRule : uint8_t {
  kNone,      // moves, chooses, compares or counts
  kRounding,  // u |x|
  kFunction,  // a few units: 4 u |x|
  kAngle,     // a function whose operand is reduced: 16 u |x| + u
  kSum,       // n terms: sqrt(n / 3) v (sum of the terms' magnitudes) + u |x|
  kProduct,   // n factors: sqrt(n) v |x| + u |x|
  kUnknown,   // an op of the user's: sqrt(n) u (largest |x|), n the elements of the longest operand
};

// Composites have no row: they are judged as their decomposition.
ErrorRule error_rule(Op op);

// Halves of the distance from 1 to the next number.
double unit_roundoff(DType dtype);
// Of what sums of this dtype are accumulated in: f32 for f32 and halves.
double accumulation_roundoff(DType dtype);
double largest_finite(DType dtype);
double smallest_normal(DType dtype);

}  // namespace aicf::reference
