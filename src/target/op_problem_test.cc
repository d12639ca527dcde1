#include "target/op_problem.h"

#include <gtest/gtest.h>

#include <functional>

namespace aicf {
namespace {

struct Case {
  std::string kernel;
  std::function<ValueId(Graph&)> build;
  std::vector<int64_t> params;
  std::vector<double> fparams;
};

ValueId input(Graph& graph, Shape shape, DType dtype = DType::f32) {
  return graph.add_input("x" + std::to_string(graph.value_count()), {dtype, std::move(shape)});
}

Attrs window_attrs() {
  return {
      {"kernel", Ints{2, 3}}, {"strides", Ints{1, 2}}, {"pads", Ints{0, 1, 1, 2}}, {"dilations", Ints{1, 1}}};
}

Attrs conv_attrs() {
  return {
      {"strides", Ints{1, 2}}, {"pads", Ints{0, 1, 1, 2}}, {"dilations", Ints{1, 1}}, {"groups", int64_t{2}}};
}

// Every list of parameters that a kernel row can ask for, by the op's attributes.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"conv_f32",
       [](Graph& g) {
         return g.add(Op::conv, {input(g, {1, 4, 8, 8}), input(g, {6, 2, 2, 3}), input(g, {6})},
                      conv_attrs());
       },
       {2, 2, 1, 1, 2, 0, 1, 1, 2, 1, 1},
       {}},
      {"conv_f32_depthwise",
       [](Graph& g) {
         return g.add(Op::conv, {input(g, {1, 2, 8, 8}), input(g, {2, 1, 2, 3})}, conv_attrs());
       },
       {2, 2, 0, 1, 2, 0, 1, 1, 2, 1, 1},
       {}},
      {"conv_transpose",
       [](Graph& g) {
         Attrs attrs = conv_attrs();
         attrs.set("output_padding", Ints{0, 1});
         return g.add(Op::conv_transpose, {input(g, {1, 4, 8, 8}), input(g, {4, 3, 2, 3})}, attrs);
       },
       {2, 2, 0, 1, 2, 0, 1, 1, 2, 1, 1, 0, 1},
       {}},
      {"max_pool",
       [](Graph& g) { return g.add(Op::max_pool, {input(g, {1, 4, 8, 8})}, window_attrs()); },
       {2, 0, 0, 2, 3, 1, 2, 0, 1, 1, 2, 1, 1},
       {}},
      {"max_pool_indices",
       [](Graph& g) { return g.add(Op::max_pool_indices, {input(g, {1, 4, 8, 8})}, window_attrs()); },
       {2, 0, 0, 2, 3, 1, 2, 0, 1, 1, 2, 1, 1},
       {}},
      {"avg_pool",
       [](Graph& g) { return g.add(Op::avg_pool, {input(g, {1, 4, 8, 8})}, window_attrs()); },
       {2, 0, 0, 2, 3, 1, 2, 0, 1, 1, 2, 1, 1},
       {}},
      {"attention_f32",
       [](Graph& g) {
         const ValueId q = input(g, {1, 2, 3, 4}), k = input(g, {1, 2, 5, 4}), v = input(g, {1, 2, 5, 4}),
                       mask = input(g, {3, 5});
         return g.add(Op::attention, {q, k, v, mask}, {{"scale", 0.5}, {"causal", true}});
       },
       {1, 1},
       {0.5, 0.0}},
      {"attention_backward_f32",
       [](Graph& g) {
         const ValueId q = input(g, {1, 2, 3, 4}), k = input(g, {1, 2, 5, 4}), v = input(g, {1, 2, 5, 4}),
                       out = input(g, {1, 2, 3, 4}), dout = input(g, {1, 2, 3, 4}), mask = input(g, {3, 5});
         const NodeId node = g.add_node(Op::attention_backward, {q, k, v, out, dout, mask}, {{"scale", 0.5}});
         return g.node(node).results[0];
       },
       {0, 1},
       {0.5, 0.0}},
      {"pad",
       [](Graph& g) {
         return g.add(Op::pad, {input(g, {4, 5})},
                      {{"low", Shape{1, 2}}, {"high", Shape{3, 0}}, {"mode", std::string("edge")}});
       },
       {1, 1, 2, 3, 0},
       {}},
      {"scatter_nd",
       [](Graph& g) {
         return g.add(Op::scatter_nd, {input(g, {4, 5}), input(g, {2, 1}, DType::i64), input(g, {2, 5})},
                      {{"reduction", std::string("max")}});
       },
       {3},
       {}},
      {"top_k",
       [](Graph& g) {
         return g.node(g.add_node(Op::top_k, {input(g, {4, 5})}, {{"k", Shape{2}}, {"axis", int64_t{1}}}))
             .results[0];
       },
       {1, 1},
       {}},
      {"size_of", [](Graph& g) { return g.add(Op::size_of, {}, {{"size", Shape{7}}}); }, {7}, {}},
  };
  return all;
}

TEST(OpProblem, ParametersComeFromAttributesByTheNamesOfTheRow) {
  for (const Case& c : cases()) {
    Graph graph("main");
    const ValueId result = c.build(graph);
    const Problem problem = problem_of(graph, *graph.producer(result));
    EXPECT_EQ(problem.fparams, c.fparams) << c.kernel;
    EXPECT_EQ(to_string(problem.params), to_string(Shape(c.params.begin(), c.params.end()))) << c.kernel;
    const std::vector<const Kernel*> rows = candidates(problem);
    ASSERT_FALSE(rows.empty()) << c.kernel;
    EXPECT_EQ(rows[0]->name, c.kernel);
  }
}

// That the CPU has no row for.
TEST(OpProblem, ARecurrentLayerIsDescribedByNumbers) {
  Graph graph("main");
  const Attrs attrs = {{"cell", std::string("gru")}, {"direction", std::string("reverse")}, {"keep", true}};
  const NodeId node = graph.add_node(
      Op::recurrent, {input(graph, {5, 2, 12}), input(graph, {1, 2, 4}), input(graph, {1, 12, 4})}, attrs);
  std::vector<Dim> params;
  std::vector<double> fparams;
  fill_params(graph, graph.node(node), *find_row("recurrent_cluster"), params, fparams);
  EXPECT_EQ(to_string(params), "[1, 1, 1]");
  EXPECT_TRUE(fparams.empty());
}

}  // namespace
}  // namespace aicf
