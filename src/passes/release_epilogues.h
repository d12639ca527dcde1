// Takes the epilogues that fuse_regions formed apart again where that moves fewer bytes or spares a
// contraction. The groups must be complete: what a value's other readers are is known only then.
#pragma once

#include <set>

#include "passes/region_groups.h"

namespace aicf {

// Contractions that are faster without the epilogue that their group gave them. On a GPU an epilogue's loads
// and stores stand between the products of two tiles; one that moves many tensors, an optimizer's step for
// one, costs more than a pass of its own behind the memory's full speed.
std::set<NodeId> heavy_epilogues(const RegionGroups& groups);

// What an epilogue computes from values that it gives anyway, only for one other region or wider than they
// are, is computed by those who read it (recompute_cost.h).
void release_followers(RegionGroups& groups);

}  // namespace aicf
