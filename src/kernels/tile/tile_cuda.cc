#include "kernels/tile/tile_cuda.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/tile/tile_info.h"
#include "kernels/tile/tile_writer.h"

namespace aicf {
namespace {

// Nothing is computed per row.
bool is_pointwise(const TileProgram& program) {
  for (const auto& stage : program.stages)
    for (const TileInstr& instr : stage)
      if (is_tile_reduction(instr.op) || instr.op == TileOp::inner_index || instr.op == TileOp::store_scalar)
        return false;
  return true;
}

}  // namespace

CudaCode generate_tile(const CudaProblem& problem) {
  AICF_CHECK(problem.program != nullptr && problem.params.size() == 1 && !problem.outputs.empty(),
             "a tile call needs a program, outputs and the inner rank");
  AICF_CHECK(problem.inputs.size() == problem.program->inputs.size() &&
                 problem.outputs.size() == problem.program->outputs.size(),
             "a tile call's windows are not those of its program");
  return is_pointwise(*problem.program) ? generate_tile_flat(problem) : generate_tile_rows(problem);
}

}  // namespace aicf
