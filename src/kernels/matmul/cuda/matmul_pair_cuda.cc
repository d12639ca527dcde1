// Two products of one x whose results meet in the epilogue: a tile has the same columns of both. The row of
// the table has no op of its own: calls/join_pairs.h makes its calls.
#include "base/error.h"
#include "kernels/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_cycles.h"

namespace aicf {
namespace {

struct Way {
  MatmulConfig config;
  double microseconds;
};

CudaProblem as_pair(const CudaProblem& problem) {
  CudaProblem pair = problem;
  pair.pair = true;
  return pair;
}

// Of the first family before those of the second, cheapest first.
std::vector<Way> ways_of(const CudaProblem& pair) {
  std::vector<Way> ways;
  const bool same_form =
      pair.inputs.size() > kProductInputs && pair.inputs[1].dtype == pair.inputs[2].dtype &&
      pair.inputs[1].sizes == pair.inputs[2].sizes && pair.inputs[1].strides == pair.inputs[2].strides;
  if (pair.program == nullptr || !same_form || pair.program->stages.size() != 1 || sums_rows(*pair.program))
    return ways;
  const MatmulSizes sizes = matmul_sizes(pair);
  for (const MatmulFamily family : {MatmulFamily::wgmma, MatmulFamily::mma}) {
    if (!matmul_family_fits(pair, family)) continue;
    for (const MatmulConfig& config : matmul_pair_configs(sizes, family))
      ways.push_back({config, matmul_cycles(sizes, config) / kCyclesPerMicrosecond});
  }
  return ways;
}

}  // namespace

bool can_run_matmul_tensor_core(const Problem& problem);
bool can_run_matmul_pair(const Problem& problem) { return can_run_matmul_tensor_core(problem); }

std::vector<KernelVariant> matmul_pair_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const Way& way : ways_of(as_pair(problem)))
    variants.push_back({to_string(way.config), way.microseconds});
  return variants;
}

CudaCode generate_matmul_pair(const CudaProblem& problem) {
  const CudaProblem pair = as_pair(problem);
  for (const Way& way : ways_of(pair))
    if (pair.variant.empty() || to_string(way.config) == pair.variant) return matmul_code(pair, way.config);
  AICF_CHECK(false, "a pair of products without this variant: " + pair.variant);
}

}  // namespace aicf
