// How a persistent recurrent kernel spreads a layer over the machine: whole clusters, which hold the weights
// and walk some rows of the batch each.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/common/cuda_machine.h"

namespace aicf {

// One direction of a layer, or of its gradient, as products: `depth` numbers come from the step before, of
// which each of `hidden` units makes `products` sums and sends `sent` numbers on.
struct RecurrentWork {
  int64_t hidden, depth, products, sent;
  int64_t element_bytes;
  int64_t batch, length, directions;
  int64_t columns_staged = 0;  // 1: weights come through a tile of shared memory
  CudaMachine machine = {};
};

struct RecurrentPlan {
  // Blocks of a cluster, warps of a block, units of a team, teams of a warp, rows of the batch. The lanes of
  // a team split the depth.
  int32_t cluster, warps, units, teams, rows;
  int32_t in_registers;  // of the chunks of a depth, those whose weights lie in registers
  int64_t shared_bytes;
  double cycles;  // estimated, of the whole walk
  int32_t units_of_block() const { return warps * teams * units; }
  bool operator==(const RecurrentPlan&) const = default;
};

// What a thread of a block of so many warps may have.
int64_t registers_of_thread(int64_t warps);

// Clusters of so many blocks that run at once.
int64_t clusters_at_once(int64_t cluster, const CudaMachine& machine);

// Nothing where the weights fit no cluster.
std::optional<RecurrentPlan> recurrent_plan(const RecurrentWork& work);

}  // namespace aicf
