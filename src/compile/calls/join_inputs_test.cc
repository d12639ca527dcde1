// Products of few rows that take in the region before them: when they do, what stays apart, and that the
// results are those of two kernels.
#include <gtest/gtest.h>

#include "codegen/testing/needs_nvrtc.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/selected_calls.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing {
namespace {

enum class Before { kRmsNorm, kLayerNorm, kGate };
// Who else reads what the region makes.
enum class Readers { kProduct, kCaller };

struct InputCase {
  DType dtype;
  int64_t rows, columns, depth;
  Before before;
};

// (before(h) or gate(h)) · w + residual.
Program input_network(const InputCase& c, Readers readers = Readers::kProduct) {
  Program program;
  Graph graph("main");
  const bool gates = c.before == Before::kGate;
  const ValueId h = graph.add_input("h", {c.dtype, {Dim(c.rows), Dim(gates ? 2 * c.depth : c.depth)}});
  const ValueId w = graph.add_input("w", {c.dtype, {Dim(c.depth), Dim(c.columns)}});
  const ValueId residual = graph.add_input("residual", {c.dtype, {Dim(c.rows), Dim(c.columns)}});
  const ValueId scale = graph.add_input("scale", {c.dtype, {Dim(c.depth)}});
  ValueId x = kNoValue;
  if (gates) {
    const auto half = [&](int64_t from) {
      return graph.add(Op::slice, {h},
                       {{"starts", Shape{Dim(0), Dim(from)}},
                        {"limits", Shape{Dim(c.rows), Dim(from + c.depth)}},
                        {"steps", std::vector<int64_t>{1, 1}}});
    };
    const ValueId gate = half(0);
    x = graph.add(Op::mul, {graph.add(Op::mul, {gate, graph.add(Op::sigmoid, {gate})}), half(c.depth)});
  } else if (c.before == Before::kRmsNorm) {
    x = graph.add(Op::rms_norm, {h, scale}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  } else {
    x = graph.add(Op::layer_norm, {h, scale, scale}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  }
  graph.add_output(graph.add(Op::add, {graph.add(Op::matmul, {x, w}), residual}), "y");
  if (readers == Readers::kCaller) graph.add_output(x, "x");
  program.entries.push_back(std::move(graph));
  return program;
}

Artifact compiled_with(const Program& program, bool joins, const char* target = "sm_90") {
  return testing::compiled_with("join_inputs", joins, program, target);
}

size_t inputs_joined(const Program& program, const char* target = "sm_90") {
  return count_steps(compiled_with(program, true, target), kRegionProduct);
}

TEST(JoinInputs, OnlyWhereOneProductOfFewRowsReadsThem) {
  AICF_NEEDS_NVRTC();
  const InputCase norm{DType::bf16, 1, 512, 2048, Before::kRmsNorm};
  EXPECT_EQ(inputs_joined(input_network(norm)), 1u);
  EXPECT_EQ(inputs_joined(input_network(norm), "sm_80"), 0u);
  EXPECT_EQ(inputs_joined(input_network(norm, Readers::kCaller)), 0u);
  InputCase other = norm;
  other.rows = 9;
  EXPECT_EQ(inputs_joined(input_network(other)), 0u) << "more rows than one warp has";
  other = norm;
  other.depth = 2040;
  EXPECT_EQ(inputs_joined(input_network(other)), 0u) << "a part of a stage";
  other = norm;
  other.dtype = DType::f32;
  EXPECT_EQ(inputs_joined(input_network(other)), 0u);
}

TEST(JoinInputs, SaysWhy) {
  InputCase norm{DType::bf16, 1, 512, 2048, Before::kRmsNorm};
  expect_told(told("join_inputs", input_network(norm)), "taken", "computes its first input in a prologue");
  expect_told(told("join_inputs", input_network(norm, Readers::kCaller)), "refused", "is kept after the run");
  norm.depth = 2040;
  expect_told(told("join_inputs", input_network(norm)), "refused", "can compute its rows");
}

const InputCase kInputCases[] = {
    {DType::bf16, 1, 3072, 2048, Before::kRmsNorm}, {DType::bf16, 1, 16384, 2048, Before::kRmsNorm},
    {DType::bf16, 1, 2048, 8192, Before::kGate},    {DType::f16, 1, 2048, 1024, Before::kLayerNorm},
    {DType::f16, 8, 1024, 1024, Before::kGate},     {DType::bf16, 5, 640, 768, Before::kRmsNorm},
    {DType::f16, 3, 1032, 512, Before::kLayerNorm}, {DType::bf16, 1, 4096, 4096, Before::kGate},
};

// The region's code is the same in both, and so is the order in which products are added.
TEST(JoinInputs, HasTheBitsOfTwoKernels) {
  AICF_NEEDS_NVRTC();
  for (const InputCase& c : kInputCases) {
    const Program program = input_network(c);
    SCOPED_TRACE(print(program));
    const auto ways = joined_and_apart([&](bool joins) { return compiled_with(program, joins); }, 1, 2);
    if (ways == nullptr) continue;
    const auto [got, want] = ways->run(normal_inputs(program, 7));
    EXPECT_EQ(got.at("y"), want.at("y"));
  }
}

}  // namespace
}  // namespace aicf::testing
