// Several rows at a time: the bits are those of rows that are walked one by one.
#include <algorithm>

#include "kernels/testing/step.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using namespace tile_testing;
using step_testing::isa_levels;
using step_testing::Layout;
using step_testing::TestTensor;

// The loss of a classifier: labels per row, weights per column, a kept mask, a value per row.
TileProgram weighted_loss(DType dtype) {
  constexpr TileRegister kI{TileType::i64}, kMaskRow{TileType::mask, true};
  return {
      {dtype, DType::i64, DType::f32},
      {dtype, DType::f32, DType::boolean},
      {kFRow, kI, kMaskRow, kF, kF},
      {TileType::i64, TileType::f32, TileType::f32, TileType::f32, TileType::f32},
      {{load(scalar(0), 1, TileType::i64), constant(scalar(1), 1), load(0, 0),
        op(TileOp::reduce_max, scalar(2), 0), op(TileOp::inner_index, 1, -1, -1, -1, TileType::i64),
        op(TileOp::eq, 2, 1, scalar(0), -1, TileType::i64), store(5, 2, TileType::mask)},
       {op(TileOp::sub, 3, 0, scalar(2)), load(4, 2), op(TileOp::mul, 3, 3, 4), op(TileOp::exp, 0, 3),
        op(TileOp::reduce_sum, scalar(3), 0)},
       {op(TileOp::log, scalar(4), scalar(3)), op(TileOp::div, 3, 0, scalar(3)),
        op(TileOp::sub, 4, 3, scalar(1)), op(TileOp::select, 3, 2, 4, 3), store(3, 3), store_scalar(4, 4)}}};
}

// An outer axis without elements beside one of many rows: there is nothing to share out.
TEST(Tile, NoRowsBesideManyAreNoTiles) {
  const TileProgram program = weighted_loss(DType::f32);
  for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kGaps}) {
    TestTensor x(DType::f32, {0, 64, 8}, layout), label(DType::i64, {0, 64, 1}, layout),
        weight(DType::f32, {1, 1, 8}), y(DType::f32, {0, 64, 8}, layout),
        sums(DType::f32, {0, 64, 1}, layout), mask(DType::boolean, {0, 64, 8}, layout);
    const auto whole = [&](const TestTensor& t) { return broadcast(t.arg(), {0, 64, 8}); };
    step_testing::run_step({"tile",
                            {whole(x), whole(label), whole(weight)},
                            {whole(y), whole(sums), whole(mask)},
                            {1},
                            {},
                            &program},
                           IsaLevel::kPortable, false);
  }
}

// Many short rows are computed at a time, a few of them one by one: the bits are the same.
TEST(Tile, ShortRowsHaveTheSameBitsAloneAndTogether) {
  constexpr int64_t kRows = 150, kAlone = 5;
  for (IsaLevel isa : isa_levels())
    for (DType dtype : {DType::f32, DType::bf16})
      for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kGaps})
        for (int64_t n : {1, 10, 16, 17, 32}) {
          const TileProgram program = weighted_loss(dtype);
          TestTensor x(dtype, {kRows, n}, layout), label(DType::i64, {kRows, 1}), weight(DType::f32, {1, n});
          x.randomize(static_cast<uint64_t>(n)), weight.randomize(2);
          label.fill([&](int64_t i) { return static_cast<double>(i % n); });
          TestTensor y(dtype, {kRows, n}, layout), sums(DType::f32, {kRows, 1}),
              mask(DType::boolean, {kRows, n});
          TestTensor alone_y = TestTensor(dtype, {kRows, n}, layout), alone_sums(DType::f32, {kRows, 1}),
                     alone_mask(DType::boolean, {kRows, n});
          const auto run = [&](int64_t first, int64_t rows, TestTensor& to_y, TestTensor& to_sums,
                               TestTensor& to_mask) {
            const auto part = [&](const TensorArg& whole) {
              TensorArg arg = broadcast(whole, {kRows, n});
              arg.data = static_cast<std::byte*>(arg.data) + first * arg.strides[0] * dtype_bytes(arg.dtype);
              arg.sizes[0] = rows;
              return arg;
            };
            step_testing::run_step({"tile",
                                    {part(x.arg()), part(label.arg()), part(weight.arg())},
                                    {part(to_y.arg()), part(to_sums.arg()), part(to_mask.arg())},
                                    {1},
                                    {},
                                    &program},
                                   isa);
          };
          run(0, kRows, y, sums, mask);
          for (int64_t first = 0; first < kRows; first += kAlone)
            run(first, kAlone, alone_y, alone_sums, alone_mask);
          for (int64_t i = 0; i < y.count(); ++i) {
            ASSERT_EQ(y.bits(i), alone_y.bits(i)) << n << " at " << i;
            ASSERT_EQ(mask.get(i), i % n == i / n % n);
          }
          for (int64_t i = 0; i < kRows; ++i) ASSERT_EQ(sums.bits(i), alone_sums.bits(i));
        }
}

// Values that are read again after others were computed, two reductions in a stage, an operand that is one
// number per row, a store before the end.
TileProgram tangled() {
  return {{DType::f32, DType::f32, DType::f32},
          {DType::f32, DType::f32},
          {kF, kF, kFRow, kF, kF},
          std::vector<TileType>(5, TileType::f32),
          {{load(0, 0), load(1, 1), op(TileOp::mul, 3, 0, 1), op(TileOp::reduce_max, scalar(0), 3),
            op(TileOp::sub, 4, 0, 3), op(TileOp::add, 2, 4, 3), op(TileOp::mul, 4, 4, 4),
            op(TileOp::reduce_sum, scalar(1), 4), op(TileOp::reduce_min, scalar(2), 2)},
           {op(TileOp::sub, scalar(3), scalar(0), scalar(2)),
            op(TileOp::add, scalar(4), scalar(3), scalar(1)), load(1, 2), op(TileOp::div, 0, 1, 2),
            op(TileOp::sub, 3, scalar(4), 0), store(3, 3), op(TileOp::exp, 4, 2), op(TileOp::tanh, 3, 3),
            op(TileOp::mul, 0, 4, 3), op(TileOp::max, 0, scalar(3), 0), store(4, 0)}}};
}
// A mask per row, spread over the row, and a number per row in a stage that stores nothing.
TileProgram masked() {
  return {{DType::f32, DType::i64, DType::f32},
          {DType::f32, DType::f32},
          {kF, {TileType::i64}, kFRow, kFRow},
          std::vector<TileType>(2, TileType::f32),
          {{load(scalar(0), 2), load(1, 1, TileType::i64), op(TileOp::to_f32, 2, 1, -1, -1, TileType::i64),
            load(0, 0), op(TileOp::mul, 3, 0, scalar(0)), op(TileOp::reduce_sum, scalar(1), 3)},
           {op(TileOp::sub, 0, 3, scalar(1)), op(TileOp::mul, 0, 2, 0), store(3, 0), store(4, 2)}}};
}

// Four rows at a time where they suffice: the bits are those of rows that are walked one by one.
TEST(Tile, LongRowsHaveTheSameBitsAloneAndTogether) {
  constexpr int64_t kAlone = 3;
  struct Case {
    TileProgram (*program)();
    DType second;
    bool per_row_second, per_row_third, per_column;
  };
  const Case cases[] = {{[] { return layer_norm(384); }, DType::f32, false, false, true},
                        {tangled, DType::f32, false, true, false},
                        {masked, DType::i64, true, true, false}};
  for (IsaLevel isa : isa_levels())
    for (const Case& test : cases)
      for (int64_t rows : {4, 9, 30})
        for (int64_t n : {33, 48, 63, 384, 1000, 2048, 2049}) {
          const TileProgram program = test.program();
          const std::vector<int64_t> sizes = {rows, n}, columns = {1, n}, per_row = {rows, 1};
          TestTensor x(DType::f32, sizes),
              second(test.second, test.per_column       ? columns
                                  : test.per_row_second ? per_row
                                                        : sizes),
              third(DType::f32, test.per_column      ? columns
                                : test.per_row_third ? per_row
                                                     : sizes);
          x.randomize(static_cast<uint64_t>(n)), second.randomize(2), third.randomize(3);
          const auto run = [&](int64_t step) {
            std::vector<TestTensor> outputs;
            for (size_t i = 0; i < program.outputs.size(); ++i) outputs.emplace_back(DType::f32, sizes);
            for (TestTensor& output : outputs) output.poison();
            for (int64_t first = 0; first < rows; first += step) {
              const auto part = [&](const TensorArg& whole) {
                TensorArg arg = broadcast(whole, sizes);
                arg.data =
                    static_cast<std::byte*>(arg.data) + first * arg.strides[0] * dtype_bytes(arg.dtype);
                arg.sizes[0] = std::min(step, rows - first);
                return arg;
              };
              std::vector<TensorArg> to;
              for (const TestTensor& output : outputs) to.push_back(part(output.arg()));
              step_testing::run_step(
                  {"tile", {part(x.arg()), part(second.arg()), part(third.arg())}, to, {1}, {}, &program},
                  isa);
            }
            return outputs;
          };
          const std::vector<TestTensor> together = run(rows), alone = run(kAlone);
          for (size_t o = 0; o < together.size(); ++o)
            for (int64_t i = 0; i < x.count(); ++i)
              ASSERT_EQ(together[o].bits(i), alone[o].bits(i)) << rows << "x" << n << " at " << i;
        }
}

}  // namespace
}  // namespace aicf
