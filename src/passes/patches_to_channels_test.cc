// Convolutions of patches as those of one tap: which, and that they mean the same.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::expect_equal_meaning;

struct Patches {
  Shape x = {2, 3, 8, 8}, kernel = {4, 4};
  Ints strides = {4, 4}, dilations = {1, 1};
  int64_t pad = 0, groups = 1;
  DType dtype = DType::f16;
  bool tf32 = false, has_bias = true;
};

Program patch_program(const Patches& p, const SymbolRanges& sizes = {}) {
  Program program;
  program.sizes = sizes;
  Graph graph("main");
  Shape w = {5 * Dim(p.groups), floordiv(p.x[1], Dim(p.groups))};
  w.insert(w.end(), p.kernel.begin(), p.kernel.end());
  std::vector<ValueId> operands = {graph.add_input("x", {p.dtype, p.x}), graph.add_input("w", {p.dtype, w})};
  if (p.has_bias) operands.push_back(graph.add_input("b", {p.dtype, {w[0]}}));
  graph.add_output(graph.add(Op::conv, operands,
                             {{"strides", p.strides},
                              {"pads", Ints(2 * p.strides.size(), p.pad)},
                              {"dilations", p.dilations},
                              {"groups", p.groups},
                              {"tf32", p.tf32}}),
                   "y");
  program.entries.push_back(std::move(graph));
  return program;
}

// Sizes of the kernel of what comes of it.
Shape kernel_of(const Patches& p, const SymbolRanges& ranges = {}, const SymbolValues& sizes = {}) {
  const Program program = patch_program(p, ranges);
  const Graph after = testing::run_pass(patches_to_channels, program, Target::from_name("sm_90"));
  expect_equal_meaning(program, after, sizes);
  for (const Node& node : after.nodes())
    if (node.op == Op::conv) return after.shape(node.operands[1]);
  return {};
}

TEST(PatchesToChannels, ElementsOfAPatchAreChannels) {
  EXPECT_EQ(kernel_of({}), (Shape{5, 48, 1, 1}));
  EXPECT_EQ(kernel_of({.has_bias = false}), (Shape{5, 48, 1, 1}));
  EXPECT_EQ(kernel_of({.x = {1, 1, 9, 14}, .kernel = {3, 7}, .strides = {3, 7}}), (Shape{5, 21, 1, 1}));
  EXPECT_EQ(kernel_of({.x = {2, 3, 10}, .kernel = {5}, .strides = {5}, .dilations = {1}}), (Shape{5, 15, 1}));
  EXPECT_EQ(
      kernel_of({.x = {1, 3, 4, 4, 4}, .kernel = {2, 2, 1}, .strides = {2, 2, 1}, .dilations = {1, 1, 3}}),
      (Shape{5, 12, 1, 1, 1}));
  EXPECT_EQ(kernel_of({.dtype = DType::f32, .tf32 = true}), (Shape{5, 48, 1, 1}));
}

TEST(PatchesToChannels, WhatIsLeftAtAnEdgeIsCutOff) {
  EXPECT_EQ(kernel_of({.x = {2, 3, 11, 8}}), (Shape{5, 48, 1, 1}));
}

TEST(PatchesToChannels, AnyNumberOfPictures) {
  EXPECT_EQ(kernel_of({.x = {Dim::symbol("n"), 3, 9, 8}}, {{"n", {1, 4}}}, {{"n", 3}}), (Shape{5, 48, 1, 1}));
}

TEST(PatchesToChannels, OthersStay) {
  const Shape kernel{5, 3, 4, 4};
  EXPECT_EQ(kernel_of({.strides = {2, 4}}), kernel);
  EXPECT_EQ(kernel_of({.pad = 1}), kernel);
  EXPECT_EQ(kernel_of({.x = {2, 3, 16, 16}, .dilations = {2, 1}}), kernel);
  EXPECT_EQ(kernel_of({.dtype = DType::f32}), kernel);
  EXPECT_EQ(kernel_of({.x = {2, 8, 8, 8}}), (Shape{5, 8, 4, 4}));
  EXPECT_EQ(kernel_of({.x = {2, 6, 8, 8}, .groups = 2}), (Shape{10, 3, 4, 4}));
  EXPECT_EQ(kernel_of({.kernel = {1, 1}, .strides = {1, 1}}), (Shape{5, 3, 1, 1}));
}

}  // namespace
}  // namespace aicf
