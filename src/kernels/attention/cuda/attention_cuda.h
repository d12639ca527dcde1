// Choosing and writing CUDA attention kernels. The rows of cuda_kernels.def go through attention_way, resolve
// and attention_code; benches and tests may ask for a way of their own.
#pragma once

#include "kernels/common/cuda_kernel.h"

namespace aicf {

// What runs where a way is asked for.
struct AttentionPlan {
  AttentionWay way;
  int warps = 8;   // kMma: rows are 16 per warp, or 32
  int tiles = 1;   // kSplit: of keys per part in the workspace
  int stages = 1;  // kSplit: tiles of keys in flight
  int64_t shared_bytes = 0;
  bool operator==(const AttentionPlan&) const = default;
};

// The best way for the problem on the units that the row stands for (kSimt, kMma or kWgmma) or lesser ones,
// in tf32 kMma: few rows or short sequences are split among warps (kSplit), many short sequences have all
// their keys in one tile of wgmma (kShort); what the copy engine cannot describe goes without it.
AttentionWay attention_way(const CudaProblem& problem, AttentionUnit unit);
// That of attention_wgmma, by the problem's way if it names one.
AttentionWay attention_wgmma_way(const CudaProblem& problem);
// In tf32: all ways that fit, the quickest by the estimate first, and that estimate. Some way fits every
// problem.
bool is_tf32(const CudaProblem& problem);
std::vector<AttentionWay> tf32_ways(const CudaProblem& problem);
double attention_tf32_microseconds(const CudaProblem& problem, const AttentionWay& way);
// Whether a way of wgmma (kWgmma or kShort) or of kMma can run the problem, well or not.
bool attention_way_fits(const CudaProblem& problem, const AttentionWay& way);
// The way is without fault and fits in the shared memory of the problem's architecture.
AttentionPlan resolve(const AttentionWay& way, const CudaProblem& problem);
CudaCode attention_code(const CudaProblem& problem, const AttentionWay& way);

}  // namespace aicf
