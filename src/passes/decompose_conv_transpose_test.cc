// Transposed convolutions as convolutions: what is left of them, and that they mean the same.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;
using testing::run_pass;

struct TransposedConv {
  Shape x, w;
  bool has_bias = false;
  Ints strides, pads, dilations, output_padding;
  int64_t groups = 1;
};

Program program_of(const TransposedConv& problem, const SymbolRanges& sizes = {}) {
  Program program;
  program.sizes = sizes;
  Graph graph("main");
  std::vector<ValueId> operands = {graph.add_input("x", {DType::f64, problem.x}),
                                   graph.add_input("w", {DType::f64, problem.w})};
  if (problem.has_bias)
    operands.push_back(graph.add_input("bias", {DType::f64, {problem.w[1] * Dim(problem.groups)}}));
  graph.add_output(graph.add(Op::conv_transpose, operands,
                             {{"strides", problem.strides},
                              {"pads", problem.pads},
                              {"dilations", problem.dilations},
                              {"output_padding", problem.output_padding},
                              {"groups", problem.groups}}),
                   "y");
  program.entries.push_back(std::move(graph));
  return program;
}

// Multiply-adds of the convolutions of a graph.
int64_t products(const Graph& graph) {
  int64_t sum = 0;
  for (const Node& node : graph.nodes())
    if (node.op == Op::conv) {
      const Shape& w = graph.shape(node.operands[1]);
      sum += *(element_count(graph.shape(node.results[0])) * element_count(Shape(w.begin() + 1, w.end())))
                  .constant();
    }
  return sum;
}

TEST(DecomposeConvTranspose, RandomProblemsMeanTheSame) {
  SplitMix random(25);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random.unit() * static_cast<double>(high - low + 1));
  };
  int decomposed = 0, strided = 0;
  for (int i = 0; i < 400; ++i) {
    const auto spatial = static_cast<size_t>(draw(1, 3));
    TransposedConv problem;
    problem.groups = draw(1, 3);
    problem.has_bias = draw(0, 1) == 1;
    problem.x = {Dim(draw(1, 2)), Dim(problem.groups * draw(1, 2))};
    problem.w = {problem.x[1], Dim(draw(1, 3))};
    bool fits = true;
    problem.pads.resize(2 * spatial);
    for (size_t axis = 0; axis < spatial; ++axis) {
      const int64_t size = draw(1, 6), kernel = draw(1, 5);
      problem.x.push_back(Dim(size));
      problem.w.push_back(Dim(kernel));
      problem.strides.push_back(draw(1, 4));
      problem.dilations.push_back(draw(1, 3));
      problem.output_padding.push_back(
          draw(0, std::max(problem.strides.back(), problem.dilations.back()) - 1));
      problem.pads[axis] = draw(0, 4);
      problem.pads[spatial + axis] = draw(0, 4);
      fits = fits && (size - 1) * problem.strides.back() + problem.dilations.back() * (kernel - 1) + 1 +
                             problem.output_padding.back() >
                         problem.pads[axis] + problem.pads[spatial + axis];
    }
    if (!fits) continue;
    const Program program = program_of(problem);
    const Graph after = run_pass(decompose_conv_transpose, program);
    SCOPED_TRACE(print(program.entries[0]));
    expect_equal_meaning(program, after, {});
    if (count_ops(after, Op::conv_transpose) == 0) ++decomposed;
    if (count_ops(after, Op::concat) > 0) ++strided;
  }
  EXPECT_GT(decomposed, 100);
  EXPECT_GT(strided, 50);
}

TEST(DecomposeConvTranspose, StrideOneIsOneConvolutionAndOthersMultiplyNoZeros) {
  const auto line = [](int64_t n) { return Ints(2, n); };
  const TransposedConv one{{2, 8, 9, 9}, {8, 4, 3, 3}, true, line(1), Ints(4, 1), line(1), line(0)};
  const Graph same = run_pass(decompose_conv_transpose, program_of(one));
  EXPECT_EQ(count_ops(same, Op::conv), 1);
  EXPECT_EQ(count_ops(same, Op::concat), 0);
  EXPECT_EQ(products(same), 2 * 9 * 9 * 8 * 4 * 9);
  // The gradient of a 3x3 convolution of stride 2 from 12x12 to 6x6.
  const TransposedConv two{{2, 8, 6, 6}, {8, 4, 3, 3}, false, line(2), Ints(4, 1), line(1), line(1)};
  const Graph phases = run_pass(decompose_conv_transpose, program_of(two));
  EXPECT_EQ(count_ops(phases, Op::conv), 4);
  EXPECT_EQ(products(phases), 2 * 6 * 6 * 8 * 4 * 9);
  // One tap reaches one phase of four; the others are the bias.
  const TransposedConv point{{2, 8, 6, 6}, {8, 4, 1, 1}, true, line(2), Ints(4, 0), line(1), line(1)};
  const Graph sparse = run_pass(decompose_conv_transpose, program_of(point));
  EXPECT_EQ(count_ops(sparse, Op::conv), 1);
  EXPECT_EQ(products(sparse), 2 * 6 * 6 * 8 * 4);
  // Taps of even distances reach every other position.
  const TransposedConv dilated{{2, 8, 6, 6}, {8, 4, 3, 3}, false, line(2), Ints(4, 2), line(2), line(1)};
  const Graph even = run_pass(decompose_conv_transpose, program_of(dilated));
  EXPECT_EQ(count_ops(even, Op::conv), 1);
  EXPECT_EQ(products(even), 2 * 6 * 6 * 8 * 4 * 9);
}

TEST(DecomposeConvTranspose, SymbolicSizesMeanTheSameAtEverySize) {
  const SymbolRanges sizes = {{"n", {1, 5}}, {"h", {3, 20}}};
  const Dim n = Dim::symbol("n"), h = Dim::symbol("h");
  const TransposedConv problem{{n, 4, h, 5}, {4, 3, 4, 3}, true, {2, 3}, {1, 0, 2, 1}, {1, 1}, {1, 2}};
  const Program program = program_of(problem, sizes);
  const Graph after = run_pass(decompose_conv_transpose, program);
  EXPECT_EQ(count_ops(after, Op::conv_transpose), 0);
  for (int64_t size : {3, 4, 7}) expect_equal_meaning(program, after, {{"n", 2}, {"h", size}});
}

TEST(DecomposeConvTranspose, WhatNoWindowReachesStays) {
  // A single element of x may lie behind all windows of a phase.
  const TransposedConv problem{{1, 1, 1}, {1, 1, 3}, false, {2}, {2, 0}, {1}, {0}};
  const Program program = program_of(problem);
  expect_equal_meaning(program, run_pass(decompose_conv_transpose, program), {});
}

// One kernel of a GPU runs all phases of f64 and f32; not of depthwise ones, and a stride of 1 has one phase.
TEST(DecomposeConvTranspose, LeavesPlainPhasesOfAGpuWhole) {
  const Target cuda{"sm_90", 90};
  const auto left = [&](const TransposedConv& problem) {
    const Program program = program_of(problem);
    return count_ops(decompose_conv_transpose(program.entries[0], {program, cuda}), Op::conv_transpose);
  };
  TransposedConv problem{.x = {Dim(1), Dim(4), Dim(5), Dim(5)},
                         .w = {Dim(4), Dim(2), Dim(3), Dim(3)},
                         .strides = {2, 2},
                         .pads = {0, 0, 0, 0},
                         .dilations = {1, 1},
                         .output_padding = {0, 0}};
  EXPECT_EQ(left(problem), 1);
  problem.groups = 4;
  EXPECT_EQ(left(problem), 0);
  problem.groups = 1;
  problem.strides = {1, 1};
  EXPECT_EQ(left(problem), 0);
}

}  // namespace
}  // namespace aicf
