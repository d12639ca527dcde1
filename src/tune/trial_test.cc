// Which problems of a program there are to tune.
#include "tune/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

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

// Of products, convolutions and attention, whatever else they read.
TEST(ListProblems, WhatIsMultipliedInTf32HoldsValuesOfTf32) {
  Program program;
  Graph graph("main");
  const auto input = [&](const char* name, std::vector<int64_t> sizes) {
    return graph.add_input(name, {DType::f32, to_shape(sizes)});
  };
  const auto param = [&](const std::string& name, std::vector<int64_t> sizes) {
    const TensorType type{DType::f32, to_shape(sizes)};
    program.variables[name] = {name, Role::kParam, type, Array(DType::f32, std::move(sizes))};
    return graph.add_param(name, type);
  };
  const Attrs tf32 = {{"tf32", true}};
  const Attrs conv = {{"strides", Ints{1, 1}},
                      {"pads", Ints{1, 1, 1, 1}},
                      {"dilations", Ints{1, 1}},
                      {"groups", 1},
                      {"tf32", true}};
  const ValueId h = graph.add(Op::conv, {input("x", {8, 64, 56, 56}), param("w0", {64, 64, 3, 3})}, conv);
  graph.add_output(graph.add(Op::conv, {h, param("w1", {64, 64, 3, 3})}, conv), "y");
  const ValueId product = graph.add(Op::matmul, {input("m", {4096, 512}), param("w2", {512, 512})}, tf32);
  graph.add_output(graph.add(Op::add, {product, input("r", {4096, 512})}), "z");
  const ValueId q = input("q", {4, 8, 128, 64});
  graph.add_output(graph.add(Op::attention, {q, input("k", {4, 8, 128, 64}), input("v", {4, 8, 128, 64})},
                             {{"scale", 0.125}, {"tf32", true}}),
                   "a");
  graph.add_output(graph.add(Op::matmul, {input("n", {64, 96}), param("w3", {96, 64})}), "f");
  program.entries.push_back(std::move(graph));
  const Target target = Target::from_name("sm_90");
  std::map<std::string, std::vector<DType>> held;
  for (const TuneProblem& problem : list_problems(run_pipeline(program, target, {}, nullptr), target))
    held[problem.key.op + (multiplies_in_tf32(problem) ? "" : " in f32")] = held_dtypes(problem);
  constexpr DType f16 = DType::f16, f32 = DType::f32;
  EXPECT_EQ(held["conv"], (std::vector{f16, f16}));
  EXPECT_EQ(held["matmul"], (std::vector{f16, f16, f32}));
  EXPECT_EQ(held["attention"], (std::vector{f16, f16, f16}));
  EXPECT_EQ(held["matmul in f32"], (std::vector{f32, f32}));
}

}  // namespace
}  // namespace aicf
