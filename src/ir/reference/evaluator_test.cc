#include "ir/reference/evaluator.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aicf {
namespace {

Array f32(std::vector<int64_t> sizes, std::vector<double> values) {
  return Array::from<double>(DType::f32, sizes, values);
}

// y = x W and a state that counts: count' = count + 1. x is [n, 2], pair is [2 n + 1].
Program counting_program() {
  Program program;
  program.sizes["n"] = {1, 4};
  program.variables["W"] = {"W", Role::kParam, {DType::f32, {2, 1}}, f32({2, 1}, {1, 10})};
  program.variables["count"] = {"count", Role::kState, {DType::i64, {}}, {}};
  Graph graph;
  const Dim n = Dim::symbol("n");
  const ValueId x = graph.add_input("x", {DType::f32, {n, 2}});
  graph.add_input("pair", {DType::f32, {n * Dim(2) + Dim(1)}});
  const ValueId w = graph.add_param("W", {DType::f32, {2, 1}});
  const ValueId count = graph.add_state("count", {DType::i64, {}});
  graph.add_output(graph.add(Op::matmul, {x, w}), "y");
  graph.add_update(count, graph.add(Op::add, {count, graph.add_constant(Array::scalar_i64(DType::i64, 1))}));
  program.entries.push_back(graph);
  return program;
}

EvalInputs good_inputs() {
  return {{{"x", f32({2, 2}, {1, 2, 3, 4})}, {"pair", Array(DType::f32, {5})}}, {}};
}

ErrorCode code_of(const EvalInputs& inputs, const std::map<std::string, Array>* overrides = nullptr) {
  const Program program = counting_program();
  try {
    evaluate(program, program.entries[0], inputs, {}, overrides);
  } catch (const Error& error) {
    return error.code;
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kI_check_failed;
}

TEST(Evaluator, OutputsUpdatesAndSizes) {
  const Program program = counting_program();
  const EvalResult result = evaluate(program, program.entries[0], good_inputs());
  EXPECT_EQ(result.outputs.at("y"), f32({2, 1}, {21, 43}));
  EXPECT_EQ(result.updated.at("count"), Array::scalar_i64(DType::i64, 1));
  EXPECT_EQ(result.sizes.at("n"), 2);
  EXPECT_EQ(result.outputs.size() + result.updated.size(), 2u);
}

TEST(Evaluator, OverridesReplaceVariables) {
  const Program program = counting_program();
  const std::map<std::string, Array> overrides = {{"W", f32({2, 1}, {1, 1})},
                                                  {"count", Array::scalar_i64(DType::i64, 7)}};
  const EvalResult result = evaluate(program, program.entries[0], good_inputs(), {}, &overrides);
  EXPECT_EQ(result.outputs.at("y"), f32({2, 1}, {3, 7}));
  EXPECT_EQ(result.updated.at("count"), Array::scalar_i64(DType::i64, 8));
}

TEST(Evaluator, BadInputsAreRefusedWithTheirCode) {
  EvalInputs inputs = good_inputs();
  inputs.inputs.erase("x");
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_missing_input);
  inputs = good_inputs();
  inputs.inputs["z"] = f32({}, {0});
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_unknown_input);
  inputs = good_inputs();
  inputs.inputs["x"] = Array(DType::f16, {2, 2});
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_input_dtype);
  inputs.inputs["x"] = Array(DType::i64, {2, 2});
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_input_dtype);
  inputs.inputs["x"] = Array(DType::f32, {4});
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_input_shape);
  inputs.inputs["x"] = Array(DType::f32, {2, 3});
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_input_shape);
  inputs.inputs["x"] = Array(DType::f32, {3, 2});
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_size_conflict);
  inputs = good_inputs();
  inputs.inputs["pair"] = Array(DType::f32, {4});
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_input_shape);
  inputs.inputs = {{"x", Array(DType::f32, {5, 2})}, {"pair", Array(DType::f32, {11})}};
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_size_out_of_range);
  inputs.inputs = {{"x", Array(DType::f32, {0, 2})}, {"pair", Array(DType::f32, {1})}};
  EXPECT_EQ(code_of(inputs), ErrorCode::kU_size_out_of_range);
  const std::map<std::string, Array> unknown = {{"V", f32({}, {0})}}, shape = {{"W", f32({1, 2}, {0, 0})}};
  EXPECT_EQ(code_of(good_inputs(), &unknown), ErrorCode::kU_unknown_param);
  EXPECT_EQ(code_of(good_inputs(), &shape), ErrorCode::kU_input_shape);
}

TEST(Evaluator, SizesNoArrayDecidesMustBeGiven) {
  Program program;
  Graph graph;
  graph.add_output(
      graph.add(Op::iota, {},
                {{"shape", Shape{Dim::symbol("n")}}, {"axis", int64_t{0}}, {"dtype", DType::i32}}),
      "y");
  try {
    evaluate(program, graph, {});
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_unset_size);
  }
  EXPECT_EQ(evaluate(program, graph, {{}, {{"n", 3}}}).outputs.at("y"),
            Array::from<int64_t>(DType::i32, {3}, {0, 1, 2}));
}

// 1 + 2^-30 is 1 in f32: only the f64 run sees the difference, through the whole graph.
TEST(Evaluator, TheF64RunNeverRounds) {
  Program program;
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {}});
  const ValueId one = graph.add_constant(Array::scalar_f64(DType::f32, 1));
  graph.add_output(graph.add(Op::sub, {graph.add(Op::add, {x, one}), one}), "y");
  const EvalInputs inputs = {{{"x", Array::scalar_f64(DType::f32, 0x1p-30)}}, {}};
  EXPECT_EQ(evaluate(program, graph, inputs).outputs.at("y"), Array::scalar_f64(DType::f32, 0));
  EXPECT_EQ(evaluate(program, graph, inputs, {false}).outputs.at("y"),
            Array::scalar_f64(DType::f64, 0x1p-30));
}

TEST(Evaluator, F64ArraysStandForAnyFloatInput) {
  Program program;
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f16, {}});
  graph.add_output(x, "same");
  graph.add_output(graph.add(Op::neg, {x}), "y");
  const EvalInputs inputs = {{{"x", Array::scalar_f64(DType::f64, 2049)}}, {}};
  EXPECT_EQ(evaluate(program, graph, inputs).outputs.at("y"), Array::scalar_f64(DType::f16, -2048));
  EXPECT_EQ(evaluate(program, graph, inputs).outputs.at("same"), Array::scalar_f64(DType::f16, 2048));
  EXPECT_EQ(evaluate(program, graph, inputs, {false}).outputs.at("y"), Array::scalar_f64(DType::f64, -2049));
}

TEST(Evaluator, NodeTakesAbsentOperands) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {2}}), bias = graph.add_input("b", {DType::f32, {2}});
  const NodeId node = graph.add_node(Op::layer_norm, {x, kNoValue, bias}, {{"epsilon", 0.0}});
  const std::vector<Array> results =
      evaluate_node(graph, graph.node(node), {f32({2}, {1, 3}), {}, f32({2}, {5, 5})}, {});
  EXPECT_EQ(results.at(0), f32({2}, {4, 6}));
}

}  // namespace
}  // namespace aicf
