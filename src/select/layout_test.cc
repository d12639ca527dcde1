#include "select/layout.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

const Dim kBatch = Dim::symbol("batch"), kSequence = Dim::symbol("sequence");

Window dense(Shape shape) { return row_major_window(0, {DType::f32, std::move(shape)}); }

TEST(Layout, ReshapeOfRowMajorStorageIsAView) {
  const auto window =
      reshape_window(dense({kBatch, kSequence, Dim(384)}), {kBatch, kSequence, Dim(12), Dim(32)});
  ASSERT_TRUE(window.has_value());
  EXPECT_TRUE(is_row_major(*window));
}

TEST(Layout, TheStrideOfAnAxisOfOneElementIsNobodys) {
  Window window = dense({kBatch, Dim(1), Dim(32)});
  window.strides[1] = Dim(7);
  EXPECT_TRUE(is_row_major(window));
  window.strides[0] = Dim(7);
  EXPECT_FALSE(is_row_major(window));
}

TEST(Layout, HeadsSplitFromATransposedViewKeepTheirStrides) {
  const Window transposed = transpose_window(dense({kBatch, Dim(384), kSequence}), {0, 2, 1});
  const auto heads = reshape_window(transposed, {kBatch, kSequence, Dim(12), Dim(32)});
  ASSERT_TRUE(heads.has_value());
  EXPECT_EQ(heads->strides[1], Dim(1));
  EXPECT_EQ(heads->strides[2], Dim(32) * kSequence);
  EXPECT_EQ(heads->strides[3], kSequence);
}

TEST(Layout, MergingAxesThatAreNotAdjacentNeedsACopy) {
  const Window heads = transpose_window(dense({kBatch, Dim(12), kSequence, Dim(32)}), {0, 2, 1, 3});
  EXPECT_FALSE(reshape_window(heads, {kBatch, kSequence, Dim(384)}).has_value());
}

TEST(Layout, SizeOneAxesComeAndGo) {
  const Window column = transpose_window(dense({Dim(7), kBatch}), {1, 0});
  const auto wide = reshape_window(column, {kBatch, Dim(1), Dim(7)});
  ASSERT_TRUE(wide.has_value());
  EXPECT_EQ(wide->strides[2], kBatch);
  const auto back = reshape_window(*wide, {kBatch, Dim(7)});
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->strides, column.strides);
}

TEST(Layout, BroadcastRepeatsByStrideZero) {
  const Window wide = broadcast_window(dense({Dim(1), Dim(5)}), {kBatch, Dim(3), Dim(5)});
  EXPECT_EQ(wide.strides, (std::vector<Dim>{Dim(0), Dim(0), Dim(1)}));
}

TEST(Layout, SliceAndReverseMoveTheOrigin) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {Dim(10)}});
  const NodeId slice = graph.add_node(
      Op::slice, {x}, {{"starts", Shape{Dim(2)}}, {"limits", Shape{Dim(9)}}, {"steps", Ints{3}}});
  const auto sliced =
      view_window(graph.node(slice), graph.type(graph.node(slice).results[0]), dense({Dim(10)}));
  ASSERT_TRUE(sliced.has_value());
  EXPECT_EQ(sliced->offset, Dim(2));
  EXPECT_EQ(sliced->strides[0], Dim(3));
  EXPECT_EQ(sliced->sizes[0], Dim(3));
  const NodeId reverse = graph.add_node(Op::reverse, {x}, {{"axes", Ints{0}}});
  const auto reversed = view_window(graph.node(reverse), graph.type(x), dense({Dim(10)}));
  EXPECT_EQ(reversed->offset, Dim(9));
  EXPECT_EQ(reversed->strides[0], Dim(-1));
}

}  // namespace
}  // namespace aicf
