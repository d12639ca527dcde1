// How the persistent recurrent kernel on matrix units (recurrent_mma.cuh) spreads a layer over the machine:
// any hidden size, since weights that do not stay on chip are read again in every step.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/recurrent/recurrent_plan.h"
#include "kernels/recurrent/recurrent_way.h"

namespace aicf {

struct RecurrentMmaPlan {
  int32_t cluster, groups, slices, rows;  // blocks of a cluster; groups of units of a block; warps of a
                                          // group; rows of the batch
  int32_t in_registers, in_shared;        // of a warp's chunks of the depth
  int64_t shared_bytes;
  double step_cycles, cycles;  // estimated: of a step of the whole layer, of the whole walk
  int32_t warps() const { return groups * slices; }
  RecurrentWay way() const { return {RecurrentUnit::kMma, cluster, rows, slices}; }
  bool operator==(const RecurrentMmaPlan&) const = default;
};

// The estimated cheapest first; none where the vectors of a step are too long for shared memory, or units too
// many for a cluster.
std::vector<RecurrentMmaPlan> recurrent_mma_plans(const RecurrentWork& work);

// Cycles of a step that is a product and a region of its own, one direction after the other.
double decomposed_step_cycles(const RecurrentWork& work);

}  // namespace aicf
