#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;
using testing::run_pass;

// `zeros` and `index` are texts of the values %z and %i, `pick` of what reads at %i.
Program scatter_of(const std::string& index, const std::string& zeros, const std::string& pick) {
  return parse(R"(program {
  entry main(%x: f32[3, 5], %u: f32[3, 1], %v: f32[2, 5]) {
    %o = constant f32[] = [0.5]
    )" + index +
               "\n    " + zeros + R"(
    %s = scatter_elements(%z, %i, %u) {axis = 1, reduction = "add"} : f32[3, 5]
    )" + pick + R"(
    return "y" = %s, "p" = %p
  }
}
)");
}

const char* kIndex = "%i = constant i64[3, 1] = [4, -1, -5]";
const char* kZeros = "%z = broadcast_to(%o) {shape = [3, 5]} : f32[3, 5]";
const char* kPick = "%p = gather_elements(%x, %i) {axis = 1} : f32[3, 1]";

TEST(MatchOneHot, AScatterOfOneUpdateARowIsAChoice) {
  const Program program = scatter_of(kIndex, kZeros, kPick);
  const Graph graph = run_pass(match_one_hot, program);
  EXPECT_EQ(count_ops(graph, Op::scatter_elements), 0) << print(graph);
  EXPECT_EQ(count_ops(graph, Op::gather_elements), 1) << print(graph);
  expect_equal_meaning(program, graph, {});
}

TEST(MatchOneHot, AlongTheFirstAxisAndReplacing) {
  const Program program = parse(R"(program {
  entry main(%x: f32[4, 3], %u: f32[1, 3]) {
    %z = constant f32[4, 3] = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    %i = constant i32[1, 3] = [3, -4, 0]
    %p = gather_elements(%x, %i) {axis = 0} : f32[1, 3]
    %s = scatter_elements(%z, %i, %u) {axis = 0} : f32[4, 3]
    return "y" = %s, "p" = %p
  }
}
)");
  const Graph graph = run_pass(match_one_hot, program);
  EXPECT_EQ(count_ops(graph, Op::scatter_elements), 0) << print(graph);
  expect_equal_meaning(program, graph, {});
}

TEST(MatchOneHot, KeepsWhatNobodyChecksAndWhatIsMoreThanAFill) {
  const auto kept = [](const Program& program) {
    return count_ops(run_pass(match_one_hot, program), Op::scatter_elements);
  };
  // No gather, one within other bounds, and one that nothing needs, whose errors nobody sees.
  EXPECT_EQ(kept(scatter_of(kIndex, kZeros, "%p = neg(%u) : f32[3, 1]")), 1);
  EXPECT_EQ(
      kept(scatter_of("%i = constant i64[3, 1] = [1, 0, -2]", kZeros,
                      "%w = transpose(%v) {perm = [1, 0]} : f32[5, 2]\n"
                      "    %t = slice(%w) {starts = [0, 0], limits = [3, 2], steps = [1, 1]} : f32[3, 2]\n"
                      "    %p = gather_elements(%t, %i) {axis = 1} : f32[3, 1]")),
      1);
  EXPECT_EQ(
      kept(scatter_of(kIndex, kZeros,
                      "%q = gather_elements(%x, %i) {axis = 1} : f32[3, 1]\n    %p = neg(%u) : f32[3, 1]")),
      1);
  EXPECT_EQ(kept(scatter_of(kIndex, "%z = neg(%x) : f32[3, 5]", kPick)), 1);
}

}  // namespace
}  // namespace aicf
