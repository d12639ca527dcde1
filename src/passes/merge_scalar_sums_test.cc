// Sums of many numbers that become one reduction.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

// ((0 + x0) + x1) + … of `terms` inputs; every `shared`-th partial sum is an output, too.
Program chain(int terms, DType dtype, int shared = 0) {
  Graph graph("main");
  ValueId sum = graph.add_constant(Array::scalar_f64(dtype, 0));
  for (int i = 0; i < terms; ++i) {
    const ValueId term = graph.add_input("x" + std::to_string(i), {dtype, {}});
    sum = graph.add(Op::add, {sum, term}, {});
    if (shared > 0 && i % shared == shared - 1 && i + 1 < terms)
      graph.add_output(sum, "part" + std::to_string(i));
  }
  graph.add_output(sum, "sum");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(MergeScalarSums, AddsUpManyNumbersAtOnce) {
  const Program program = chain(100, DType::f32);
  const Graph after = testing::run_pass(merge_scalar_sums, program, Target::from_name("sm_90"));
  EXPECT_EQ(testing::count_ops(after, Op::add), 0) << print(after);
  EXPECT_EQ(testing::count_ops(after, Op::reduce_sum), 1);
  EXPECT_EQ(testing::count_ops(after, Op::concat), 1);
  testing::expect_equal_meaning(program, after, {}, 1e-5);
}

TEST(MergeScalarSums, LeavesFewNumbersHalvesAndPartsThatOthersRead) {
  for (const Program& program : {chain(12, DType::f32), chain(100, DType::f16), chain(100, DType::f32, 8)}) {
    const Graph after = testing::run_pass(merge_scalar_sums, program, Target::from_name("sm_90"));
    EXPECT_EQ(print(after), print(program.entries[0]));
  }
}

}  // namespace
}  // namespace aicf
