// What add_gradients promises apart from the derivatives themselves: what is computed, in which order, names,
// errors.
#include "autodiff/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace aicf {
namespace {

Shape sizes(std::vector<int64_t> list) { return to_shape(list); }

ValueId total(Graph& graph, ValueId x) {
  Ints axes;
  for (int64_t i = 0; i < static_cast<int64_t>(graph.shape(x).size()); ++i) axes.push_back(i);
  return graph.add(Op::reduce_sum, {x}, {{"axes", axes}});
}

ErrorCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code;
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kI_check_failed;
}

int count(const Graph& graph, Op op) {
  int found = 0;
  for (const Node& node : graph.nodes()) found += node.op == op;
  return found;
}

TEST(Gradients, OnlyWhatIsNeeded) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, sizes({4, 3})});
  const ValueId w = graph.add_input("w", {DType::f32, sizes({3, 2})});
  const ValueId loss = total(graph, graph.add(Op::matmul, {x, w}));
  add_gradients(graph, loss, {w});
  EXPECT_EQ(count(graph, Op::matmul), 2) << "x needs no gradient";
}

TEST(Gradients, UsesAreAddedFromTheLastToTheFirst) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {}});
  const ValueId a = graph.add(Op::sin, {x}), b = graph.add(Op::cos, {x}), c = graph.add(Op::exp, {x});
  const ValueId loss = graph.add(Op::add, {graph.add(Op::add, {c, a}), b});
  const ValueId d = add_gradients(graph, loss, {x})[0];
  const auto uses = [&](ValueId id, size_t operand) { return graph.producer(id)->operands[operand]; };
  EXPECT_EQ(graph.value(d).name, "d_x");
  // ((exp's + cos') + sin's)
  EXPECT_EQ(graph.producer(uses(uses(d, 1), 1))->op, Op::cos);
  EXPECT_EQ(uses(uses(uses(d, 0), 0), 1), c);
}

TEST(Gradients, RepeatedOperandCountsTwice) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f64, {}});
  const ValueId loss = graph.add(Op::mul, {x, x});
  graph.add_output(add_gradients(graph, loss, {x})[0], "d");
  const EvalResult result = evaluate({}, graph, {{{"x", Array::scalar_f64(DType::f64, 3)}}, {}});
  EXPECT_EQ(result.outputs.at("d").get_f64(0), 6);
}

TEST(Gradients, StopGradientCountsAsAConstant) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f64, {}});
  const ValueId loss = graph.add(Op::mul, {x, graph.add(Op::stop_gradient, {x})});
  graph.add_output(add_gradients(graph, loss, {x})[0], "d");
  const EvalResult result = evaluate({}, graph, {{{"x", Array::scalar_f64(DType::f64, 3)}}, {}});
  EXPECT_EQ(result.outputs.at("d").get_f64(0), 3);
}

TEST(Gradients, OfTempsOfTheLossAndFromASeed) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f64, {}}), seed = graph.add_input("seed", {DType::f64, {}});
  const ValueId y = graph.add(Op::exp, {x}), loss = graph.add(Op::mul, {y, y});
  const std::vector<ValueId> d = add_gradients(graph, loss, {x, y, loss}, {seed});
  for (size_t i = 0; i < d.size(); ++i) graph.add_output(d[i], "d" + std::to_string(i));
  const Array one = Array::scalar_f64(DType::f64, 1), eight = Array::scalar_f64(DType::f64, 8);
  const EvalResult result = evaluate({}, graph, {{{"x", one}, {"seed", eight}}, {}});
  const double e = std::exp(1.0);
  EXPECT_DOUBLE_EQ(result.outputs.at("d0").get_f64(0), 16 * e * e);
  EXPECT_DOUBLE_EQ(result.outputs.at("d1").get_f64(0), 16 * e);
  EXPECT_EQ(result.outputs.at("d2").get_f64(0), 8);
}

TEST(Gradients, TheSameGraphTwice) {
  const auto make = [] {
    Graph graph;
    const Dim n = Dim::symbol("n");
    const ValueId x = graph.add_input("x", {DType::f32, {n, 8}});
    const ValueId w = graph.add_input("w", {DType::f32, sizes({8, 8})});
    const ValueId s = graph.add_input("s", {DType::f32, sizes({8})});
    ValueId y = x;
    for (int i = 0; i < 2; ++i) y = graph.add(Op::gelu, {graph.add(Op::linear, {y, w, s})});
    y = graph.add(Op::layer_norm, {y, s, kNoValue});
    graph.add_output(add_gradients(graph, total(graph, y), {w})[0], "d");
    Program program;
    program.sizes["n"] = {0, 100};
    program.entries.push_back(std::move(graph));
    verify(program, Fault::kInternal);
    return print(program);
  };
  EXPECT_EQ(make(), make());
}

TEST(GradientErrors, LossIsNoScalar) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, sizes({1})});
  const ValueId i = graph.add_input("i", {DType::i64, {}});
  EXPECT_EQ(code_of([&] { add_gradients(graph, x, {x}); }), ErrorCode::kU_loss_not_scalar);
  EXPECT_EQ(code_of([&] { add_gradients(graph, i, {x}); }), ErrorCode::kU_loss_not_scalar);
}

TEST(GradientErrors, IntegerWanted) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {}}), i = graph.add_input("i", {DType::i64, {}});
  EXPECT_EQ(code_of([&] { add_gradients(graph, x, {i}); }), ErrorCode::kU_integer_gradient);
}

TEST(GradientErrors, SeedOfAnotherType) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {}}), seed = graph.add_input("s", {DType::f64, {}});
  EXPECT_EQ(code_of([&] { add_gradients(graph, x, {x}, {seed}); }), ErrorCode::kU_misuse);
}

TEST(GradientErrors, Unused) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, sizes({2})}),
                y = graph.add_input("y", {DType::f32, {}});
  const ValueId z = graph.add_input("z", {DType::f32, {}});
  const ValueId loss = graph.add(Op::add, {y, graph.add(Op::floor, {z})});
  EXPECT_EQ(code_of([&] { add_gradients(graph, loss, {y, x}); }), ErrorCode::kU_unused_param);
  EXPECT_EQ(code_of([&] { add_gradients(graph, loss, {z}); }), ErrorCode::kU_unused_param);
  const ValueId zeros = add_gradients(graph, loss, {x}, {kNoValue, true})[0];
  EXPECT_EQ(graph.type(zeros), graph.type(x));
}

TEST(GradientErrors, AllUnusedParamsAreNamedAtOnce) {
  Graph graph;
  const ValueId a = graph.add_param("a", {DType::f32, {}}), b = graph.add_param("b", {DType::f32, {}}),
                c = graph.add_param("c", {DType::f32, {}});
  const ValueId loss = graph.add(Op::add, {b, graph.add(Op::stop_gradient, {c})});
  try {
    add_gradients(graph, loss, {a, b, c});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.value, "param 'a' f32[], param 'c' f32[]");
    EXPECT_NE(error.remedy.find(R"(ParamGroup{.patterns = {"a", "c"}, .trainable = false})"),
              std::string::npos)
        << error.remedy;
  }
}

TEST(GradientErrors, OpWithoutDerivative) {
  Graph then("then"), graph;
  then.add_output(then.add_input("x", {DType::f32, {}}), "y");
  const ValueId x = graph.add_input("x", {DType::f32, {}});
  const ValueId condition = graph.add_input("c", {DType::boolean, {}});
  const NodeId node = graph.add_node(Op::if_else, {condition, x}, {}, {then, then}, "layer 3");
  const ValueId loss = graph.node(node).results[0];
  try {
    add_gradients(graph, loss, {x});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_not_differentiable);
    EXPECT_EQ(error.op, "if_else (layer 3)");
    EXPECT_FALSE(error.remedy.empty());
  }
}

// The parts of a value that is taken apart come back side by side: no zeros are added.
TEST(Gradients, OfSlicesThatTouchAreAConcat) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f64, {Dim(2), Dim(9)}});
  const auto part = [&](int64_t from, int64_t to) {
    return graph.add(
        Op::slice, {x},
        {{"starts", Shape{Dim(0), Dim(from)}}, {"limits", Shape{Dim(2), Dim(to)}}, {"steps", Ints{1, 1}}});
  };
  const ValueId a = part(0, 3), b = part(3, 6), c = part(6, 9);
  const ValueId product = graph.add(Op::mul, {graph.add(Op::mul, {a, b}), c});
  const ValueId loss = graph.add(Op::reduce_sum, {product}, {{"axes", Ints{0, 1}}});
  const ValueId gradient = add_gradients(graph, loss, {x})[0];
  ASSERT_NE(graph.producer(gradient), nullptr);
  EXPECT_EQ(graph.producer(gradient)->op, Op::concat);
  EXPECT_EQ(graph.producer(gradient)->operands.size(), 3u);
}

}  // namespace
}  // namespace aicf
