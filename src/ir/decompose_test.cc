#include "ir/decompose.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "ir/rounding.h"
#include "ir/testing/decompose_cases.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace aicf {
namespace {

using testing::both_forms;
using testing::decompose_cases;
using testing::DecomposeCase;

TEST(Decompose, EveryCompositeHasCases) {
  std::set<Op> covered;
  for (const DecomposeCase& test : decompose_cases()) covered.insert(test.op);
  for (const OpInfo& row : op_table()) EXPECT_EQ(covered.contains(row.op), row.has(kComposite)) << row.name;
}

TEST(Decompose, GivesTheSameTypesFromPrimitivesOfThisOrigin) {
  for (const DecomposeCase& test : decompose_cases())
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool symbolic : {false, true}) {
        const Program program = both_forms(test, dtype, symbolic);
        const std::string text = print(program);
        const Graph& graph = program.entries[0];
        const size_t count = graph.node(0).results.size();
        ASSERT_EQ(graph.outputs().size(), 2 * count) << text;
        for (size_t i = 0; i < count; ++i)
          EXPECT_EQ(graph.type(graph.outputs()[i]), graph.type(graph.outputs()[count + i])) << text;
        for (size_t i = 1; i < graph.nodes().size(); ++i) {
          const OpInfo& emitted = op_info(graph.nodes()[i].op);
          EXPECT_TRUE(!emitted.has(kComposite) || emitted.has(kPointwise) || emitted.has(kStepwise)) << text;
          EXPECT_EQ(graph.nodes()[i].origin, "here") << text;
        }
        EXPECT_NO_THROW(verify(program, Fault::kInternal)) << text;
        EXPECT_EQ(print(parse(text)), text);
      }
}

TEST(Decompose, PrimitivesAreRefused) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {2}});
  const Node node = graph.node(graph.add_node(Op::neg, {x}));
  EXPECT_THROW(decompose(graph, node, {x}), InternalError);
}

TEST(Decompose, SizesThatAreSymbolicAreReadWhenRunning) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("n"), 4}});
  const Node mean = graph.node(graph.add_node(Op::reduce_mean, {x}, {{"axes", Ints{0, 1}}}));
  decompose(graph, mean, {x});
  EXPECT_NE(print(graph).find("size_of() {dtype = f32, size = [4*n]} : f32[]"), std::string::npos)
      << print(graph);
}

}  // namespace
}  // namespace aicf
