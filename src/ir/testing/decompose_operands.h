// How the rows of decompose_cases() are written: operands and attributes by short names.
#pragma once

#include <utility>
#include <vector>

#include "ir/testing/decompose_cases.h"

namespace aicf::testing {

inline CaseOperand tensor(std::vector<int64_t> sizes, double lo = -3, double hi = 3, bool nasty = true) {
  return {OperandKind::kFloat, std::move(sizes), lo, hi, nasty};
}
inline CaseOperand tame(std::vector<int64_t> sizes, double lo = -3, double hi = 3) {
  return tensor(std::move(sizes), lo, hi, false);
}
inline CaseOperand of(OperandKind kind, std::vector<int64_t> sizes, double lo, double hi) {
  return {kind, std::move(sizes), lo, hi, false};
}

// The rows of decompose_cases_attention.cc.
void add_attention(std::vector<DecomposeCase>& cases);
void add_attention_backward(std::vector<DecomposeCase>& cases);
void add_ropes(std::vector<DecomposeCase>& cases);
// Those of decompose_cases_recurrent.cc.
void add_recurrent(std::vector<DecomposeCase>& cases);

}  // namespace aicf::testing
