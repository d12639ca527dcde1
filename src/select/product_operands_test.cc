// Which operands of products of halves become copies with rows of whole 16 bytes.
#include <gtest/gtest.h>

#include "select/select.h"

namespace aicf {
namespace {

struct Net {
  int64_t rows = 4096, depth = 255, columns = 256;
  bool turned = true;     // w is stored as [N, K]
  bool known = true;      // w is a weight, not an input
  bool x_aligned = true;  // x is made by a region, which pads its rows
  bool twice = false;     // w is read by a second product
};

CallGraph selected(const Net& net) {
  Graph graph("main");
  const auto x = [&](const char* name) {
    const ValueId input = graph.add_input(name, {DType::f16, {Dim(net.rows), Dim(net.depth)}});
    return net.x_aligned ? graph.add(Op::exp, {input}) : input;
  };
  const TensorType type{DType::f16, net.turned ? Shape{Dim(net.columns), Dim(net.depth)}
                                               : Shape{Dim(net.depth), Dim(net.columns)}};
  const ValueId w = net.known ? graph.add_param("w", type) : graph.add_input("w", type);
  const auto product = [&](const char* name) {
    return graph.add(Op::matmul, {x(name), w}, {{"transpose_y", net.turned}});
  };
  graph.add_output(product("x"), "y");
  if (net.twice) graph.add_output(product("other"), "z");
  return select_kernels(graph, Target::from_name("sm_90"), {});
}

bool multiplies_by_wgmma(const KernelCall& call) {
  const auto* way = std::get_if<MatmulWay>(&row_call(call)->way);
  return way != nullptr && is_wgmma(*way);
}

TEST(ProductOperands, WeightsGetWholeRowsAtLoad) {
  const CallGraph calls = selected({.twice = true});
  ASSERT_EQ(calls.init_calls.size(), 1u);  // one copy for both
  const Window& copy = calls.init_calls[0].outputs[0];
  EXPECT_EQ(calls.init_calls[0].inputs[0].sizes, copy.sizes);
  const KernelCall& product = calls.calls.back();
  EXPECT_TRUE(multiplies_by_wgmma(product)) << product.reason;
  EXPECT_EQ(product.inputs[1].root, copy.root);
  EXPECT_EQ(product.inputs[1].sizes, (Shape{Dim(255), Dim(256)}));  // K stays: nothing beyond it is summed
  EXPECT_EQ(product.inputs[1].strides, (std::vector<Dim>{Dim(1), Dim(256)}));
  EXPECT_EQ(calls.calls.size(), 4u);
}

TEST(ProductOperands, RowsAlongColumnsStaySo) {
  const CallGraph calls = selected({.depth = 256, .columns = 250, .turned = false});
  ASSERT_EQ(calls.init_calls.size(), 1u);
  EXPECT_EQ(calls.calls.back().inputs[1].strides, (std::vector<Dim>{Dim(256), Dim(1)}));
}

TEST(ProductOperands, WholeRowsAreReadWhereTheyLie) {
  const CallGraph calls = selected({.depth = 256});
  EXPECT_TRUE(calls.init_calls.empty());
  EXPECT_EQ(calls.calls.size(), 2u);
}

// A run's own operand is copied where that takes less time than it saves.
TEST(ProductOperands, TheEstimateDecidesOverCopiesOfARun) {
  const CallGraph many = selected({.rows = 65536, .x_aligned = false});
  ASSERT_EQ(many.calls.size(), 2u);
  EXPECT_EQ(many.calls[0].outputs[0].strides, (std::vector<Dim>{Dim(256), Dim(1)}));
  EXPECT_EQ(many.calls[1].inputs[0], many.calls[0].outputs[0]);
  EXPECT_TRUE(multiplies_by_wgmma(many.calls[1]));
  const CallGraph few = selected({.rows = 64, .depth = 63, .columns = 64, .x_aligned = false});
  EXPECT_EQ(few.calls.size(), 1u);
  // The copy of x would take a start and an edge more than its bytes, that of w takes them.
  const CallGraph some = selected(
      {.rows = 200, .depth = 333, .columns = 251, .turned = false, .known = false, .x_aligned = false});
  ASSERT_EQ(some.calls.size(), 2u);
  EXPECT_EQ(some.calls[1].inputs[1].root, some.calls[0].outputs[0].root);
}

}  // namespace
}  // namespace aicf
