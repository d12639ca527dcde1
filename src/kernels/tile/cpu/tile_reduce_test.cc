// Reductions over rows: their order, types and neutral elements, rows in parts.
#include <cmath>

#include "kernels/testing/step.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using namespace tile_testing;
using step_testing::isa_levels;
using step_testing::Layout;
using step_testing::TestTensor;

// The documented order: lanes, blocks of 4096, pairs.
float lane_sum(const std::vector<float>& x) {
  float lanes[16] = {}, totals[16] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    if (i > 0 && i % 4096 == 0)
      for (int l = 0; l < 16; ++l) totals[l] += lanes[l], lanes[l] = 0;
    lanes[i % 16] += x[i];
  }
  for (int l = 0; l < 16; ++l) totals[l] += lanes[l];
  for (int half = 8; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) totals[l] += totals[l + half];
  return totals[0];
}

TileProgram reduce(TileOp name, TileType type, DType dtype) {
  return {{dtype},
          {dtype},
          {{type}},
          {type},
          {{load(0, 0, type), op(name, scalar(0), 0, -1, -1, type), store_scalar(1, 0, type)}}};
}

TEST(Tile, SumsFollowTheLaneOrder) {
  const TileProgram program = reduce(TileOp::reduce_sum, TileType::f32, DType::f32);
  for (int64_t n : {0, 1, 15, 16, 17, 511, 512, 513, 4095, 4096, 4097, 10000, 100001})
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kGaps})
      for (IsaLevel isa : isa_levels())
        for (bool backwards : {false, true}) {
          TestTensor x(DType::f32, {5, n}, layout), y(DType::f32, {5, 1});
          x.randomize(5), y.poison();
          step_testing::run_step({"tile", {x.arg()}, {broadcast(y.arg(), {5, n})}, {1}, {}, &program}, isa,
                                 backwards);
          for (int64_t row = 0; row < 5; ++row) {
            std::vector<float> values;
            for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(x.get(row * n + i)));
            ASSERT_EQ(static_cast<float>(y.get(row)), lane_sum(values)) << n << " " << isa_name(isa);
          }
        }
}

// Rows that lie side by side are walked in transposed groups; the bits are those of contiguous rows.
TEST(Tile, ColumnSumsHaveTheBitsOfRowSums) {
  const TileProgram program = reduce(TileOp::reduce_sum, TileType::f32, DType::f32);
  for (int64_t n : {1, 3, 16, 100, 513, 5000, 20000})
    for (int64_t columns : {1, 15, 16, 17, 40})
      for (IsaLevel isa : isa_levels()) {
        const std::vector<int64_t> sizes = {2, columns, n};
        TestTensor x(DType::f32, sizes), y(DType::f32, {2, columns, 1}), rows(DType::f32, sizes),
            expected(DType::f32, {2, columns, 1});
        TensorArg across = x.arg();  // memory is [2, n, columns]
        across.strides[1] = 1, across.strides[2] = columns;
        x.randomize(7), y.poison();
        for (int64_t i = 0; i < x.count(); ++i)
          rows.set(i, static_cast<const float*>(
                          across.data)[i / (columns * n) * columns * n + i / n % columns + i % n * columns]);
        step_testing::run_step({"tile", {across}, {broadcast(y.arg(), sizes)}, {1}, {}, &program}, isa, true);
        step_testing::run_step({"tile", {rows.arg()}, {broadcast(expected.arg(), sizes)}, {1}, {}, &program},
                               isa);
        for (int64_t i = 0; i < y.count(); ++i) ASSERT_EQ(y.bits(i), expected.bits(i)) << n << " " << columns;
      }
}

// As those of a channel over pictures and places; the bits are those of rows that lie whole.
TEST(Tile, SumsOverRunsHaveTheBitsOfRowSums) {
  for (DType dtype : {DType::f32, DType::f16})
    for (int64_t places : {1, 9, 16, 49, 512, 700, 1536, 5000})
      for (IsaLevel isa : isa_levels()) {
        const int64_t channels = 3, pictures = 5;
        const TileProgram program = reduce(TileOp::reduce_sum, TileType::f32, dtype);
        const std::vector<int64_t> sizes = {channels, pictures, places};
        TestTensor x(dtype, sizes), y(dtype, {channels, 1, 1}), rows(dtype, sizes),
            expected(dtype, {channels, 1, 1});
        TensorArg runs = x.arg();  // memory is [pictures, channels, places]
        runs.strides[0] = places, runs.strides[1] = channels * places;
        x.randomize(9), y.poison(), expected.poison();
        for (int64_t i = 0; i < x.count(); ++i)
          rows.set(i,
                   x.get((i / places % pictures * channels + i / (pictures * places)) * places + i % places));
        step_testing::run_step({"tile", {runs}, {broadcast(y.arg(), sizes)}, {2}, {}, &program}, isa);
        step_testing::run_step({"tile", {rows.arg()}, {broadcast(expected.arg(), sizes)}, {2}, {}, &program},
                               isa);
        for (int64_t i = 0; i < channels; ++i) ASSERT_EQ(y.bits(i), expected.bits(i)) << places;
      }
}

TEST(Tile, ReductionsOfEveryType) {
  struct Row {
    TileOp op;
    double neutral;
    double (*combine)(double, double);
  };
  const Row rows[] = {{TileOp::reduce_sum, 0, [](double a, double b) { return a + b; }},
                      {TileOp::reduce_prod, 1, [](double a, double b) { return a * b; }},
                      {TileOp::reduce_max, -INFINITY, [](double a, double b) { return std::max(a, b); }},
                      {TileOp::reduce_min, INFINITY, [](double a, double b) { return std::min(a, b); }}};
  const std::pair<TileType, DType> types[] = {{TileType::f32, DType::f32}, {TileType::f64, DType::f64},
                                              {TileType::i32, DType::i32}, {TileType::i64, DType::i64},
                                              {TileType::f32, DType::f16}, {TileType::i32, DType::i8}};
  for (IsaLevel isa : isa_levels())
    for (const Row& row : rows)
      for (auto [type, dtype] : types)
        for (int64_t n : {1, 5, 16, 100, 600}) {
          const TileProgram program = reduce(row.op, type, dtype);
          TestTensor x(dtype, {9, n}), y(dtype, {9, 1});
          // Products stay exact: mostly ones.
          x.fill([&](int64_t i) {
            return row.op == TileOp::reduce_sum && dtype == DType::i8 ? (i % 7 == 0) - (i % 5 == 0)
                   : i % 97 == 0                                      ? 2
                   : i % 89                                           ? 1
                                                                      : -1;
          });
          step_testing::run_step({"tile", {x.arg()}, {broadcast(y.arg(), {9, n})}, {1}, {}, &program}, isa);
          for (int64_t r = 0; r < 9; ++r) {
            double expected = row.neutral;
            for (int64_t i = 0; i < n; ++i) expected = row.combine(expected, x.get(r * n + i));
            ASSERT_EQ(y.get(r), dtype == DType::i8 ? static_cast<int8_t>(std::lround(expected)) : expected);
          }
        }
}

TEST(Tile, EmptyRowsGiveNeutralElementsAndNanPropagates) {
  const std::pair<TileOp, double> rows[] = {{TileOp::reduce_sum, 0},
                                            {TileOp::reduce_prod, 1},
                                            {TileOp::reduce_max, -INFINITY},
                                            {TileOp::reduce_min, INFINITY}};
  for (IsaLevel isa : isa_levels())
    for (auto [name, neutral] : rows) {
      const TileProgram program = reduce(name, TileType::f32, DType::f32);
      TestTensor x(DType::f32, {3, 0}), y(DType::f32, {3, 1});
      step_testing::run_step({"tile", {x.arg()}, {broadcast(y.arg(), {3, 0})}, {1}, {}, &program}, isa);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(y.get(i), neutral);
      for (int64_t at = 0; at < 40; ++at) {
        TestTensor v(DType::f32, {1, 40}), w(DType::f32, {1, 1});
        v.fill([&](int64_t i) { return i == at ? NAN : i == 39 - at ? INFINITY : 1; });
        step_testing::run_step({"tile", {v.arg()}, {broadcast(w.arg(), {1, 40})}, {1}, {}, &program}, isa);
        EXPECT_TRUE(std::isnan(w.get(0))) << at;
      }
    }
}
// Long rows are shared by several tiles; each block's lanes are combined in the order of the blocks, so the
// bits are those of a row among so many that each is walked alone.
TEST(Tile, PartsOfARowHaveTheBitsOfTheWholeRow) {
  constexpr int64_t kMany = 12;
  for (IsaLevel isa : isa_levels())
    for (TileOp name : {TileOp::reduce_sum, TileOp::reduce_prod, TileOp::reduce_max, TileOp::reduce_min})
      for (auto [type, dtype] : {std::pair(TileType::f32, DType::f32), std::pair(TileType::f64, DType::f64),
                                 std::pair(TileType::i64, DType::i64), std::pair(TileType::f32, DType::bf16)})
        for (int64_t n : {65536, 70001, 131072 + 4097}) {
          const TileProgram program = reduce(name, type, dtype);
          TestTensor x(dtype, {1, n}), one(dtype, {1, 1}), many(dtype, {kMany, 1});
          x.randomize(static_cast<uint64_t>(n));
          one.poison(), many.poison();
          TensorArg repeated = x.arg();
          repeated.sizes[0] = kMany, repeated.strides[0] = 0;
          step_testing::run_step({"tile", {x.arg()}, {broadcast(one.arg(), {1, n})}, {1}, {}, &program}, isa,
                                 true);
          step_testing::run_step({"tile", {repeated}, {broadcast(many.arg(), {kMany, n})}, {1}, {}, &program},
                                 isa);
          ASSERT_EQ(one.bits(0), many.bits(3)) << tile_op_info(name).name << " of " << n;
        }
}

}  // namespace
}  // namespace aicf
