// The running error bound of `aicf validate`: the reference in f64, and for every element of its results how
// far a right program may lie from it. The bound is kDeviations times the root mean square by which kRuns
// runs with rounding noise (rounding_noise.h) miss the reference, so that precisions, lengths of sums,
// magnitudes and the way errors take through the graph decide it and no constant does. So few runs estimate
// the spread of an element badly: it is moderated by that of all elements of its tensor (G. K. Smyth, Linear
// models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3(1), 2004).
//
// An infinite bound leaves an element undecided: runs take decisions (comparison, order, index) either way,
// or leave the range of a dtype. Integers have bound 0 or infinity.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/reference/evaluator.h"

namespace aicf {

struct Estimate {
  Array value;                // f64, or of an integer dtype
  std::vector<double> bound;  // per element
};

// The outputs of an entry, which `program` gives in f64, as `computed` (the same program after passes, which
// round where a precision says) may give them; and what its updates write, by "update:<variable>".
std::map<std::string, Estimate> estimate_outputs(const Program& program, const Graph& entry,
                                                 const Program& computed, const Graph& computed_entry,
                                                 const EvalInputs& inputs);

// The results of one node over these operands.
std::vector<Estimate> estimate_node(const Graph& graph, const Node& node, const std::vector<Array>& operands,
                                    const SymbolValues& sizes);

}  // namespace aicf
