// The ways of attention's gradients on the general-purpose units (backward_simt.cuh): what a way makes of a
// problem, whether it fits, and an estimate of its time by which they are ordered. A way's rows and keys are
// a block's own, be they rows or keys, and the others that it holds at a time; so are its warps and lanes.
#pragma once

#include <vector>

#include "kernels/attention/cuda/attention_text.h"
#include "kernels/attention/cuda/attention_way.h"

namespace aicf {

// As backward_simt.cuh lays a way out.
struct SimtBackward {
  int vector = 4;    // elements of 16 bytes
  int lane_own = 0;  // of a lane, and its vectors of others and of a gradient
  int other_vectors = 0, gradient_vectors = 0;
  int stages = 1;        // of others
  bool odd_rows = true;  // rows of tiles lie an odd number of 16 bytes apart
  int64_t shared_bytes = 0;
  int registers = 0;    // of a thread, at most
  bool spills = false;  // more than it has
  int resident = 0;     // blocks of a multiprocessor
};

// Whether all rows of a head have the same mask.
bool backward_mask_is_per_key(const CudaProblem& problem, const AttentionSizes& sizes);

// Of a way of the unit kSimt; whether it fits must be asked.
SimtBackward simt_backward(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way);
bool simt_backward_fits(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way);
double simt_backward_cycles(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way);
// The best ones that fit, the quickest first. Some way fits every problem.
std::vector<AttentionWay> simt_backward_ways(const CudaProblem& problem, const AttentionSizes& sizes);

}  // namespace aicf
