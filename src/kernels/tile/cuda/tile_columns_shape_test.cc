// Which threads share columns follows from an estimate that orders forms as an H100 does.
#include "kernels/tile/cuda/tile_columns_shape.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/cuda_machine.h"

namespace aicf {
namespace {

constexpr ColumnsStage kSum{.load_bytes = 4, .first_bytes = 4, .reductions = 1, .instructions = 2},
    kResult{.walks = false, .partials = 1};

ColumnsWork sums_of(double places, double length, double columns) {
  return {.places = places,
          .columns = columns,
          .length = length,
          .most_vector = 4,
          .column_bytes = 4,
          .stages = {kSum, kResult}};
}
ColumnsWork norm_of(double places, double length, double columns) {
  const ColumnsStage again{
      .reads = false, .load_bytes = 4, .reductions = 1, .partials = 1, .instructions = 4},
      last{.reads = false, .load_bytes = 4, .store_bytes = 4, .partials = 1, .instructions = 6};
  return {.places = places,
          .columns = columns,
          .length = length,
          .column_bytes = 4,
          .stages = {kSum, again, last}};
}

double microseconds(const ColumnsWork& work, const ColumnsShape& shape) {
  return columns_cycles(work, shape) / kCyclesPerMicrosecond;
}
double blocks_of(const ColumnsWork& work, const ColumnsShape& shape) {
  return std::ceil(work.places * std::ceil(work.columns / shape.vector) / shape.across) * shape.splits;
}

// Pairs of forms of f32, of which an H100 took less time for the first.
TEST(TileColumnsShape, OrdersFormsAsTimed) {
  struct Pair {
    ColumnsWork work;
    ColumnsShape faster, slower;
  };
  const Pair pairs[] = {
      {sums_of(1000, 4096, 32), {4, 256, 8, 1}, {4, 512, 4, 1}},  // 178, 188 us
      {sums_of(32, 197, 768), {4, 128, 8, 1}, {4, 512, 32, 2}},   // 5.6, 14.1
      {norm_of(1, 384, 36), {1, 128, 1, 1}, {1, 128, 32, 1}},     // 4.0, 21.6, with a transpose
  };
  for (const Pair& pair : pairs) {
    EXPECT_LT(microseconds(pair.work, pair.faster), microseconds(pair.work, pair.slower))
        << pair.work.places << " x " << pair.work.length << " x " << pair.work.columns;
  }
}

// A norm over 384 channels of 36 places takes many multiprocessors, in one launch.
TEST(TileColumnsShape, FewPlacesOfLongColumnsSpread) {
  const ColumnsWork work = norm_of(1, 384, 36);
  const ColumnsShape shape = columns_shape(work);
  EXPECT_EQ(shape.splits, 1);
  EXPECT_GE(blocks_of(work, shape), 18);
  EXPECT_LE(work.length / shape.deep(), vectors_at_once(4 * shape.vector, work.length / shape.deep()))
      << "one round of loads for each stage";
  EXPECT_LT(4 * microseconds(work, shape), microseconds(work, {1, 128, 32, 1}));
}

// Blocks come two to a multiprocessor where few do: an H200 took 48 us in a program, 25 alone.
TEST(TileColumnsShape, FewBlocksOfLongColumnsMayShareMultiprocessors) {
  ColumnsStage first{
      .load_bytes = 2, .first_bytes = 2, .reductions = 1, .lane_registers = 1, .instructions = 2},
      second = first;
  second.reads = false, second.first_bytes = 0, second.partials = 1;
  const ColumnsWork work{.places = 12,
                         .columns = 256,
                         .length = 4096,
                         .most_vector = 8,
                         .column_bytes = 2,
                         .stages = {first, second, kResult}};
  const ColumnsShape few{8, 512, 4, 1};  // 96
  EXPECT_GT(microseconds(work, few), microseconds(work, columns_shape(work)));
  EXPECT_GE(blocks_of(work, columns_shape(work)), 2 * kMultiprocessors * 0.9);
  // Blocks with so many registers that two have no room stay apart.
  ColumnsWork more_registers = work;
  more_registers.stages[0].lane_registers = 5;
  EXPECT_LT(microseconds(more_registers, few), microseconds(work, few));
}

// Short columns of odd places, of which a thread loads single elements: it asks for many before it waits, so
// that few threads share a column and the machine is filled few times. An H200 took 14.7 us for 10,668 blocks
// of 8 elements a thread.
TEST(TileColumnsShape, NarrowElementsComeManyAtOnce) {
  EXPECT_EQ(vectors_at_once(2, 16), 16);
  EXPECT_EQ(vectors_at_once(2, 17), 17);
  EXPECT_EQ(vectors_at_once(2, 33), 8) << "rounds: a register holds one";
  EXPECT_EQ(vectors_at_once(8, 17), 8) << "rounds";
  EXPECT_EQ(vectors_at_once(16, 16), 8);
  ColumnsWork work = sums_of(7586, 32, 45);
  work.most_vector = 1, work.column_bytes = 2;
  work.stages[0].load_bytes = work.stages[0].first_bytes = 2;
  const ColumnsShape shape = columns_shape(work);
  EXPECT_GE(work.length / shape.deep(), 16);
  EXPECT_EQ(shape.splits, 1);
  // A few more than 16 need no second thread either: 8,729 blocks, where 17,459 took 22.9 us.
  work.places = 38529, work.length = 17, work.columns = 29;
  EXPECT_EQ(columns_shape(work).deep(), 1);
}

// Rows are read once where a thread can keep its elements, and again in every stage where it can not, or
// where blocks share them.
TEST(TileColumnsShape, FewElementsAreHeld) {
  const ColumnsWork work = norm_of(1, 384, 36);
  EXPECT_EQ(held_elements(work, columns_shape(work)), std::ceil(384.0 / columns_shape(work).deep()));
  EXPECT_EQ(held_elements(work, {1, 512, 16, 1}), 12);
  EXPECT_EQ(held_elements(work, {1, 128, 16, 1}), 0) << "more than registers hold";
  EXPECT_EQ(held_elements(work, {1, 512, 16, 4}), 0) << "every stage is a launch";
  EXPECT_EQ(held_elements(sums_of(1, 16, 36), {1, 512, 16, 1}), 0) << "one stage reads them";
}

// Every form is one that a kernel can have, and no long row is left to part of the machine.
TEST(TileColumnsShape, FillsTheMachine) {
  for (const double places : {1, 3, 50, 4096})
    for (const double length : {2, 17, 300, 10000, 1000000})
      for (const double columns : {1, 3, 36, 64, 1000, 50257}) {
        if (places * length * columns > 1e9) continue;
        const ColumnsWork work = sums_of(places, length, columns);
        const ColumnsShape shape = columns_shape(work);
        EXPECT_EQ(shape.threads % shape.across, 0);
        EXPECT_LE(shape.splits * shape.deep(), length + shape.deep() - 1);
        EXPECT_LE(shape.vector, work.most_vector);
        ColumnsWork small_blocks = work;
        small_blocks.most_threads = 128;
        EXPECT_EQ(columns_shape(small_blocks).threads, 128);
        if (places * length * columns > 4e6) {
          EXPECT_GE(blocks_of(work, shape) * shape.threads, kMultiprocessors * 128)
              << places << " x " << length << " x " << columns;
        }
      }
}

}  // namespace
}  // namespace aicf
