// Checks a whole program at a border: after import and parsing (a violation is then the user's, bad_graph)
// and after each pass (then it is ours, verifier_failed). It trusts nothing that the graph stores: every node
// is typed afresh.
#pragma once

#include "ir/graph.h"

namespace aicf {

// Whose fault a violation is: decides between UserError bad_graph and InternalError verifier_failed.
enum class Fault { kUser, kInternal };

// Rules:
// - values: operands are defined before use; a value's producer and result number agree with the node
// - types: results and attributes are what the builder gives for the operands
// - roles: an entry's param or state is a variable of the program, of equal role and type, read at most once
// - updates: of a param or state of the same entry by a value of equal type, each at most once
// - bodies: closed (constants and inputs are their only leaves), no updates; kMaxBodyDepth deep at most
// - variables: named as they are filed; contents, if given, fit the type
// - names: entries, an entry's inputs, an entry's outputs are unique; inputs and outputs are not empty
// - sizes: every symbol in a type or attribute is declared, 0 <= lo <= hi, with a name that Dim::parse reads;
//   the ends of its buckets ascend within the range, up to its own
void verify(const Program& program, Fault fault);
// One entry of `program`.
void verify(const Graph& entry, const Program& program, Fault fault);

}  // namespace aicf
