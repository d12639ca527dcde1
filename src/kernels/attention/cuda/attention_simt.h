// The ways of attention on the general-purpose units (simt.cuh): what a way makes of a problem, whether it
// fits, and an estimate of its time by which they are ordered.
#pragma once

#include <vector>

#include "kernels/attention/cuda/attention_text.h"
#include "kernels/attention/cuda/attention_way.h"

namespace aicf {

// As simt.cuh lays a way out.
struct SimtAttention {
  int vector = 4;     // elements of 16 bytes
  int lane_rows = 0;  // of a lane, and its vectors of keys and of the result
  int key_vectors = 0, value_vectors = 0;
  bool shares_buffer = false;  // keys and values
  int64_t shared_bytes = 0;
  int registers = 0;  // of a thread, at most
  int resident = 0;   // blocks of a multiprocessor
};

// Of a way of the unit kSimt; whether it fits must be asked.
SimtAttention simt_attention(const CudaProblem& problem, const AttentionSizes& sizes,
                             const AttentionWay& way);
bool simt_attention_fits(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way);
double simt_attention_cycles(const CudaProblem& problem, const AttentionSizes& sizes,
                             const AttentionWay& way);
// The best ones that fit, the quickest first. Some way fits every problem.
std::vector<AttentionWay> simt_attention_ways(const CudaProblem& problem, const AttentionSizes& sizes);

}  // namespace aicf
