// Compares a computed array with what the reference evaluator expects, element by element, for `aicf
// validate` and tests. An element agrees if |actual - expected| <= atol + rtol |expected|; NaN agrees with
// NaN only and an infinity with the same infinity only. Integers and bool are compared exactly, whatever the
// tolerances.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/array.h"

namespace aicf {

struct CompareReport {
  bool same_sizes = true;
  int64_t count = 0;           // elements compared
  int64_t undecided = 0;       // elements of which nothing can be said
  int64_t beyond = 0;          // elements that do not agree, NaN and infinity mismatches included
  int64_t nan_mismatches = 0;  // one is NaN, the other is not
  int64_t inf_mismatches = 0;  // one is an infinity, the other is finite or the other infinity
  double max_abs_error = 0;    // over elements finite on both sides
  double max_rel_error = 0;    // |actual - expected| / |expected|, where expected is not 0
  double cosine = 1;           // of the two as vectors; 1 if both are zero
  // The element that exceeds its tolerance most, or a NaN or infinity mismatch if there is one; -1 if nothing
  // was compared.
  int64_t worst = -1;
  double worst_actual = 0, worst_expected = 0, worst_allowed = 0;

  bool ok() const { return same_sizes && beyond == 0; }
};

CompareReport compare(const Array& actual, const Array& expected, double rtol, double atol);
// With a bound for each element in place of the tolerance; an infinite one leaves its element undecided.
CompareReport compare(const Array& actual, const Array& expected, const std::vector<double>& bound);
std::string to_string(const CompareReport& report);  // one line

}  // namespace aicf
