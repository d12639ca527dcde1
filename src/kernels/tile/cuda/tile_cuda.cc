#include "kernels/tile/cuda/tile_cuda.h"

#include "base/error.h"
#include "kernels/tile/cuda/tile_way.h"
#include "kernels/tile/cuda/tile_writer.h"

namespace aicf {

CudaCode generate_tile(const CudaProblem& problem) {
  AICF_CHECK(problem.program != nullptr && problem.params.size() == 1 && !problem.outputs.empty(),
             "a tile call needs a program, outputs and the inner rank");
  AICF_CHECK(problem.inputs.size() == problem.program->inputs.size() &&
                 problem.outputs.size() == problem.program->outputs.size(),
             "a tile call's windows are not those of its program");
  const TilePlan plan = tile_plan(problem);
  switch (plan.way) {
    case TileWay::flat:
      return generate_tile_flat(problem, plan.space);
    case TileWay::transpose:
      return generate_tile_transpose(problem, plan.space);
    case TileWay::rows:
      return generate_tile_rows(problem, plan.space);
    case TileWay::columns:
      return generate_tile_columns(problem, plan.space);
  }
  AICF_CHECK(false, "a way of a region without a kernel");
}

}  // namespace aicf
