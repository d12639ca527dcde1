// How updates are brought into the order of the places that they go to (indexing/scatter.cuh): launches that
// scatters share with regions that add up the rows of one themselves.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda_walk.h"

namespace aicf {

inline constexpr int64_t kSortedTile = 2048;  // items that a block sorts

// What scatter.cuh's Scatter is told.
struct ScatterProblem {
  CudaWalk lines{3}, places{1}, block{2};
  std::vector<Dim> bounds, target_steps;
  Dim component_stride, targets;
};

// The type of an item of the sort, and the bytes at the workspace's beginning that hold two arrays of them:
// merge_passes() of order/sort.cuh says which one the sort ends in.
std::string sorted_item(const CudaProblem& problem, const ScatterProblem& s);
Dim sorted_bytes(const CudaProblem& problem, const ScatterProblem& s);
// Appends the launches of the sort; input `indices` of the problem says where updates go. Its errors are
// those of the scatter. The code must include indexing/scatter.cuh, and know its workspace.
void add_sort(CudaCode& code, const CudaProblem& problem, const ScatterProblem& s, size_t indices);

}  // namespace aicf
