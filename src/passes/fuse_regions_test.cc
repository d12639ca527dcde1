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

// What repeats a function of a sum is stored by the kernel of the sum where that stores 16 bytes at a time,
// whether rows or columns are reduced; else by a kernel of its own.
TEST(FuseRegions, OutputsThatRepeatASumJoinIt) {
  struct Case {
    const char *shape, *reduced, *axes;
    bool joins;
  };
  for (const Case& c :
       {Case{"[64, 128]", "[64, 1]", "[1]", true}, Case{"[64, 127]", "[64, 1]", "[1]", false},
        Case{"[64, 32, 45]", "[64, 1, 45]", "[1]", false}, Case{"[64, 32, 44]", "[64, 1, 44]", "[1]", true},
        Case{"[1000, 999]", "[1, 1]", "[0, 1]", true},
        Case{"[9, 8, 17, 16]", "[1, 8, 1, 1]", "[0, 2, 3]", true},
        Case{"[9, 8, 17, 17]", "[1, 8, 1, 1]", "[0, 2, 3]", false}}) {
    const std::string x = std::string("f32") + c.shape, row = std::string("f32") + c.reduced;
    const Program plain =
        parse("program { entry main(%x: " + x + ") { %0 = reduce_sum(%x) {axes = " + c.axes +
              ", keepdims = true} : " + row + " %1 = tanh(%0) : " + row +
              " %2 = broadcast_to(%1) {shape = " + c.shape + "} : " + x + " return \"y\" = %2 } }");
    const Graph fused = run_pass(fuse_regions, plain, Target::from_name("sm_90"));
    EXPECT_EQ(fused.nodes().size(), c.joins ? 1u : 2u) << c.shape << print(fused);
    expect_equal_meaning(plain, fused, {});
    EXPECT_EQ(run_pass(fuse_regions, plain).nodes().size(), 2u) << "a CPU has no launches to save";
  }
}

// Functions of a reduction alone run in its region, and so do numbers beside them.
TEST(FuseRegions, FunctionsOfAReductionJoinItWithoutItsAxes) {
  Program program = parse(R"(program {
  size n in 1..9
  entry main(%x: f32[n, 32, 7], %y: f32[n, 7]) {
    %0 = reduce_sum(%x) {axes = [1]} : f32[n, 7]
    %c = constant f32[] = [32]
    %1 = div(%0, %c) : f32[n, 7]
    %2 = mul(%1, %1) : f32[n, 7]
    %3 = sqrt(%2) : f32[n, 7]
    %4 = add(%3, %y) : f32[n, 7]
    return "a" = %3, "b" = %4
  }
})");
  const Program original = program;
  program.entries[0] = run_pass(keep_reduced_axes, program);
  program.entries[0] = run_pass(simplify, program);
  const Graph fused = run_pass(fuse_regions, program, Target::from_name("sm_90"));
  ASSERT_EQ(count_ops(fused, Op::fused), 1) << print(fused);
  EXPECT_EQ(count_ops(fused, Op::add), 1);
  EXPECT_EQ(count_ops(fused, Op::sqrt), 0);
  expect_equal_meaning(original, fused, {{"n", 4}});
}

// Gradients of a sum's operands are one value: the region that makes it stores it twice.
TEST(FuseRegions, AnOutputThatIsAnotherOneIsStoredBesideIt) {
  Program program = parse(R"(program {
  entry main(%x: f16[5, 8], %y: f16[5, 8]) {
    %0 = add(%x, %y) : f16[5, 8]
    %1 = tanh(%0) : f16[5, 8]
    %2 = reshape(%1) {shape = [40]} : f16[40]
    return "sum" = %0, "a" = %1, "b" = %1, "c" = %2, "x" = %x, "z" = %x
  }
})");
  const Program original = program;
  program.entries[0] = run_pass(separate_outputs, program);
  EXPECT_EQ(count_ops(program.entries[0], Op::cast), 2) << print(program.entries[0]);
  const Graph fused = run_pass(fuse_regions, program);
  ASSERT_EQ(count_ops(fused, Op::fused), 1) << print(fused);
  EXPECT_EQ(fused.nodes()[0].results.size(), 4u);
  expect_equal_meaning(original, fused, {});
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
