// The traits of ops.def on rounding, against what the evaluator computes.
#include "ir/rounding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/splitmix.h"
#include "ir/reference/evaluator.h"

namespace aicf {
namespace {

constexpr int64_t kCount = 400;

// The op over halves x0, x1, …, and a condition.
Program program_of(Op op, DType half) {
  Graph graph("main");
  std::vector<ValueId> operands;
  for (const OperandInfo& operand : op_info(op).operands)
    operands.push_back(
        graph.add_input("x" + std::to_string(operands.size()),
                        {operand.type == "bool" ? DType::boolean : half, {Dim(kCount / 4), Dim(4)}}));
  Attrs attrs;
  if (op_info(op).has(kReduction)) attrs.set("axes", Ints{1});
  graph.add_output(graph.add(op, operands, attrs), "y");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

// In f64, with digits that no half has, values that are equal once they are rounded, and ties.
EvalInputs wide_inputs(const Program& program, uint64_t seed) {
  SplitMix random(seed);
  EvalInputs inputs;
  const Graph& graph = program.entries[0];
  for (ValueId id : graph.inputs()) {
    const bool condition = graph.dtype(id) == DType::boolean;
    Array array(condition ? DType::boolean : DType::f64, {kCount / 4, 4});
    for (int64_t i = 0; i < kCount; ++i) {
      if (condition)
        array.set_i64(i, static_cast<int64_t>(random.next() % 2));
      else
        array.set_f64(i, std::ldexp(random.unit() - 0.5, static_cast<int>(random.next() % 5) * 5 - 20) +
                             (random.next() % 3 == 0 ? 1 : 0));
    }
    inputs.inputs.emplace(graph.value(id).name, std::move(array));
  }
  return inputs;
}

// How many results differ when they are rounded in place of the operands.
int64_t moved_by_rounding_late(Op op, DType half) {
  const Program program = program_of(op, half);
  const Graph& graph = program.entries[0];
  const EvalInputs inputs = wide_inputs(program, 5);
  const Array early = evaluate(program, graph, inputs).outputs.at("y");
  const Array late = evaluate(program, graph, inputs, {false}).outputs.at("y");
  Array rounded(half, late.sizes());
  int64_t moved = 0;
  for (int64_t i = 0; i < late.count(); ++i) {
    rounded.set_f64(i, late.get_f64(i));
    moved += early.get_f64(i) != rounded.get_f64(i);
  }
  return moved;
}

TEST(RoundingTraits, ExactOpsMayBeRoundedLater) {
  int exact = 0;
  for (const OpInfo& info : op_table())
    for (const DType half : {DType::f16, DType::bf16}) {
      if (!info.has(kExact)) continue;
      ++exact;
      EXPECT_EQ(moved_by_rounding_late(info.op, half), 0) << info.name << " " << dtype_name(half);
    }
  EXPECT_GT(exact, 10);
  for (const Op op : {Op::add, Op::mul, Op::floor, Op::reduce_sum})
    EXPECT_GT(moved_by_rounding_late(op, DType::bf16), 0) << op_info(op).name;
}

TEST(RoundingTraits, OnlyCompositesAreStepwise) {
  for (const OpInfo& info : op_table())
    if (info.has(kStepwise)) {
      EXPECT_TRUE(info.has(kComposite)) << info.name;
    }
}

}  // namespace
}  // namespace aicf
