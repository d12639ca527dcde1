// Random programs over f16 and bf16 for tests of where halves are rounded: a function of the seed alone.
// Every float or bool that a node gives is an output, named "v<value>"; with_outputs() keeps some of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::testing {

// `exact`: only ops whose f32 result, rounded, is the right one (sums of two, products with one factor that
// is not zero among them), so that any evaluator that rounds where the rule says has the same bits. Else
// functions, sums, norms and products with any weights too.
Program random_halves(uint64_t seed, bool exact);
std::map<std::string, Array> inputs_of_halves(const Program& program, uint64_t seed);

// The program with those of its outputs for which `bits` has a one, the last output always.
Program with_outputs(const Program& program, uint64_t bits);

}  // namespace aicf::testing
