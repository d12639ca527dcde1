#include "ir/reference/testing/op_case.h"

#include <gtest/gtest.h>

#include <set>

#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"

namespace aicf {

CaseTensor t(std::vector<int64_t> sizes, std::vector<double> values) { return {sizes, values, {}, false}; }
CaseTensor t(double scalar) { return {{}, {scalar}, {}, false}; }
CaseTensor of(DType dtype, std::vector<int64_t> sizes, std::vector<double> values) {
  return {sizes, values, dtype, false};
}
CaseTensor nothing() { return {{}, {}, {}, true}; }
CaseTensor i64(std::vector<int64_t> sizes, std::vector<double> values) {
  return of(DType::i64, sizes, values);
}
CaseTensor boolean(std::vector<int64_t> sizes, std::vector<double> values) {
  return of(DType::boolean, sizes, values);
}

namespace {

Array to_array(const CaseTensor& tensor, DType t_dtype) {
  if (tensor.absent) return {};
  Array array(tensor.dtype.value_or(t_dtype), tensor.sizes);
  EXPECT_EQ(array.count(), static_cast<int64_t>(tensor.values.size())) << "the row's sizes and values";
  for (int64_t k = 0; k < array.count(); ++k) array.set_f64(k, tensor.values[static_cast<size_t>(k)]);
  return array;
}

std::vector<DType> dtypes_of(const OpCase& row) {
  if (!row.dtypes.empty()) return row.dtypes;
  const OpInfo& info = op_info(row.op);
  if (info.types.empty()) return {DType::f32};
  std::vector<DType> dtypes;
  for (int k = 0; k < kDTypeCount; ++k)
    if (dtype_in_class(static_cast<DType>(k), info.types[0].second)) dtypes.push_back(static_cast<DType>(k));
  return dtypes;
}

double unit(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f32:
      return 0x1p-23;
    default:
      return 1e-13;
  }
}

void expect_equal(const Array& actual, const Array& expected, DType precision) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  const double tolerance = unit(precision);
  const CompareReport report = compare(actual, expected, tolerance, tolerance * 0x1p-6);
  EXPECT_TRUE(report.ok()) << to_string(report);
}

void expect_in_dtype(const OpCase& row, DType dtype) {
  std::vector<Array> operands, expected;
  for (const CaseTensor& tensor : row.operands) operands.push_back(to_array(tensor, dtype));
  for (const CaseTensor& tensor : row.expected) expected.push_back(to_array(tensor, dtype));
  const std::vector<Array> rounded = run_op(row.op, operands, row.attrs, row.bodies, true);
  const std::vector<Array> wide = run_op(row.op, operands, row.attrs, row.bodies, false);
  ASSERT_EQ(rounded.size(), expected.size());
  for (size_t k = 0; k < expected.size(); ++k) {
    EXPECT_EQ(rounded[k].dtype(), expected[k].dtype());
    expect_equal(rounded[k], expected[k], expected[k].dtype());
    EXPECT_EQ(wide[k].dtype(), is_float(expected[k].dtype()) ? DType::f64 : expected[k].dtype());
    expect_equal(wide[k], expected[k], expected[k].dtype());
  }
}

}  // namespace

std::vector<Array> run_op(Op op, const std::vector<Array>& operands, const Attrs& attrs,
                          const std::vector<Graph>& bodies, bool round_to_dtype) {
  Program program;
  Graph graph;
  EvalInputs inputs;
  std::vector<ValueId> ids;
  for (const Array& operand : operands) {
    if (operand.data() == nullptr) {
      ids.push_back(kNoValue);
      continue;
    }
    const std::string name = "x" + std::to_string(ids.size());
    ids.push_back(graph.add_input(name, {operand.dtype(), to_shape(operand.sizes())}));
    inputs.inputs[name] = operand;
  }
  const NodeId node = graph.add_node(op, ids, attrs, bodies);
  const std::vector<ValueId> results = graph.node(node).results;
  for (size_t k = 0; k < results.size(); ++k) graph.add_output(results[k], "y" + std::to_string(k));
  EvalResult result = evaluate(program, graph, inputs, {round_to_dtype});
  std::vector<Array> arrays;
  for (size_t k = 0; k < results.size(); ++k) arrays.push_back(result.outputs.at("y" + std::to_string(k)));
  if (round_to_dtype) {
    EXPECT_EQ(evaluate_node(graph, graph.node(node), operands, {}), arrays);
  }
  return arrays;
}

void expect_case(const OpCase& row) {
  for (DType dtype : dtypes_of(row)) {
    std::string text = std::string(op_info(row.op).name) + " in " + std::string(dtype_name(dtype));
    for (const CaseTensor& operand : row.operands) text += " " + to_string(operand.sizes);
    SCOPED_TRACE(text);
    try {
      expect_in_dtype(row, dtype);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

namespace {

class ReferenceOp : public testing::TestWithParam<std::vector<OpCase> (*)()> {};

TEST_P(ReferenceOp, Table) {
  for (const OpCase& row : GetParam()()) expect_case(row);
}

const auto kTables =
    testing::Values(pointwise_cases, views_cases, indexing_cases, reductions_cases, order_cases,
                    contractions_cases, windows_cases, random_cases, control_flow_cases, composites_cases);
INSTANTIATE_TEST_SUITE_P(Families, ReferenceOp, kTables);

TEST(ReferenceCoverage, EveryOpHasARow) {
  std::set<Op> covered;
  for (auto table : {pointwise_cases, views_cases, indexing_cases, reductions_cases, order_cases,
                     contractions_cases, windows_cases, random_cases, control_flow_cases, composites_cases})
    for (const OpCase& row : table()) covered.insert(row.op);
  for (const OpInfo& info : op_table())
    EXPECT_TRUE(covered.count(info.op)) << info.name << " has no test row";
}

}  // namespace
}  // namespace aicf
