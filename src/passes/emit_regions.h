// Writes groups as a graph: those of several nodes as one fused node each, the others as they are, in an
// order in which a node comes after all that it reads.
#pragma once

#include "passes/region_groups.h"

namespace aicf {

Graph emit_regions(const RegionGroups& groups);

}  // namespace aicf
