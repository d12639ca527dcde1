#include "ir/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aicf {
namespace {

const TensorType kF32x4{DType::f32, {4}};
const TensorType kI64x4{DType::i64, {4}};

// The error that `body` throws; fails if it throws none.
template <typename Body>
UserError user_error(Body body) {
  try {
    body();
  } catch (const UserError& error) {
    return error;
  }
  ADD_FAILURE() << "expected a UserError";
  return UserError(ErrorCode::kU_bad_option, "none");
}

template <typename Body>
void expect_code(ErrorCode code, Body body) {
  const UserError error = user_error(body);
  EXPECT_EQ(error.code, code) << error.what();
}

// y = relu(x + c) with an unused param and an unused node.
Graph sample() {
  Graph graph("sample");
  const ValueId x = graph.add_input("x", kF32x4);
  graph.add_input("unused_input", kF32x4);
  const ValueId w = graph.add_param("w", kF32x4);
  const ValueId c = graph.add_constant(Array(DType::f32, {4}), "c");
  const ValueId sum = graph.add(Op::add, {x, c}, {}, "layer/Add");
  graph.set_name(sum, "sum");
  graph.add(Op::neg, {w});
  graph.add_output(graph.add(Op::relu, {sum}), "y");
  return graph;
}

Graph identity_body(const TensorType& type) {
  Graph body("identity");
  body.add_output(body.add_input("a", type), "r");
  return body;
}

TEST(Graph, NodesAndValues) {
  const Graph graph = sample();
  EXPECT_EQ(graph.inputs().size(), 2u);
  EXPECT_EQ(graph.leaves().size(), 4u);
  ASSERT_EQ(graph.nodes().size(), 3u);
  const Node* relu = graph.producer(graph.outputs()[0]);
  ASSERT_NE(relu, nullptr);
  EXPECT_EQ(relu->op, Op::relu);
  EXPECT_EQ(graph.producer(graph.inputs()[0]), nullptr);
  EXPECT_EQ(to_string(graph.type(graph.outputs()[0])), "f32[4]");
  EXPECT_EQ(graph.use_counts(), (std::vector<int>{1, 0, 1, 1, 1, 0, 1}));
}

TEST(Graph, OperandCount) {
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  expect_code(ErrorCode::kU_bad_operand_count, [&] { graph.add(Op::add, {x}); });
  expect_code(ErrorCode::kU_bad_operand_count, [&] { graph.add(Op::add, {x, x, x}); });
  expect_code(ErrorCode::kU_bad_operand_count, [&] { graph.add(Op::add, {x, kNoValue}); });
  expect_code(ErrorCode::kU_bad_operand_count, [&] { graph.add(Op::concat, {}, {{"axis", int64_t{0}}}); });
  expect_code(ErrorCode::kU_bad_operand_count,
              [&] { graph.add(Op::concat, {x, kNoValue}, {{"axis", int64_t{0}}}); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add(Op::add, {x, 17}); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add(Op::add, {x, -2}); });
  EXPECT_EQ(graph.value_count(), 1);
  EXPECT_TRUE(graph.nodes().empty());
}

TEST(Graph, AbsentOptionalOperandsAreFilledUp) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {2, 4}});
  const ValueId bias = graph.add_input("bias", kF32x4);
  const NodeId none = graph.add_node(Op::layer_norm, {x});
  EXPECT_EQ(graph.node(none).operands, (std::vector<ValueId>{x, kNoValue, kNoValue}));
  const NodeId second = graph.add_node(Op::layer_norm, {x, kNoValue, bias});
  EXPECT_EQ(graph.node(second).operands, (std::vector<ValueId>{x, kNoValue, bias}));
}

TEST(Graph, DTypeErrorsNameOperandAndClass) {
  Graph graph;
  const ValueId f = graph.add_input("f", kF32x4), i = graph.add_input("i", kI64x4);
  const UserError mixed = user_error([&] { graph.add(Op::add, {f, i}, {}, "layer/Add_3"); });
  EXPECT_EQ(mixed.code, ErrorCode::kU_bad_dtype);
  EXPECT_EQ(mixed.op, "add (layer/Add_3)");
  EXPECT_EQ(mixed.value, "operand 'y'");
  EXPECT_EQ(mixed.expected, "f32, as operand 'x'");
  EXPECT_EQ(mixed.actual, "i64");
  const UserError cls = user_error([&] { graph.add(Op::exp, {i}); });
  EXPECT_EQ(cls.code, ErrorCode::kU_bad_dtype);
  EXPECT_EQ(cls.expected, "float");
  EXPECT_EQ(cls.actual, "i64");
  expect_code(ErrorCode::kU_bad_dtype, [&] { graph.add(Op::select, {f, f, f}); });
}

TEST(Graph, Attributes) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {2, 4}});
  expect_code(ErrorCode::kU_bad_attribute, [&] { graph.add(Op::relu, {x}, {{"alpha", 1.0}}); });
  expect_code(ErrorCode::kU_bad_attribute, [&] { graph.add(Op::reduce_sum, {x}); });
  expect_code(ErrorCode::kU_bad_attribute, [&] { graph.add(Op::reduce_sum, {x}, {{"axes", int64_t{1}}}); });
  expect_code(ErrorCode::kU_bad_attribute, [&] { graph.add(Op::softmax, {x}, {{"axis", 1.0}}); });
  // Defaults are filled in and negative axes normalised.
  EXPECT_EQ(graph.producer(graph.add(Op::softmax, {x}))->attrs, (Attrs{{"axis", int64_t{1}}}));
  EXPECT_EQ(graph.producer(graph.add(Op::reduce_sum, {x}, {{"axes", Ints{-1, -2}}}))->attrs,
            (Attrs{{"axes", Ints{0, 1}}, {"keepdims", false}}));
  // Whole numbers widen to floats and sizes.
  EXPECT_EQ(graph.producer(graph.add(Op::elu, {x}, {{"alpha", int64_t{2}}}))->attrs, (Attrs{{"alpha", 2.0}}));
  EXPECT_EQ(graph.producer(graph.add(Op::reshape, {x}, {{"shape", Ints{8}}}))->attrs,
            (Attrs{{"shape", Shape{8}}}));
}

TEST(Graph, NamesAreUniqueAndVariablesAreShared) {
  Graph graph;
  graph.add_input("x", kF32x4);
  const ValueId w = graph.add_param("w", kF32x4), s = graph.add_state("s", kF32x4);
  EXPECT_EQ(graph.add_param("w", kF32x4), w);
  EXPECT_EQ(graph.add_state("s", kF32x4), s);
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_input("x", kF32x4); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_param("w", kI64x4); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_state("w", kF32x4); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_param("x", kF32x4); });
  EXPECT_EQ(graph.leaves().size(), 3u);
}

TEST(Graph, SizesMustBeLegal) {
  Graph graph;
  expect_code(ErrorCode::kU_bad_shape, [&] { graph.add_input("x", {DType::f32, {-1}}); });
  const int64_t big = int64_t{1} << 40;
  expect_code(ErrorCode::kU_size_overflow, [&] { graph.add_input("x", {DType::f32, {big, big}}); });
  graph.add_input("empty", {DType::f32, {big, 0, big}});
  const ValueId row = graph.add_input("row", {DType::f32, {big, 1}}),
                column = graph.add_input("column", {DType::f32, {1, big}});
  expect_code(ErrorCode::kU_size_overflow, [&] { graph.add(Op::add, {row, column}); });
}

TEST(Graph, Outputs) {
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  graph.add_output(x, "y");
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_output(x, "y"); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_output(5, "z"); });
}

TEST(Graph, Updates) {
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4), i = graph.add_input("i", kI64x4);
  const ValueId w = graph.add_param("w", kF32x4), s = graph.add_state("s", kF32x4);
  graph.add_update(w, x);
  graph.add_update(s, x);
  EXPECT_EQ(graph.updates().size(), 2u);
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_update(w, x); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_update(x, x); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_update(graph.add_state("t", kF32x4), i); });
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_update(w, 99); });
}

TEST(Graph, BodiesArePure) {
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  expect_code(ErrorCode::kU_bad_graph, [&] { graph.add_node(Op::neg, {x}, {}, {identity_body(kF32x4)}); });
  Graph reads = identity_body(kF32x4);
  reads.add_param("w", kF32x4);
  expect_code(ErrorCode::kU_bad_graph,
              [&] { graph.add_node(Op::fused, {x}, {{"kind", std::string("k")}}, {reads}); });
}

TEST(GraphRewriter, CopyAndFinishDropsDeadCode) {
  const Graph graph = sample();
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) rewriter.copy(node);
  const Graph copied = rewriter.finish();
  ASSERT_EQ(copied.nodes().size(), 2u);
  EXPECT_EQ(copied.inputs().size(), 2u);
  EXPECT_EQ(copied.leaves().size(), 3u);
  EXPECT_EQ(copied.nodes()[0].origin, "layer/Add");
  EXPECT_EQ(copied.value(copied.nodes()[0].results[0]).name, "sum");
  EXPECT_EQ(copied.output_names(), std::vector<std::string>{"y"});
  EXPECT_EQ(copied.name(), "sample");
}

// A graph of 100,000 nodes is copied by every pass.
TEST(GraphRewriter, CopiesShareAttributesAndChangesDoNotShow) {
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  const ValueId y = graph.add(Op::reshape, {x}, {{"shape", Shape{2, 2}}});
  graph.add_output(y, "y");
  GraphRewriter rewriter(graph);
  const Node& copy = rewriter.graph().node(rewriter.copy(graph.nodes()[0]));
  EXPECT_EQ(&copy.attrs.items(), &graph.nodes()[0].attrs.items());
  Attrs changed = copy.attrs;
  changed.set("shape", Shape{4});
  EXPECT_EQ(copy.attrs.get_dims("shape"), (Shape{2, 2}));
  EXPECT_FALSE(changed == copy.attrs);
}

TEST(GraphRewriter, CopyOverAnotherTypeIsTypedAnew) {
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  graph.add_output(graph.add(Op::neg, {x}), "y");
  GraphRewriter rewriter(graph);
  const ValueId wide = rewriter.graph().add(Op::cast, {rewriter.value(x)}, {{"dtype", DType::f64}});
  rewriter.map(x, wide);
  const NodeId copy = rewriter.copy(graph.nodes()[0]);
  EXPECT_EQ(rewriter.graph().dtype(rewriter.graph().node(copy).results[0]), DType::f64);
}

TEST(GraphRewriter, MapReplacesAndUnmappedIsOurBug) {
  const Graph graph = sample();
  GraphRewriter rewriter(graph);
  const Node& add = graph.nodes()[0];
  EXPECT_THROW(rewriter.value(add.results[0]), InternalError);
  EXPECT_EQ(rewriter.value(kNoValue), kNoValue);
  rewriter.map(add.results[0], rewriter.value(graph.inputs()[0]));
  rewriter.copy(graph.nodes()[2]);
  const Graph changed = rewriter.finish();
  ASSERT_EQ(changed.nodes().size(), 1u);
  EXPECT_EQ(changed.nodes()[0].operands[0], changed.inputs()[0]);
}

TEST(DeadCode, KeepsWhatUpdatesNeed) {
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  const ValueId w = graph.add_param("w", kF32x4);
  graph.add_update(w, graph.add(Op::neg, {x}));
  graph.add(Op::abs, {x});
  const Graph kept = eliminate_dead_code(graph);
  EXPECT_EQ(kept.nodes().size(), 1u);
  ASSERT_EQ(kept.updates().size(), 1u);
  EXPECT_EQ(kept.value(kept.updates()[0].variable).name, "w");
}

TEST(DeadCode, RecursesIntoBodiesAndKeepsTheirInputs) {
  Graph body("b");
  const ValueId a = body.add_input("a", kF32x4);
  const ValueId b = body.add_input("b", kF32x4);
  body.add(Op::neg, {b});
  body.add_output(body.add(Op::exp, {a}), "r");
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  const NodeId call = graph.add_node(Op::call, {x, x}, {{"name", std::string("f")}}, {body});
  graph.add_output(graph.node(call).results[0], "y");
  const Graph kept = eliminate_dead_code(graph);
  ASSERT_EQ(kept.nodes().size(), 1u);
  const Graph& kept_body = kept.nodes()[0].bodies[0];
  EXPECT_EQ(kept_body.nodes().size(), 1u);
  EXPECT_EQ(kept_body.inputs().size(), 2u);
}

TEST(InlineBody, AppendsNodesOverTheOperands) {
  Graph body("b");
  const ValueId a = body.add_input("a", kF32x4);
  const ValueId c = body.add_constant(Array(DType::f32, {}));
  body.add_output(body.add(Op::mul, {a, c}), "r");
  body.add_output(a, "same");
  Graph graph;
  const ValueId x = graph.add_input("x", kF32x4);
  const std::vector<ValueId> results = inline_body(graph, body, {x});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(graph.producer(results[0])->op, Op::mul);
  EXPECT_EQ(graph.producer(results[0])->operands[0], x);
  EXPECT_EQ(results[1], x);
  EXPECT_THROW(inline_body(graph, body, {}), InternalError);
  const ValueId other = graph.add_input("other", kI64x4);
  EXPECT_THROW(inline_body(graph, body, {other}), InternalError);
}

TEST(Program, EntryByName) {
  Program program;
  program.entries.emplace_back("step");
  EXPECT_EQ(program.entry("step"), &program.entries[0]);
  EXPECT_EQ(program.entry("eval"), nullptr);
}

}  // namespace
}  // namespace aicf
