// Regions as passes after fuse_regions see them: fused nodes, and lone ops that could be one.
#pragma once

#include <optional>

#include "passes/pass.h"

namespace aicf {

struct RegionBody {
  Graph body{"body"};
  bool contraction = false;       // the body's first node reads its operands from memory
  std::vector<ValueId> operands;  // by input of the body
};

// The body of a region, or of a pointwise op or a reduction that the target fuses, made here; none for other
// nodes.
std::optional<RegionBody> region_body(const Graph& graph, const Node& node, const Target& target);
// What the region runs over.
const Shape& region_domain(const RegionBody& region);
// Which input of the body the value is; -1: none.
int input_index(const Graph& body, ValueId inner);

}  // namespace aicf
