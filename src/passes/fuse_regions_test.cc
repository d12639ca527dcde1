// Which ops become one region.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;
using testing::run_pass;

TEST(FuseRegions, NormalisationIsOneRegion) {
  Program program = parse(R"(program {
  size n in 1..9
  entry main(%x: f32[n, 32], %g: f32[32]) {
    %0 = layer_norm(%x, %g) : f32[n, 32]
    return "y" = %0
  }
})");
  const Program original = program;
  program.entries[0] = run_pass(decompose_composites, program);
  program.entries[0] = run_pass(keep_reduced_axes, program);
  const Graph fused = run_pass(fuse_regions, program);
  EXPECT_EQ(fused.nodes().size(), 1u) << print(fused);
  expect_equal_meaning(original, fused, {{"n", 4}});
}

// A kernel that casts a norm's scale or a bias costs more than casting it again for every row.
TEST(FuseRegions, CastsOfSmallLeavesJoinTheirReaders) {
  const Program program = parse(R"(program {
  entry main(%x: f32[5, 8], %w: f32[8, 8], %b: f16[8], %s: f16[8]) {
    %0 = cast(%b) {dtype = f32} : f32[8]
    %1 = cast(%s) {dtype = f32} : f32[8]
    %2 = matmul(%x, %w) : f32[5, 8]
    %3 = add(%2, %0) : f32[5, 8]
    %4 = mul(%3, %1) : f32[5, 8]
    %5 = matmul(%4, %w) : f32[5, 8]
    %6 = mul(%5, %1) : f32[5, 8]
    return "y" = %6
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  EXPECT_EQ(fused.nodes().size(), 2u) << print(fused);
  expect_equal_meaning(program, fused, {});
}

// What a norm reads of a sum, wider or squared, it computes itself: the product gives the sum alone.
TEST(FuseRegions, AnEpilogueGivesNoWiderCopiesOfWhatItGives) {
  const Program program = parse(R"(program {
  entry main(%x: f16[5, 8], %w: f16[8, 8], %r: f16[5, 8]) {
    %0 = matmul(%x, %w) : f16[5, 8]
    %1 = add(%0, %r) : f16[5, 8]
    %2 = cast(%1) {dtype = f32} : f32[5, 8]
    %3 = mul(%2, %2) : f32[5, 8]
    %4 = reduce_sum(%3) {axes = [1], keepdims = true} : f32[5, 1]
    %5 = rsqrt(%4) : f32[5, 1]
    %6 = mul(%2, %5) : f32[5, 8]
    return "y" = %6, "sum" = %1
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  ASSERT_EQ(fused.nodes().size(), 2u) << print(fused);
  ASSERT_EQ(fused.nodes()[0].results.size(), 1u) << print(fused);
  EXPECT_EQ(fused.dtype(fused.nodes()[0].results[0]), DType::f16);
  EXPECT_EQ(fused.nodes()[1].operands.size(), 1u);
  expect_equal_meaning(program, fused, {});
}

TEST(FuseRegions, EpilogueJoinsTheContractionAndCyclesAreAvoided) {
  const Program program = parse(R"(program {
  entry main(%x: f32[5, 8], %w: f32[8, 8], %b: f32[8]) {
    %0 = matmul(%x, %w) : f32[5, 8]
    %1 = add(%0, %b) : f32[5, 8]
    %2 = tanh(%1) : f32[5, 8]
    %3 = matmul(%2, %w) : f32[5, 8]
    %4 = add(%3, %2) : f32[5, 8]
    %5 = mul(%4, %1) : f32[5, 8]
    return "y" = %5
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  EXPECT_EQ(count_ops(fused, Op::fused), 2) << print(fused);
  EXPECT_EQ(fused.nodes().size(), 2u);
  expect_equal_meaning(program, fused, {});
}

TEST(FuseRegions, AContractionReadsASingleElementFromMemory) {
  const Program program = parse(R"(program {
  entry main(%x: f32[5, 1]) {
    %0 = constant f32[1, 1] = [3]
    %1 = matmul(%x, %0) : f32[5, 1]
    %2 = add(%1, %0) : f32[5, 1]
    return "y" = %2
  }
})");
  const Graph fused = run_pass(fuse_regions, program);
  ASSERT_EQ(count_ops(fused, Op::fused), 1);
  EXPECT_EQ(fused.nodes()[0].operands.size(), 2u);
  expect_equal_meaning(program, fused, {});
}

TEST(FuseRegions, ALongRowIsNotKeptForALaterStage) {
  Program program = parse(R"(program {
  entry main(%x: f32[2, 1000000]) {
    %0 = reduce_max(%x) {axes = [1], keepdims = true} : f32[2, 1]
    %1 = sub(%x, %0) : f32[2, 1000000]
    return "y" = %1
  }
})");
  EXPECT_EQ(count_ops(run_pass(fuse_regions, program), Op::fused), 0);
  EXPECT_EQ(count_ops(run_pass(fuse_regions, program, Target::from_name("sm_90")), Op::fused), 0);
}

// A sum reads its terms once, however many they are; what is behind it would read them again.
TEST(FuseRegions, TermsOfALongSumAreNotStored) {
  Program program = parse(R"(program {
  entry main(%x: f32[200000, 3], %y: f32[200000, 3]) {
    %0 = sub(%x, %y) : f32[200000, 3]
    %1 = mul(%0, %0) : f32[200000, 3]
    %2 = reduce_sum(%1) {axes = [0], keepdims = true} : f32[1, 3]
    %3 = sqrt(%2) : f32[1, 3]
    %4 = div(%x, %3) : f32[200000, 3]
    return "y" = %4
  }
})");
  const Graph fused = run_pass(fuse_regions, program, Target::from_name("sm_90"));
  ASSERT_EQ(count_ops(fused, Op::fused), 1) << print(fused);
  EXPECT_EQ(count_ops(fused, Op::div), 1);
  EXPECT_EQ(fused.nodes().size(), 2u);
}

TEST(FuseRegions, SmallRegionsOfOneDomainJoinLargeOnesDoNot) {
  for (const auto& [size, regions] : {std::pair(8, 1), std::pair(100000, 2)}) {
    const std::string n = std::to_string(size);
    const Program program =
        parse("program { entry main(%x: f32[" + n + "], %y: f32[" + n + "]) { %0 = exp(%x) : f32[" + n +
              "] %1 = neg(%0) : f32[" + n + "] %2 = log(%y) : f32[" + n + "] %3 = abs(%2) : f32[" + n +
              "] return \"a\" = %1, \"b\" = %3 } }");
    const Graph fused = run_pass(fuse_regions, program);
    EXPECT_EQ(count_ops(fused, Op::fused), regions) << print(fused);
    if (size == 8) expect_equal_meaning(program, fused, {});
  }
}

}  // namespace
}  // namespace aicf
