// Test data: for each composite op the operand shapes, attributes and value ranges on which its decomposition
// is checked. Used by decompose_test.cc (types) and decompose_reference_test.cc (values).
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::testing {

// kFloat is the type variable T of the case, the others are themselves.
enum class OperandKind { kFloat, kIndex, kIndex32, kInt8, kInt64, kUInt8, kBool, kAbsent };

struct CaseOperand {
  OperandKind kind = OperandKind::kFloat;
  std::vector<int64_t> sizes;
  double lo = -3, hi = 3;  // range of the random values
  bool nasty = true;       // infinities, NaN and extremes may be mixed in (floats only)
};

struct DecomposeCase {
  std::string name;
  Op op;
  std::vector<CaseOperand> operands;
  Attrs attrs;
  // In the symbolic form every size that equals a value here is that symbol.
  std::map<int64_t, std::string> symbols;
  // Multiplies the tolerance where the values' offset costs digits whatever the formula.
  double slack = 1;
};

const std::vector<DecomposeCase>& decompose_cases();

// One entry with the composite's results as outputs "whole<i>" and its decomposition's as "parts<i>"; inputs
// "x<i>".
Program both_forms(const DecomposeCase& test, DType dtype, bool symbolic);
DType operand_dtype(const CaseOperand& operand, DType dtype);

}  // namespace aicf::testing
