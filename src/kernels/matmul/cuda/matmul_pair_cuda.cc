// Dual GEMM: two products of one x whose results are operands of one epilogue. A tile has the same columns of
// both. The row of the table has no op of its own: calls/join_pairs.cc makes its calls.
#include "base/error.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/matmul/cuda/matmul_cuda.h"
#include "kernels/matmul/cuda/matmul_cycles.h"

namespace aicf {
namespace {

CudaProblem as_dual_gemm(const CudaProblem& problem) {
  CudaProblem dual = problem;
  dual.fusion = DualGemm();
  return dual;
}

// Of the first family before those of the second, cheapest first.
std::vector<PricedMatmul> dual_ways_of(const CudaProblem& dual) {
  std::vector<PricedMatmul> ways;
  const bool same_form =
      dual.inputs.size() > kProductInputs && dual.inputs[1].dtype == dual.inputs[2].dtype &&
      dual.inputs[1].sizes == dual.inputs[2].sizes && dual.inputs[1].strides == dual.inputs[2].strides;
  if (dual.program == nullptr || !same_form || dual.program->stages.size() != 1 || sums_rows(*dual.program))
    return ways;
  const MatmulSizes sizes = matmul_sizes(dual);
  for (const MatmulFamily family : {MatmulFamily::wgmma, MatmulFamily::mma}) {
    if (!matmul_family_fits(dual, family)) continue;
    for (const MatmulWay& way : matmul_pair_ways(sizes, family))
      ways.push_back({way, matmul_cycles(sizes, way) / kCyclesPerMicrosecond});
  }
  return ways;
}

}  // namespace

bool can_run_matmul_tensor_core(const Problem& problem);
bool can_run_matmul_pair(const Problem& problem) { return can_run_matmul_tensor_core(problem); }

std::vector<KernelVariant> matmul_pair_variants(const CudaProblem& problem) {
  std::vector<KernelVariant> variants;
  for (const auto& [way, microseconds] : dual_ways_of(as_dual_gemm(problem)))
    variants.push_back({way, microseconds});
  return variants;
}

CudaCode generate_matmul_pair(const CudaProblem& problem) {
  const CudaProblem dual = as_dual_gemm(problem);
  for (const auto& [way, microseconds] : dual_ways_of(dual))
    if (!is_named(dual.way) || Way(way) == dual.way) return matmul_code(dual, way);
  AICF_CHECK(false, "a dual GEMM that cannot run so: " + to_string(dual.way));
}

}  // namespace aicf
