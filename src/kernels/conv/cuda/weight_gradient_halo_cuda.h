// The ways of weight_gradient_wgmma that bring boxes with their halo (weight_gradient_halo.cuh).
#pragma once

#include "kernels/conv/cuda/weight_gradient_problem.h"

namespace aicf {

// What runs: whole rows of the window of a block, its maps, and how the block goes through positions.
struct WeightGradientHaloPlan {
  int64_t tap_rows = 1, maps = 64;    // of a block
  int64_t warpgroups = 1, units = 1;  // that multiply; taps of each
  int64_t rows = 8;                   // of a box, eight positions wide
  int64_t width = 8, height = 8;      // of x under it, of a phase
  int64_t phases = 1;                 // of strided windows (SwizzledBox)
  int64_t stages = 0, stage_bytes = 0;
  int64_t parts = 1;
  bool in_cluster = false;  // a part is a block of a cluster, which adds them; else they go to the workspace
  double cycles = 0;
};
WeightGradientWay halo_gradient_way(const WeightGradientProblem& w, const WeightGradientHaloPlan& plan);

// The best boxes of every tile, each with its best number of parts, half as many and twice as many; none
// where the copy engine cannot read the operands or the window has one tap.
std::vector<WeightGradientHaloPlan> weight_gradient_halo_plans(const CudaProblem& problem,
                                                               const WeightGradientProblem& w);
CudaCode weight_gradient_halo_code(const CudaProblem& problem, const WeightGradientProblem& w,
                                   const WeightGradientHaloPlan& plan);

}  // namespace aicf
