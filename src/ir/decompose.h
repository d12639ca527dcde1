// Composite ops rewritten into primitives. Takes a node of an op whose row in ops.def is an AICF_COMPOSITE
// and its operands as values of `graph`, appends nodes that mean the same, and returns the values that stand
// for the node's results, with equal types. Nothing but primitives and pointwise composites is emitted. f16
// and bf16 are computed in f32 and rounded once at the end, except where one op does the work anyway (relu,
// clamp, linear, one_hot).
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf {

// `operands` has kNoValue for an absent optional operand. `composite` may belong to another graph.
std::vector<ValueId> decompose(Graph& graph, const Node& composite, const std::vector<ValueId>& operands);

}  // namespace aicf
