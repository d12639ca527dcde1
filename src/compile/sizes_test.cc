// Sizes of nothing, sizes as values, and programs that only some sizes of their ranges fit.
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/compile.h"
#include "compile/testing/compiled.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::sizes_test {
namespace {

using testing::loaded_on_cpu;

Program program_of(Graph graph, Interval n) {
  Program program;
  program.sizes["n"] = n;
  program.entries.push_back(std::move(graph));
  return program;
}

TEST(Sizes, EmptyTensorsRunAndReduceToNeutralElements) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(2), Dim(0), Dim(4)}});
  graph.add_output(graph.add(Op::reduce_prod, {x}, {{"axes", Ints{1}}, {"keepdims", true}}), "prod");
  graph.add_output(graph.add(Op::reduce_sum, {x}, {{"axes", Ints{2}}, {"keepdims", true}}), "sum");
  graph.add_output(graph.add(Op::exp, {x}), "exp");
  auto results = loaded_on_cpu(compile(program_of(std::move(graph), {1, 1})))
                     .run("", std::map<std::string, Array>{{"x", Array(DType::f32, {2, 0, 4})}});
  ASSERT_EQ(results.at("prod").count(), 8);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(results.at("prod").get_f64(i), 1);
  EXPECT_EQ(results.at("sum").sizes(), (std::vector<int64_t>{2, 0, 1}));
  EXPECT_EQ(results.at("exp").count(), 0);
}

TEST(Sizes, AreValues) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("n")}});
  const ValueId n = graph.add(Op::size_of, {}, {{"size", Shape{Dim::symbol("n")}}, {"dtype", DType::f32}});
  graph.add_output(graph.add(Op::div, {x, n}), "y");
  Executable exe = loaded_on_cpu(compile(program_of(std::move(graph), {1, 9})));
  for (int64_t size : {1, 4, 9}) {
    Array ones(DType::f32, {size});
    for (int64_t i = 0; i < size; ++i) ones.set_f64(i, 1);
    const Array y = exe.run("", std::map<std::string, Array>{{"x", ones}}).at("y");
    EXPECT_FLOAT_EQ(static_cast<float>(y.get_f64(0)), 1.0f / static_cast<float>(size));
  }
}

// One op over the last axis of x[2, n].
Graph over_rows(Op op, const Attrs& attrs) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(2), Dim::symbol("n")}});
  graph.add_output(graph.node(graph.add_node(op, {x}, attrs)).results[0], "y");
  return graph;
}

TEST(Sizes, MustHoldWhatIsPicked) {
  const Attrs arg{{"axis", int64_t{1}}}, three{{"axis", int64_t{1}}, {"k", Shape{Dim(3)}}};
  const auto code = [](const Graph& graph, Interval n) {
    try {
      compile(program_of(graph, n));
    } catch (const UserError& error) {
      return error.code;
    }
    return ErrorCode::kU_misuse;  // none
  };
  EXPECT_EQ(code(over_rows(Op::top_k, three), {2, 8}), ErrorCode::kU_bad_shape);
  EXPECT_EQ(code(over_rows(Op::top_k, three), {3, 8}), ErrorCode::kU_misuse);
  for (const Op op : {Op::argmax, Op::argmin}) {
    EXPECT_EQ(code(over_rows(op, arg), {0, 8}), ErrorCode::kU_bad_shape);
    EXPECT_EQ(code(over_rows(op, arg), {1, 8}), ErrorCode::kU_misuse);
  }
}

// x[:, 0] of no columns: the range may begin at 0, and the call is refused, not the file.
TEST(Sizes, OfNothingThatDoNotFitAreTheCallersMistake) {
  const Attrs first{
      {"starts", Shape{Dim(0), Dim(0)}}, {"limits", Shape{Dim(2), Dim(1)}}, {"steps", Ints{1, 1}}};
  Graph graph = over_rows(Op::slice, first);
  graph.add_output(graph.add(Op::reshape, {graph.outputs()[0]}, {{"shape", Shape{Dim(2)}}}), "column");
  Executable exe = loaded_on_cpu(compile(program_of(std::move(graph), {0, 8})));
  try {
    exe.run("", std::map<std::string, Array>{{"x", Array(DType::f32, {2, 0})}});
    ADD_FAILURE() << "ran";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_size_out_of_range) << error.text();
    EXPECT_EQ(error.value, "n=0");
  }
  EXPECT_EQ(exe.run("", std::map<std::string, Array>{{"x", Array(DType::f32, {2, 3})}}).size(), 2u);
}

}  // namespace
}  // namespace aicf::sizes_test
