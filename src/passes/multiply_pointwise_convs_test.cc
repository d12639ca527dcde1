// Convolutions of one tap as products: where, and that they mean the same.
#include <gtest/gtest.h>

#include "passes/testing/run_pass.h"

namespace aicf {
namespace {

using testing::count_ops;
using testing::expect_equal_meaning;

Graph multiplied(const Program& program) {
  static const Target gpu = Target::from_name("sm_90");
  return testing::run_pass(multiply_pointwise_convs, program, gpu);
}

struct Conv {
  Shape x = {2, 5, 6}, kernel = {1};
  bool has_bias = true;
  DType dtype = DType::f64;
  int64_t stride = 1, groups = 1;
};

Ints along(const Shape& kernel, int64_t n, size_t times = 1) { return Ints(times * kernel.size(), n); }

ValueId add_conv(Graph& graph, const Conv& conv, ValueId x, const std::string& name) {
  Shape w = {7 * Dim(conv.groups), floordiv(conv.x[1], Dim(conv.groups))};
  w.insert(w.end(), conv.kernel.begin(), conv.kernel.end());
  std::vector<ValueId> operands = {x, graph.add_input(name, {conv.dtype, w})};
  if (conv.has_bias) operands.push_back(graph.add_input(name + ".bias", {conv.dtype, {w[0]}}));
  return graph.add(Op::conv, operands,
                   {{"strides", along(conv.kernel, conv.stride)},
                    {"pads", along(conv.kernel, 0, 2)},
                    {"dilations", along(conv.kernel, 1)},
                    {"groups", conv.groups}});
}

// The convolution of a function of x; what reads it is up to the caller.
struct Model {
  explicit Model(const Conv& conv, const SymbolRanges& sizes = {}) {
    program.sizes = sizes;
    x = graph.add(Op::exp, {graph.add_input("x", {conv.dtype, conv.x})});
    y = add_conv(graph, conv, x, "w");
  }
  const Program& finish(ValueId result) {
    graph.add_output(result, "y");
    program.entries.push_back(std::move(graph));
    return program;
  }
  const Program& finish_by_rows() {
    const auto last = static_cast<int64_t>(graph.shape(y).size()) - 1;
    return finish(graph.add(Op::reduce_max, {graph.add(Op::tanh, {y})}, {{"axes", Ints{last}}}));
  }

  Program program;
  Graph graph{"main"};
  ValueId x, y;
};

int convs_left(const Program& program, const SymbolValues& sizes = {}) {
  const Graph after = multiplied(program);
  expect_equal_meaning(program, after, sizes);
  EXPECT_EQ(count_ops(after, Op::conv) + count_ops(after, Op::matmul),
            count_ops(program.entries[0], Op::conv) + count_ops(program.entries[0], Op::matmul));
  return count_ops(after, Op::conv);
}

TEST(MultiplyPointwiseConvs, BesideReductionsOfRows) {
  for (const Conv& conv : {Conv{}, Conv{.x = {3, 4, 3, 5}, .kernel = {1, 1}, .has_bias = false}})
    EXPECT_EQ(convs_left(Model(conv).finish_by_rows()), 0);
  Conv ranged;
  ranged.x = {Dim::symbol("n"), 5, Dim::symbol("p")};
  Model model(ranged, {{"n", {1, 5}}, {"p", {2, 9}}});
  EXPECT_EQ(convs_left(model.finish_by_rows(), {{"n", 3}, {"p", 4}}), 0);
}

TEST(MultiplyPointwiseConvs, BesideProducts) {
  Model model({});
  const ValueId w = model.graph.add_input("v", {DType::f64, {6, 3}});
  EXPECT_EQ(convs_left(model.finish(model.graph.add(Op::matmul, {model.y, w}))), 0);
}

TEST(MultiplyPointwiseConvs, ThoseThatNothingWantsByRowsStay) {
  Model model({});
  EXPECT_EQ(convs_left(model.finish(model.graph.add(Op::tanh, {model.y}))), 1);
}

TEST(MultiplyPointwiseConvs, ThoseOfWindowsStay) {
  for (const Conv& conv : {Conv{.kernel = {3}}, Conv{.stride = 2}, Conv{.x = {2, 6, 6}, .groups = 2}})
    EXPECT_EQ(convs_left(Model(conv).finish_by_rows()), 1);
}

TEST(MultiplyPointwiseConvs, ThoseBesideWindowsStay) {
  Model model({});
  Conv window;
  window.x = {2, 7, 6}, window.kernel = {3};
  const ValueId tanh = model.graph.add(Op::tanh, {model.y});
  model.graph.add_output(add_conv(model.graph, window, tanh, "u"), "windows");
  EXPECT_EQ(convs_left(model.finish_by_rows()), 2);
}

TEST(MultiplyPointwiseConvs, ThoseThatTurnToChannelsStay) {
  Model model({});
  model.graph.add_output(model.graph.add(Op::transpose, {model.y}, {{"perm", Ints{0, 2, 1}}}), "turned");
  EXPECT_EQ(convs_left(model.finish_by_rows()), 1);
}

// A product would be rounded before its bias is added.
TEST(MultiplyPointwiseConvs, HalvesWithABiasStay) {
  Conv half;
  half.dtype = DType::bf16;
  EXPECT_EQ(count_ops(multiplied(Model(half).finish_by_rows()), Op::conv), 1);
  half.has_bias = false;
  EXPECT_EQ(count_ops(multiplied(Model(half).finish_by_rows()), Op::conv), 0);
}

}  // namespace
}  // namespace aicf
