// Every op has rows in the tables of this folder's tests, pointwise ops broadcast, and errors say what
// differs.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {
namespace {

// A dtype of the operand's class; every class but bool and integer_or_bool has one of these first.
DType sample_dtype(const OpInfo& info, const OperandInfo& operand) {
  std::string cls = operand.type;
  for (const auto& [variable, type_class] : info.types)
    if (variable == operand.type) cls = type_class;
  for (DType dtype : {DType::f32, DType::i32, DType::boolean})
    if (dtype_in_class(dtype, cls)) return dtype;
  return DType::i64;
}

std::string run_pointwise(const OpInfo& info, const std::vector<Shape>& shapes) {
  Graph graph;
  std::vector<ValueId> operands;
  for (const OperandInfo& operand : info.operands)
    operands.push_back(graph.add_input(
        operand.name, {sample_dtype(info, operand), shapes[operands.size() % shapes.size()]}));
  Attrs attrs;
  if (info.attribute("dtype")) attrs.set("dtype", DType::f16);
  try {
    return to_string(graph.shape(graph.add(info.op, operands, attrs)));
  } catch (const UserError& error) {
    return std::string(error_info(error.code).name);
  }
}

TEST(ShapeRules, EveryPointwiseOpBroadcasts) {
  const Dim n = Dim::symbol("n");
  for (const OpInfo& info : op_table()) {
    if (!info.has(kPointwise)) continue;
    SCOPED_TRACE(info.name);
    const bool unary = info.operands.size() == 1;
    EXPECT_EQ(run_pointwise(info, {{n, 3}}), "[n, 3]");
    EXPECT_EQ(run_pointwise(info, {{0}}), "[0]");
    EXPECT_EQ(run_pointwise(info, {{}}), "[]");
    EXPECT_EQ(run_pointwise(info, {{n, 3}, {3}}), "[n, 3]");
    EXPECT_EQ(run_pointwise(info, {{2}, {3}}), unary ? "[2]" : "bad_shape");
  }
}

TEST(ShapeRules, EveryOpIsTested) {
  std::set<Op> tested;
  for (const auto& cases : {pointwise_shapes(), view_shapes(), indexing_shapes(), reduction_shapes(),
                            contraction_shapes(), window_shapes(), composite_shapes(), control_flow_shapes()})
    for (const ShapeCase& c : cases) tested.insert(c.op);
  std::string untested;
  for (const OpInfo& info : op_table())
    if (!info.has(kPointwise) && !tested.count(info.op)) untested += " " + std::string(info.name);
  EXPECT_EQ(untested, "");
}

TEST(ShapeRules, ErrorsNameSizesOpAndOrigin) {
  Graph graph;
  const ValueId a = graph.add_input("a", parse_type("f32[n, 3]")),
                b = graph.add_input("b", parse_type("f32[m, 3]"));
  try {
    graph.add(Op::add, {a, b}, {}, "encoder/Add");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.op, "add (encoder/Add)");
    EXPECT_EQ(error.value, "x f32[n, 3], y f32[m, 3]");
    EXPECT_EQ(error.actual, "n and m");
  }
}

}  // namespace
}  // namespace aicf::testing
