// Sums over rows that a region takes along, and what it then still stores.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

// A region with values per row gives one result; sums over all rows read it, by a view of its rows, and
// perhaps something else does.
enum class Other { kNothing, kNode, kOutput, kView };

Program step(Other other) {
  const TensorType rows{DType::f32, {Dim(32), Dim(64), Dim(128)}};
  Graph body("body");
  const ValueId a = body.add_input("x0", rows);
  const ValueId top = body.add(Op::reduce_max, {a}, {{"axes", Ints{2}}, {"keepdims", true}});
  body.add_output(body.add(Op::sub, {a, top}), "y0");
  Graph graph("main");
  const NodeId region =
      graph.add_node(Op::fused, {graph.add_input("x", rows)}, {{"kind", std::string("tile")}}, {body});
  const ValueId y = graph.node(region).results[0];
  const ValueId view = graph.add(Op::reshape, {y}, {{"shape", Shape{Dim(2048), Dim(128)}}});
  graph.add_output(graph.add(Op::reduce_sum, {view}, {{"axes", Ints{0}}, {"keepdims", true}}), "sums");
  if (other == Other::kNode) graph.add_output(graph.add(Op::exp, {y}), "y");
  if (other == Other::kOutput) graph.add_output(y, "y");
  if (other == Other::kView) graph.add_output(view, "y");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

size_t results_of_region(const Program& program) {
  const Target gpu = Target::from_name("sm_90");
  const PassContext context{.program = program, .target = gpu, .gradients = true};
  const Graph after = merge_column_sums(program.entries[0], context);
  EXPECT_EQ(testing::count_ops(after, Op::reduce_sum), 0) << print(after);
  testing::expect_equal_meaning(program, after, {}, 1e-6);
  return after.nodes()[0].results.size();
}

TEST(MergeColumnSums, StoresWhatSomethingBesidesTheSumsReads) {
  EXPECT_EQ(results_of_region(step(Other::kNothing)), 1u);
  for (const Other other : {Other::kNode, Other::kOutput, Other::kView})
    EXPECT_EQ(results_of_region(step(other)), 2u) << static_cast<int>(other);
}

}  // namespace
}  // namespace aicf
