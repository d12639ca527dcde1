// CUDA row of random_bits.
#include "kernels/common/cuda_walk.h"

namespace aicf {

CudaCode generate_random_bits(const CudaProblem& problem) {
  const CudaWindow& out = problem.outputs[0];
  const CudaWalk walk = walk_windows({&out});
  const bool wide = widest_unit(walk, {out.offset}, dtype_bytes(out.dtype)) == 4;
  constexpr int32_t kBlock = 256;
  CudaParams params;
  const std::string body = "  using I = " + std::string(index_type(problem, walk.count() + Dim(4))) +
                           ";\n  const " + walk_type(walk) + " walk = " + walk_value(walk, params) +
                           ";\n  aicf::random_bits<" + (wide ? "true" : "false") +
                           ">(walk, *in0, *in1, uint32_t(" + params.expr(problem.params[0]) + "), out0);\n";
  CudaCode code;
  code.source = includes({"random/random.cuh"});
  add_kernel(code, problem,
             flat_launch("random_bits", blocks_for(ceildiv(walk.count(), Dim(4)), kBlock), kBlock, params),
             body);
  return code;
}

}  // namespace aicf
