// Products with an epilogue over whole rows of results (row_epilogue.cuh). The row of the table has no op of
// its own: calls/join_rows.h makes its calls.
#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_cycles.h"
#include "kernels/matmul/cuda/wgmma_text.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {
namespace {

struct RowsWay {
  MatmulConfig config;
  double microseconds;
};

// As many as fit beside the epilogue's memory and have a use.
void set_row_stages(const CudaProblem& problem, const MatmulSizes& sizes, MatmulConfig& config) {
  constexpr int64_t kMostStages = 6;
  WgmmaTile tile;
  tile.x_rows = config.block_m;
  tile.half_tile = epilogue_tile(*problem.program).has_value();
  tile.reductions = row_reductions(*problem.program);
  const int64_t steps = std::max<int64_t>(2, ceil_div(sizes.k, kStepDepth));
  config.stages = static_cast<int>(std::min({steps, kMostStages, int64_t{wgmma_most_stages(config, tile)}}));
}

// Cheapest first.
std::vector<RowsWay> rows_ways_of(const CudaProblem& problem) {
  std::vector<RowsWay> ways;
  const Shape& result = problem.outputs[0].sizes;
  if (problem.program == nullptr || !result.back().is_constant() ||
      !matmul_family_fits(problem, MatmulFamily::wgmma) || !has_row_epilogue(problem, kProductInputs))
    return ways;
  const MatmulSizes sizes = matmul_sizes(problem);
  const int reductions = row_reductions(*problem.program);
  for (MatmulConfig& config : matmul_row_configs(sizes)) {
    set_row_stages(problem, sizes, config);
    if (config.stages >= 2)
      ways.push_back({config, matmul_row_cycles(sizes, config, reductions) / kCyclesPerMicrosecond});
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const RowsWay& a, const RowsWay& b) { return a.microseconds < b.microseconds; });
  return ways;
}

}  // namespace

bool can_run_matmul_tensor_core(const Problem& problem);
bool can_run_matmul_rows(const Problem& problem) { return can_run_matmul_tensor_core(problem); }

std::vector<KernelVariant> matmul_rows_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const RowsWay& way : rows_ways_of(problem))
    variants.push_back({to_string(way.config), way.microseconds});
  return variants;
}

CudaCode generate_matmul_rows(const CudaProblem& problem) {
  for (const RowsWay& way : rows_ways_of(problem))
    if (problem.variant.empty() || to_string(way.config) == problem.variant)
      return matmul_code(problem, way.config);
  AICF_CHECK(false, "a product with an epilogue of rows without this variant: " + problem.variant);
}

}  // namespace aicf
