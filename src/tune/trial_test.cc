// Which problems of a program there are to tune.
#include "tune/trial.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/pass.h"

namespace aicf {
namespace {

// y = layer_norm(x w + r), or without the norm.
Program product(bool norm) {
  Program program;
  Graph graph("main");
  const auto param = [&](const std::string& name, std::vector<int64_t> sizes) {
    const TensorType type{DType::f16, to_shape(sizes)};
    program.variables[name] = {name, Role::kParam, type, Array(DType::f16, std::move(sizes))};
    return graph.add_param(name, type);
  };
  const TensorType rows{DType::f16, to_shape({8192, 384})};
  const ValueId x = graph.add_input("x", rows), r = graph.add_input("r", rows);
  const ValueId sum = graph.add(Op::add, {graph.add(Op::matmul, {x, param("w", {384, 384})}), r});
  graph.add_output(norm ? graph.add(Op::layer_norm, {sum, param("s", {384}), param("b", {384})}) : sum, "y");
  program.entries.push_back(std::move(graph));
  return program;
}

int64_t products(const Program& program, const char* target_name) {
  const Target target = Target::from_name(target_name);
  const Program optimised = run_pipeline(program, target, {}, nullptr);
  const std::vector<TuneProblem> problems = list_problems(optimised, target);
  return std::count_if(problems.begin(), problems.end(),
                       [](const TuneProblem& p) { return p.key.op == "matmul"; });
}

// On sm_90 the product and its norm are one kernel: a record of the product alone would keep them apart.
TEST(ListProblems, LeavesOutProductsThatShareAKernelWithTheirRows) {
  EXPECT_EQ(products(product(false), "sm_90"), 1);
  EXPECT_EQ(products(product(true), "sm_90"), 0);
  EXPECT_EQ(products(product(true), "sm_80"), 1);
}

// Products of x and of convolutions of it, in tf32.
TEST(ListProblems, OperandsThatAreReadAsRoundedHoldRoundedValues) {
  Program program;
  Graph graph("main");
  const auto param = [&](const std::string& name, std::vector<int64_t> sizes) {
    const TensorType type{DType::f32, to_shape(sizes)};
    program.variables[name] = {name, Role::kParam, type, Array(DType::f32, std::move(sizes))};
    return graph.add_param(name, type);
  };
  const ValueId x = graph.add_input("x", {DType::f32, to_shape({8, 64, 56, 56})}),
                m = graph.add_input("m", {DType::f32, to_shape({4096, 512})});
  const Attrs conv = {{"strides", Ints{1, 1}},
                      {"pads", Ints{1, 1, 1, 1}},
                      {"dilations", Ints{1, 1}},
                      {"groups", 1},
                      {"tf32", true}};
  const ValueId h = graph.add(Op::conv, {x, param("w0", {64, 64, 3, 3})}, conv);
  graph.add_output(graph.add(Op::conv, {h, param("w1", {64, 64, 3, 3})}, conv), "y");
  graph.add_output(graph.add(Op::matmul, {m, param("w2", {512, 512})}, {{"tf32", true}}), "z");
  program.entries.push_back(std::move(graph));
  const Target target = Target::from_name("sm_90");
  int rounded = 0;
  for (const TuneProblem& problem : list_problems(run_pipeline(program, target, {}, nullptr), target)) {
    const std::vector<DType> held = held_dtypes(problem);
    const bool reads_rounded = own_row(problem.call)->params.back() == Dim(2);
    EXPECT_EQ(held[0], DType::f32);
    EXPECT_EQ(held[1], reads_rounded ? DType::f16 : DType::f32);
    rounded += reads_rounded;
  }
  EXPECT_EQ(rounded, 2);  // a convolution of what another wrote, and the product
}

}  // namespace
}  // namespace aicf
