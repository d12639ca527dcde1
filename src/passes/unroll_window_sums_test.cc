#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;

// As the pipeline runs it.
Graph unrolled(const Program& program) {
  const Target gpu{"sm_90"};
  return unroll_window_sums(program.entries[0], {program, gpu});
}

Program sum_over(const std::string& operand, const std::string& axes, const std::string& result) {
  return parse(R"(program {
  entry main(%x: f16[2, 3, 2, 5, 3], %y: f16[2, 90]) {
    )" + operand +
               "\n    %s = reduce_sum(%v) {axes = [" + axes + "], keepdims = true} : f16[" + result + R"(]
    return "y" = %s
  }
}
)");
}

TEST(UnrollWindowSums, AddsSlicesInFloats) {
  const Program program =
      sum_over("%v = reshape(%y) {shape = [2, 3, 2, 5, 3]} : f16[2, 3, 2, 5, 3]", "2, 4", "2, 3, 1, 5, 1");
  const Graph graph = unrolled(program);
  EXPECT_EQ(count_ops(graph, Op::reduce_sum), 0) << print(graph);
  EXPECT_EQ(count_ops(graph, Op::slice), 6);
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::add) continue;
    EXPECT_EQ(graph.dtype(node.results[0]), DType::f32);
  }
  expect_equal_meaning(program, graph, {});
}

TEST(UnrollWindowSums, KeepsRowsLongSumsAndWhatARegionComputes) {
  const auto kept = [](const std::string& operand, const std::string& axes, const std::string& result) {
    return count_ops(unrolled(sum_over(operand, axes, result)), Op::reduce_sum);
  };
  const std::string stored = "%v = transpose(%x) {perm = [0, 1, 2, 3, 4]} : f16[2, 3, 2, 5, 3]";
  EXPECT_EQ(kept(stored, "1", "2, 1, 2, 5, 3"), 0);
  EXPECT_EQ(kept(stored, "0, 2", "1, 3, 1, 5, 3"), 1);     // columns
  EXPECT_EQ(kept(stored, "3, 4", "2, 3, 2, 1, 1"), 1);     // whole rows
  EXPECT_EQ(kept(stored, "1, 2, 4", "2, 1, 1, 5, 1"), 1);  // 18 terms
  EXPECT_EQ(kept("%v = exp(%x) : f16[2, 3, 2, 5, 3]", "1", "2, 1, 2, 5, 3"), 1);
}

}  // namespace
}  // namespace aicf
