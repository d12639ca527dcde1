// Which values are stored with padded rows.
#include "select/storage_order.h"

#include <gtest/gtest.h>

#include "select/select.h"

namespace aicf {
namespace {

// A product of what a kernel makes, and what else a test adds.
struct Product {
  explicit Product(const Dim& depth = Dim(50), DType dtype = DType::bf16) {
    x = graph.add_input("x", {dtype, {Dim(64), depth}});
    turned = graph.add(Op::transpose, {graph.add(Op::exp, {x})}, {{"perm", Ints{1, 0}}});
    made = graph.producer(turned)->operands[0];
    graph.add_output(graph.add(Op::matmul, {turned, y()}), "product");
  }
  ValueId y() { return graph.add_input("y", {graph.dtype(x), {Dim(64), Dim(96)}}); }
  Shape padded(const char* target = "sm_90") const {
    return padded_shapes(graph, Target::from_name(target))[static_cast<size_t>(made)];
  }

  Graph graph{"main"};
  ValueId x, turned, made;
};

TEST(PaddedRows, OperandsOfProductsBeginAtUnits) {
  const Product product;
  EXPECT_EQ(product.padded(), (Shape{Dim(64), Dim(56)}));
  EXPECT_EQ(product.padded("cpu"), Shape());
  const CallGraph calls = select_kernels(product.graph, Target::from_name("sm_90"), {});
  const Window& made = calls.placement[static_cast<size_t>(product.made)];
  EXPECT_EQ(made.strides, (std::vector<Dim>{Dim(56), Dim(1)}));
  EXPECT_EQ(element_count(calls.type_of(made.root).shape), Dim(64 * 56));
  const Window& turned = calls.placement[static_cast<size_t>(product.turned)];
  EXPECT_EQ(turned.strides, (std::vector<Dim>{Dim(1), Dim(56)}));
}

TEST(PaddedRows, WholeUnitsShortRowsAndWideTypesStay) {
  EXPECT_EQ(Product(Dim(56)).padded(), Shape());
  EXPECT_EQ(Product(Dim(27)).padded(), (Shape{Dim(64), Dim(32)}));
  EXPECT_EQ(Product(Dim(25)).padded(), Shape());  // of which the padding would be more than a quarter
  EXPECT_EQ(Product(Dim::symbol("k")).padded(), Shape());
  EXPECT_EQ(Product(Dim(50), DType::f32).padded(), Shape());
}

// What two regions make side by side, as the operand of a product.
TEST(PaddedRows, PartsOfAConcatLieInItsRows) {
  Graph graph("main");
  const ValueId a = graph.add(Op::exp, {graph.add_input("a", {DType::f16, {Dim(64), Dim(192)}})}),
                b = graph.add(Op::neg, {graph.add_input("b", {DType::f16, {Dim(64), Dim(63)}})}),
                both = graph.add(Op::concat, {a, b}, {{"axis", int64_t{1}}}),
                y = graph.add_input("y", {DType::f16, {Dim(255), Dim(96)}});
  graph.add_output(graph.add(Op::matmul, {both, y}), "product");
  const CallGraph calls = select_kernels(graph, Target::from_name("sm_90"), {});
  const Window& whole = calls.placement[static_cast<size_t>(both)];
  EXPECT_EQ(whole.strides, (std::vector<Dim>{Dim(256), Dim(1)}));
  for (const auto& [part, first] : {std::pair(a, 0), {b, 192}}) {
    const Window& window = calls.placement[static_cast<size_t>(part)];
    EXPECT_EQ(window.root, whole.root);
    EXPECT_EQ(window.offset, Dim(first));
    EXPECT_EQ(window.strides, whole.strides);
  }
  EXPECT_EQ(calls.calls.size(), 3u);
  EXPECT_EQ(calls.calls.back().inputs[0].strides, whole.strides);
}

TEST(PaddedRows, WhatOthersReadDense) {
  Product given;
  given.graph.add_output(given.made, "made");
  EXPECT_EQ(given.padded(), Shape());
  Product merged;
  merged.graph.add_output(merged.graph.add(Op::exp, {merged.graph.add(Op::reshape, {merged.made},
                                                                      {{"shape", Shape{Dim(3200)}}})}),
                          "merged");
  EXPECT_EQ(merged.padded(), Shape());
  Product split;
  split.graph.add_output(
      split.graph.add(
          Op::exp, {split.graph.add(Op::reshape, {split.made}, {{"shape", Shape{Dim(8), Dim(8), Dim(50)}}})}),
      "split");
  EXPECT_EQ(split.padded(), (Shape{Dim(64), Dim(56)}));
}

}  // namespace
}  // namespace aicf
