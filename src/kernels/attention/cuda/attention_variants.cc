// The ways of attention_wgmma, attention_simt and attention_tf32. The row's own choice is
// attention_wgmma_way(); the estimates order what the tuner looks at first and count where measurements of
// like problems order candidates.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/attention/cuda/attention_cuda.h"
#include "kernels/attention/cuda/attention_simt.h"
#include "kernels/attention/cuda/attention_split.h"
#include "kernels/attention/cuda/attention_text.h"

namespace aicf {
namespace {

// The row's choice first.
std::vector<AttentionWay> ways_of(const CudaProblem& problem) {
  std::vector<AttentionWay> ways{attention_way(problem, AttentionUnit::kWgmma)};
  for (const AttentionWay& way :
       {AttentionWay{AttentionUnit::kWgmma, 192, 128}, AttentionWay{AttentionUnit::kWgmma, 128, 128},
        AttentionWay{AttentionUnit::kShort, 128, 128}, AttentionWay{AttentionUnit::kShort, 64, 128},
        AttentionWay{AttentionUnit::kMma, 128, 64}, AttentionWay{AttentionUnit::kMma, 64, 64},
        AttentionWay{AttentionUnit::kMma, 64, 128}, AttentionWay{AttentionUnit::kMma, 32, 64}})
    if (attention_way_fits(problem, way) && !(way == ways.front())) ways.push_back(way);
  return ways;
}

// Multiply-adds of one multiprocessor per cycle, tiles that it works on at a time, and the rounds of tiles.
double microseconds(const CudaProblem& problem, const AttentionSizes& sizes, const AttentionWay& way) {
  constexpr double kWgmma = 1300, kMma = 500, kStart = 3400;
  if (way.unit == AttentionUnit::kSplit) return split_cycles(problem, sizes, way) / kCyclesPerMicrosecond;
  const bool wgmma = way.unit == AttentionUnit::kWgmma || way.unit == AttentionUnit::kShort;
  const double resident = way.unit == AttentionUnit::kWgmma ? 1 : 3;
  const double tiles = sizes.most_batch * sizes.most_heads * std::ceil(sizes.most_queries / way.rows);
  const double rounds = std::ceil(tiles / (resident * sizes.multiprocessors)) * resident;
  // With a window all rows see about as many keys, causal or not.
  const double share = sizes.causal && sizes.window == 0 ? 0.5 : 1.0;
  const double seen = share * std::ceil(seen_keys(sizes, way.rows) / way.keys) * way.keys;
  const double products = way.rows * seen * static_cast<double>(sizes.depth + sizes.value_depth);
  return (kStart + rounds * products / (wgmma ? kWgmma : kMma)) / kCyclesPerMicrosecond;
}

}  // namespace

std::vector<KernelVariant> attention_wgmma_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const AttentionWay& way : ways_of(problem))
    variants.push_back({way, microseconds(problem, sizes_of(problem), way)});
  return variants;
}

AttentionWay attention_wgmma_way(const CudaProblem& problem) {
  for (const AttentionWay& way : ways_of(problem))
    if (!is_named(problem.way) || Way(way) == problem.way) return way;
  AICF_CHECK(false, "attention that cannot run so: " + to_string(problem.way));
}

// Halves run so only where no matrix units take them, in one way.
std::vector<KernelVariant> attention_simt_variants(const CudaProblem& problem) {
  constexpr double kStart = 3400;
  std::vector<KernelVariant> variants;
  if (dtype_bytes(problem.inputs[0].dtype) < 4) return variants;
  const AttentionSizes sizes = sizes_of(problem);
  for (const AttentionWay& way : simt_attention_ways(problem, sizes))
    variants.push_back({way, (kStart + simt_attention_cycles(problem, sizes, way)) / kCyclesPerMicrosecond});
  return variants;
}

CudaCode generate_attention_simt(const CudaProblem& problem) {
  const auto* named = std::get_if<AttentionWay>(&problem.way);
  if (named == nullptr) return attention_code(problem, attention_way(problem, AttentionUnit::kSimt));
  AICF_CHECK(named->unit == AttentionUnit::kSimt && attention_way_fits(problem, *named),
             "attention that cannot run so: " + to_string(problem.way));
  return attention_code(problem, *named);
}

std::vector<KernelVariant> attention_tf32_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const AttentionWay& way : tf32_ways(problem))
    variants.push_back({way, attention_tf32_microseconds(problem, way)});
  return variants;
}

CudaCode generate_attention_tf32(const CudaProblem& problem) {
  for (const AttentionWay& way : tf32_ways(problem))
    if (!is_named(problem.way) || Way(way) == problem.way) return attention_code(problem, way);
  AICF_CHECK(false, "attention in tf32 that cannot run so: " + to_string(problem.way));
}

CudaCode generate_attention_wgmma(const CudaProblem& problem) {
  return attention_code(problem, attention_wgmma_way(problem));
}

}  // namespace aicf
