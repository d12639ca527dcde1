// Products with an epilogue over whole rows of results (row_epilogue.cuh). The row of the table has no op of
// its own: calls/join_rows.cc makes its calls.
#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

// As many as fit beside the epilogue's memory and have a use.
void set_row_stages(const CudaProblem& problem, const MatmulSizes& sizes, MatmulWay& way) {
  constexpr int64_t kMostStages = 6;
  WgmmaTile tile;
  tile.x_rows = way.block_m;
  tile.half_tile = epilogue_tile(*problem.program).has_value();
  tile.reductions = row_reductions(*problem.program);
  const int64_t steps = std::max<int64_t>(2, ceil_div(sizes.k, kStepDepth));
  way.stages = static_cast<int>(std::min({steps, kMostStages, int64_t{wgmma_most_stages(way, tile)}}));
}

// Cheapest first.
std::vector<PricedMatmul> rows_ways_of(const CudaProblem& problem) {
  std::vector<PricedMatmul> ways;
  const Shape& result = problem.outputs[0].sizes;
  if (problem.program == nullptr || problem.inputs[0].dtype == DType::f32 || !result.back().is_constant() ||
      !matmul_family_fits(problem, MatmulFamily::wgmma) || !has_row_epilogue(problem, kProductInputs))
    return ways;
  const MatmulSizes sizes = matmul_sizes(problem);
  const int reductions = row_reductions(*problem.program);
  for (MatmulWay& way : matmul_row_ways(sizes)) {
    set_row_stages(problem, sizes, way);
    if (way.stages >= 2)
      ways.push_back({way, matmul_row_cycles(sizes, way, reductions) / kCyclesPerMicrosecond});
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
  return ways;
}

}  // namespace

bool can_run_matmul_tensor_core(const Problem& problem);
bool can_run_matmul_rows(const Problem& problem) { return can_run_matmul_tensor_core(problem); }

std::vector<KernelVariant> matmul_rows_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const auto& [way, microseconds] : rows_ways_of(problem)) variants.push_back({way, microseconds});
  return variants;
}

CudaCode generate_matmul_rows(const CudaProblem& problem) {
  for (const auto& [way, microseconds] : rows_ways_of(problem))
    if (!is_named(problem.way) || Way(way) == problem.way) return matmul_code(problem, way);
  AICF_CHECK(false, "a product with an epilogue of rows that cannot run so: " + to_string(problem.way));
}

}  // namespace aicf
