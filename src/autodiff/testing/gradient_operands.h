// How the rows of gradient_cases() are written: operands and attributes by short names.
#pragma once

#include <utility>
#include <vector>

#include "autodiff/testing/gradient_cases.h"

namespace aicf::testing {

using Operand = GradientOperand;
using Cases = std::vector<GradientCase>;
using Sizes = std::vector<int64_t>;

inline Operand x(Sizes sizes, double lo = -2, double hi = 2) {
  return {Operand::Kind::kWanted, std::move(sizes), lo, hi};
}
inline Operand valued(Sizes sizes, std::vector<double> values) {
  return {Operand::Kind::kWanted, std::move(sizes), 0, 0, std::move(values)};
}
inline Operand fixed(Sizes sizes, double lo, double hi) {
  return {Operand::Kind::kFixed, std::move(sizes), lo, hi};
}
inline Operand index(Sizes sizes, double lo, double hi) {
  return {Operand::Kind::kIndex, std::move(sizes), lo, hi};
}
inline Operand indices(Sizes sizes, std::vector<double> values) {
  return {Operand::Kind::kIndex, std::move(sizes), 0, 0, std::move(values)};
}
inline Operand boolean(Sizes sizes, double lo = 0, double hi = 1) {
  return {Operand::Kind::kBool, std::move(sizes), lo, hi};
}
inline const Operand kNone = {Operand::Kind::kAbsent, {}};

inline Attrs on_axis(int64_t axis) { return {{"axis", axis}}; }
inline Attrs reduction(Ints axes, bool keepdims) {
  return {{"axes", std::move(axes)}, {"keepdims", keepdims}};
}

// The rows of gradient_cases_windows.cc.
void add_contractions(Cases& cases);
void add_attention(Cases& cases);
void add_ropes(Cases& cases);
void add_convolutions(Cases& cases);
void add_transposed_convolutions(Cases& cases);
void add_pools(Cases& cases);
// Those of gradient_cases_recurrent.cc.
void add_recurrent(Cases& cases);

}  // namespace aicf::testing
