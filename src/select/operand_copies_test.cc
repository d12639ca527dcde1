// Which operands become copies: of products on matrix units, with rows of whole 16 bytes; of regions and
// epilogues, along the axis over which these run.
#include <gtest/gtest.h>

#include "ir/region.h"
#include "select/select.h"

namespace aicf {
namespace {

struct Net {
  int64_t rows = 4096, depth = 255, columns = 256;
  bool turned = true;     // w is stored as [N, K]
  bool known = true;      // w is a weight, not an input
  bool x_aligned = true;  // x is made by a region, which pads its rows
  bool twice = false;     // w is read by a second product
  DType dtype = DType::f16;
};

CallGraph selected(const Net& net, const char* target = "sm_90") {
  Graph graph("main");
  const auto x = [&](const char* name) {
    const ValueId input = graph.add_input(name, {net.dtype, {Dim(net.rows), Dim(net.depth)}});
    return net.x_aligned ? graph.add(Op::exp, {input}) : input;
  };
  const TensorType type{net.dtype, net.turned ? Shape{Dim(net.columns), Dim(net.depth)}
                                              : Shape{Dim(net.depth), Dim(net.columns)}};
  const ValueId w = net.known ? graph.add_param("w", type) : graph.add_input("w", type);
  const auto product = [&](const char* name) {
    return graph.add(Op::matmul, {x(name), w}, {{"transpose_y", net.turned}});
  };
  graph.add_output(product("x"), "y");
  if (net.twice) graph.add_output(product("other"), "z");
  return select_kernels(graph, Target::from_name(target), {});
}

bool multiplies_by_wgmma(const KernelCall& call) {
  const auto* way = std::get_if<MatmulWay>(&row_call(call)->way);
  return way != nullptr && is_wgmma(*way);
}

TEST(OperandCopies, WeightsGetWholeRowsAtLoad) {
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

TEST(OperandCopies, RowsAlongColumnsStaySo) {
  const CallGraph calls = selected({.depth = 256, .columns = 250, .turned = false});
  ASSERT_EQ(calls.init_calls.size(), 1u);
  EXPECT_EQ(calls.calls.back().inputs[1].strides, (std::vector<Dim>{Dim(256), Dim(1)}));
}

TEST(OperandCopies, WholeRowsAreReadWhereTheyLie) {
  const CallGraph calls = selected({.depth = 256});
  EXPECT_TRUE(calls.init_calls.empty());
  EXPECT_EQ(calls.calls.size(), 2u);
}

// A run's own operand is copied where that takes less time than it saves.
TEST(OperandCopies, TheEstimateDecidesOverCopiesOfARun) {
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

// Those of f32 are copied for products by parts alone.
TEST(OperandCopies, ProductsByPartsReadWholeRowsToo) {
  const Net net{.x_aligned = false, .dtype = DType::f32};
  const CallGraph calls = selected(net);
  ASSERT_EQ(calls.init_calls.size(), 1u);
  ASSERT_EQ(calls.calls.size(), 2u);
  EXPECT_EQ(calls.calls[0].outputs[0].strides, (std::vector<Dim>{Dim(256), Dim(1)}));
  EXPECT_EQ(row_call(calls.calls[1])->row, "matmul_tf32x3");
  EXPECT_EQ(selected(net, "sm_80").calls.size(), 1u);
  EXPECT_EQ(selected({.rows = 64, .x_aligned = false, .dtype = DType::f32}).calls.size(), 1u);
}

// x [batch, 200, columns] and, of the other, its transpose, in a region along rows.
CallGraph selected_region(int64_t batch, bool x_transposed, int64_t columns = 200) {
  const TensorType type{DType::f16, {Dim(batch), Dim(200), Dim(columns)}};
  const TensorType across{DType::f16, {Dim(batch), Dim(columns), Dim(200)}};
  Graph body("body");
  const ValueId x = body.add_input("x", type), other = body.add_input("other", type);
  const ValueId sum = body.add(Op::add, {x, other});
  const ValueId most = body.add(Op::reduce_max, {sum}, {{"axes", Ints{2}}, {"keepdims", true}});
  body.add_output(body.add(Op::sub, {sum, most}), "y");
  Graph graph("main");
  const auto operand = [&](const char* name, bool transposed) {
    const ValueId input = graph.add_input(name, transposed ? across : type);
    return transposed ? graph.add(Op::transpose, {input}, {{"perm", Ints{0, 2, 1}}}) : input;
  };
  const ValueId first = operand("x", x_transposed), second = operand("other", true);
  const NodeId node =
      graph.add_node(Op::fused, {first, second}, {{"kind", std::string(kTileRegion)}}, {body});
  graph.add_output(graph.node(node).results[0], "y");
  return select_kernels(graph, Target::from_name("sm_90"), {});
}

TEST(OperandCopies, ARegionReadsLargeOperandsAlongItsRows) {
  const CallGraph large = selected_region(512, false);
  ASSERT_EQ(large.calls.size(), 2u);
  EXPECT_EQ(large.calls[1].inputs[1], large.calls[0].outputs[0]);
  EXPECT_EQ(large.calls[1].inputs[1].strides.back(), Dim(1));
  EXPECT_EQ(selected_region(1, false).calls.size(), 1u);   // the cache holds what is read again
  EXPECT_EQ(selected_region(512, true).calls.size(), 1u);  // all lie across: the region runs along columns
  EXPECT_EQ(selected_region(1 << 17, false, 1).calls.size(), 1u);  // an axis of one element has no neighbours
}

TEST(OperandCopies, AnEpilogueReadsLargeOperandsAlongItsRows) {
  const auto calls = [](int64_t batch) {
    Graph graph("main"), body("body");
    const auto type = [&](int64_t rows, int64_t columns) {
      return TensorType{DType::f16, {Dim(batch), Dim(rows), Dim(columns)}};
    };
    const TensorType types[] = {type(200, 64), type(64, 200), type(200, 200)};
    std::vector<ValueId> inputs, operands;
    for (const TensorType& t : types) {
      inputs.push_back(body.add_input("x" + std::to_string(inputs.size()), t));
      operands.push_back(graph.add_input("x" + std::to_string(operands.size()), t));
    }
    const ValueId product = body.add(Op::matmul, {inputs[0], inputs[1]});
    body.add_output(body.add(Op::add, {product, inputs[2]}), "y");
    operands[2] = graph.add(Op::transpose, {operands[2]}, {{"perm", Ints{0, 2, 1}}});
    const NodeId node = graph.add_node(Op::fused, operands, {{"kind", std::string("matmul")}}, {body});
    graph.add_output(graph.node(node).results[0], "y");
    return select_kernels(graph, Target::from_name("sm_90"), {}).calls;
  };
  const std::vector<KernelCall> large = calls(512);
  ASSERT_EQ(large.size(), 2u);
  EXPECT_EQ(large[1].inputs[2], large[0].outputs[0]);
  EXPECT_EQ(calls(1).size(), 1u);
}

}  // namespace
}  // namespace aicf
