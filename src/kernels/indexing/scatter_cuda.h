// How updates are brought into the order of the places that they go to (indexing/scatter.cuh), and long runs
// of them are cut: launches that scatters share with regions that add up the rows of one themselves.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/common/cuda_walk.h"
#include "kernels/common/scatter_order.h"
#include "kernels/indexing/reduction.h"
#include "kernels/order/radix_cuda.h"

namespace aicf {

constexpr int64_t kScatterChunk = 128, kLongScatterChunk = 32 * kScatterChunk;  // of scatter.cuh

// What scatter.cuh's Scatter is told.
struct ScatterProblem {
  CudaWalk lines{3}, places{2}, block{3};
  std::vector<Dim> bounds, target_steps;
  Dim component_stride, targets;
};

// Updates in the order of their targets, and the tables of their runs.
struct SortedUpdates {
  std::string reduction;
  std::string type, value;  // of an update's elements, and what they are combined as
  int64_t value_bytes = 0;
  int64_t unit = 1;  // elements that a thread combines
  Dim length;        // of a block
  bool has_starts = true;
  bool carried = false;  // the items hold the updates themselves
  RadixSort sort;
  bool in_block = false;   // few: one block sorts them
  int64_t index_bits = 0;  // of an update's number, below its target; both take 32 bits, or 64
  bool has_chunks = false, has_long_chunks = false;
  std::string order;                     // text of the address of the sorted updates
  bool taken = false;                    // they are sorted already
  Dim targets, starts;                   // the second: bytes from the sorted updates on
  Dim scratch, partials, long_partials;  // where they begin in the workspace, in bytes
  Dim order_bytes, bytes;                // of the order, and of the workspace
  bool reports = false;                  // what an update is made of may be an error

  std::string item() const { return sort.narrow ? "aicf::NarrowItem" : "aicf::WideItem"; }
};
// `cuts`: long runs are cut into chunks that launches of their own fold.
SortedUpdates sorted_updates(const CudaProblem& problem, const ScatterProblem& s, DType dtype,
                             ScatterReduction reduction, const Dim& length, int64_t unit, bool has_starts,
                             bool cuts, OrderMemory memory);

// Text that defines `sorted`, `starts`, `partials`, `long_partials` and whether there is the last one,
// kHasLong.
std::string tables_text(const SortedUpdates& updates, CudaParams& params);
// Appends the launches that fill the tables. Input `indices` of the problem says where updates go; errors are
// those of the scatter. `at` is text that defines the function of that name of scatter.cuh's Fold, for the
// elements at `inner` of a block. The code must include indexing/scatter.cuh, and know its workspace.
void add_tables(CudaCode& code, const CudaProblem& problem, const ScatterProblem& s,
                const SortedUpdates& updates, size_t indices,
                const std::function<std::string(CudaParams&)>& at);

}  // namespace aicf
