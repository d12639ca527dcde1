// What every row of the CPU kernels' table keeps.
#include "kernels/common/kernel.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/common/cuda_kernel.h"
#include "kernels/common/tile_program.h"

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

TEST(KernelTable, RowsOfOneNameHaveTheSameFacts) {
  for (const CudaKernel& row : cuda_kernel_table())
    if (const Kernel* cpu = find_kernel(row.name)) {
      EXPECT_EQ(row.facts, cpu->facts) << row.name;
      EXPECT_EQ(row.family, cpu->family) << row.name;
    }
  EXPECT_EQ(facts_of("bundle"), KernelFacts());
}

TEST(KernelTable, FactsSayWhatARowOverwritesAndWhoMakesItsCalls) {
  for (const char* family : {"scatter_nd", "scatter_elements"}) {
    EXPECT_TRUE(overwrites_operand(family, 0));
    EXPECT_FALSE(overwrites_operand(family, 1));
  }
  EXPECT_TRUE(overwrites_operand("rope_append", 5) && overwrites_operand("rope_append", 6));
  EXPECT_FALSE(overwrites_operand("rope_append", 4) || overwrites_operand("rope_append", 40));
  EXPECT_FALSE(overwrites_operand("gather", 0) || overwrites_operand("no family", 0));
  // A join's family is its own name, which no other row has.
  for (const CudaKernel& row : cuda_kernel_table())
    if (row.facts.is_join) {
      EXPECT_EQ(row.family, row.name);
      EXPECT_EQ(find_kernel(row.name), nullptr);
    }
}

}  // namespace
}  // namespace aicf
