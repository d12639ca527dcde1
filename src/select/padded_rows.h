// Which values are stored with rows that begin at whole units of 16 bytes, beyond which lie elements that
// nobody reads or writes: the copy engine and vectors of matrix units read products' operands from there
// only.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "target/target.h"

namespace aicf {

// By value: its shape as it is stored; without axes for one that is stored as it is.
std::vector<Shape> padded_shapes(const Graph& graph, const Target& target);

}  // namespace aicf
