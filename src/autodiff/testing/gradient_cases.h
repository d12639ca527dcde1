// Test data: for each differentiable op the operands, attributes and value ranges on which its derivative is
// checked, and the program that computes a loss of the op's results and the gradients of its float operands.
// Used by the finite-difference check here and by the compiled-against-reference check in compile/.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::testing {

struct GradientOperand {
  enum class Kind { kWanted, kFixed, kIndex, kIndex32, kBool, kAbsent };
  Kind kind = Kind::kWanted;  // kFixed: a float of which no gradient is asked
  std::vector<int64_t> sizes;
  double lo = -2, hi = 2;           // range of the random values
  std::vector<double> values = {};  // the values themselves, if given
};

struct GradientCase {
  std::string name;
  Op op;
  std::vector<GradientOperand> operands;
  Attrs attrs = {};
  // In the symbolic form every size of an operand or attribute that equals a number here is that symbol.
  std::map<int64_t, std::string> symbols = {};
  std::vector<Graph> bodies = {};
};
inline void PrintTo(const GradientCase& test, std::ostream* stream) { *stream << test.name; }

std::vector<GradientCase> gradient_cases();

// Inputs "x<i>" (operands) and "w<i>" (one weight per element of each float result); outputs "loss", the
// weighted sum of the results, and "d_x<i>" for each wanted operand unless the loss alone is asked.
Program gradient_program(const GradientCase& test, DType dtype, bool symbolic, bool loss_only = false);
// Arrays for those inputs, the same for the same seed; floats in f64.
std::map<std::string, Array> gradient_inputs(const GradientCase& test, uint64_t seed);

}  // namespace aicf::testing
