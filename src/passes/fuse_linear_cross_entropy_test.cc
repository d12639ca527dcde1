// Losses of a linear layer that are computed a chunk of rows at a time.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;
using testing::kCpu;
using testing::run_pass;

constexpr char kLargeLoss[] = R"(program {
  entry main(%x: bf16[8, 4096, 16], %w: bf16[32768, 16], %labels: i64[32768]) {
    %0 = transpose(%w) {perm = [1, 0]} : bf16[16, 32768]
    %1 = matmul(%x, %0) : bf16[8, 4096, 32768]
    %2 = reshape(%1) {shape = [32768, 32768]} : bf16[32768, 32768]
    %3 = cross_entropy(%2, %labels) : bf16[]
    return "loss" = %3 MORE
  }
}
)";

Program large_loss(const std::string& more) {
  std::string text = kLargeLoss;
  return parse(text.replace(text.find("MORE"), 4, more));
}

TEST(FuseLinearCrossEntropy, LogitsThatNobodyElseReadsAreNeverStoredWhole) {
  const Program program = large_loss("");
  const Graph fused = run_pass(fuse_linear_cross_entropy, program);
  ASSERT_EQ(count_ops(fused, Op::linear_cross_entropy), 1);
  EXPECT_EQ(fused.nodes().size(), 2u) << print(fused);  // and a reshape of x
  EXPECT_TRUE(fused.nodes().back().attrs.get_bool("transpose_w"));
  const Graph chunks = decompose_composites(fused, {program, kCpu});
  EXPECT_EQ(count_ops(chunks, Op::matmul), 2);
  for (const Node& node : chunks.nodes())
    for (ValueId id : node.results)
      EXPECT_LE(*element_count(chunks.shape(id)).constant(), int64_t{32768} * 32768) << op_info(node.op).name;
}

TEST(FuseLinearCrossEntropy, LogitsThatSomeoneElseReadsStay) {
  EXPECT_EQ(count_ops(run_pass(fuse_linear_cross_entropy, large_loss(", \"y\" = %2")), Op::matmul), 1);
}

// `seed` is the value that the gradients start from.
Program loss_and_gradients(const std::string& seed) {
  return parse(R"(program {
  entry main(%x: f64[5, 3], %w: f64[3, 4], %s: f64[]) {
    %labels = constant i64[5] = [3, 0, 1, 1, 2]
    %0 = linear_cross_entropy(%x, %w, %labels) {dtype = f64, chunk = 2} : f64[]
    %1 = mul(%)" +
               seed +
               R"(, %s) : f64[]
    %2, %3, %4 = linear_cross_entropy_backward(%x, %w, %labels, %1) {dtype = f64, chunk = 2} : f64[], f64[5, 3], f64[3, 4]
    return "loss" = %0, "dx" = %3, "dw" = %4
  }
}
)");
}

TEST(FuseLinearCrossEntropy, ALossComesFromTheOpThatComputesItsGradients) {
  const Program program = loss_and_gradients("s");
  const Graph joined = run_pass(fuse_linear_cross_entropy, program);
  EXPECT_EQ(count_ops(joined, Op::linear_cross_entropy), 0);
  EXPECT_EQ(count_ops(joined, Op::linear_cross_entropy_backward), 1);
  expect_equal_meaning(program, joined, {});
  // Each chunk has one product for its logits and two for gradients.
  EXPECT_EQ(count_ops(decompose_composites(joined, {program, kCpu}), Op::matmul), 9);
}

TEST(FuseLinearCrossEntropy, GradientsThatStartFromTheLossComeAfterIt) {
  const Program program = loss_and_gradients("0");
  const Graph joined = run_pass(fuse_linear_cross_entropy, program);
  EXPECT_EQ(count_ops(joined, Op::linear_cross_entropy), 1);
  expect_equal_meaning(program, joined, {});
}

}  // namespace
}  // namespace aicf
