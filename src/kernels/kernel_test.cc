// What every row of the CPU kernels' table keeps.
#include "kernels/kernel.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/tile_program.h"

namespace aicf {
namespace {

TEST(KernelTable, NoRowTakesACallWithoutOperands) {
  for (const Kernel& kernel : kernel_table())
    for (const size_t params : {0, 4, 40}) {
      BoundCall call;
      call.params.assign(params, 0);
      EXPECT_THROW(kernel.prepare(call), UserError) << kernel.name << " with " << params << " params";
    }
}

TEST(KernelTable, ARegionHasNoMoreOperandsThanATileProgram) {
  Problem problem;
  problem.family = "tile";
  problem.has_program = true;
  problem.outputs = {{DType::f32, {Dim(4)}}};
  problem.inputs.assign(kMaxTileOperands - 1, {DType::f32, {Dim(4)}});
  EXPECT_FALSE(candidates(problem).empty());
  problem.inputs.push_back(problem.inputs[0]);
  EXPECT_TRUE(candidates(problem).empty());
}

}  // namespace
}  // namespace aicf
