// Domains, layouts, reductions, stages and the refusals of the tile kernel.
#include <cmath>
#include <random>

#include "kernels/testing/step.h"
#include "kernels/tile/cpu/tile_rows.h"

namespace aicf {
namespace {

using step_testing::isa_levels;
using step_testing::Layout;
using step_testing::TestTensor;

TileInstr load(int reg, int operand, TileType type = TileType::f32) {
  TileInstr instr{TileOp::load, type, static_cast<int16_t>(reg)};
  instr.operand = static_cast<int16_t>(operand);
  return instr;
}
TileInstr store(int operand, int reg, TileType type = TileType::f32) {
  TileInstr instr{TileOp::store, type, -1, static_cast<int16_t>(reg)};
  instr.operand = static_cast<int16_t>(operand);
  return instr;
}
TileInstr store_scalar(int operand, int scalar, TileType type = TileType::f32) {
  TileInstr instr = store(operand, kTileScalarBase + scalar, type);
  instr.op = TileOp::store_scalar;
  return instr;
}
TileInstr op(TileOp name, int dst, int a = -1, int b = -1, int c = -1, TileType type = TileType::f32) {
  return {name,
          type,
          static_cast<int16_t>(dst),
          static_cast<int16_t>(a),
          static_cast<int16_t>(b),
          static_cast<int16_t>(c)};
}
TileInstr constant(int dst, double value) {
  TileInstr instr = op(TileOp::constant, dst);
  instr.imm_f = value;
  return instr;
}
int scalar(int number) { return kTileScalarBase + number; }

constexpr TileRegister kF{TileType::f32, false}, kFRow{TileType::f32, true};

// (x - y) * x + 2
TileProgram chain() {
  return {{DType::f32, DType::f32},
          {DType::f32},
          {kF, kF, kF},
          {TileType::f32},
          {{constant(scalar(0), 2), load(0, 0), load(1, 1), op(TileOp::sub, 2, 0, 1),
            op(TileOp::mul, 2, 2, 0), op(TileOp::add, 2, 2, scalar(0)), store(2, 2)}}};
}

TensorArg broadcast(TensorArg arg, std::vector<int64_t> sizes) {
  for (int i = 0; i < arg.rank; ++i) {
    if (arg.sizes[i] == 1) arg.strides[i] = 0;
    arg.sizes[i] = sizes[static_cast<size_t>(i)];
  }
  return arg;
}

TEST(Tile, PointwiseOverDomainsAndLayouts) {
  const TileProgram program = chain();
  const std::vector<std::vector<int64_t>> domains = {
      {},        {1},         {7},      {1000},       {0},
      {3, 0, 2}, {1, 100003}, {301, 3}, {2, 3, 5, 7}, {2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3},
      {40, 513}, {3, 700, 5}, {2049, 3}};
  for (IsaLevel isa : isa_levels())
    for (const auto& sizes : domains)
      for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps})
        for (int inner = 0; inner <= 1 && inner <= static_cast<int>(sizes.size()); ++inner) {
          std::vector<int64_t> small = sizes;
          for (size_t i = 0; i < small.size(); i += 2) small[i] = std::min<int64_t>(small[i], 1);
          TestTensor x(DType::f32, sizes, layout), y(DType::f32, small), z(DType::f32, sizes, layout);
          x.randomize(1), y.randomize(2), z.poison();
          const TensorArg wide = broadcast(y.arg(), sizes);
          step_testing::run_step({"tile", {x.arg(), wide}, {z.arg()}, {inner}, {}, &program}, isa);
          for (int64_t i = 0; i < x.count(); ++i) {
            int64_t at = 0, rest = i;
            for (int axis = wide.rank - 1; axis >= 0; --axis)
              at += rest % wide.sizes[axis] * wide.strides[axis], rest /= wide.sizes[axis];
            const float a = static_cast<float>(x.get(i)), b = static_cast<const float*>(wide.data)[at];
            ASSERT_EQ(static_cast<float>(z.get(i)), (a - b) * a + 2) << i;
          }
        }
}

TEST(Tile, InPlaceAndSeveralOutputs) {
  // a' = a + b; c = a * b with a' in the memory of a: the product must see the old a.
  const TileProgram program = {{DType::f32, DType::f32},
                               {DType::f32, DType::f32},
                               {kF, kF, kF, kF},
                               {},
                               {{load(0, 0), load(1, 1), op(TileOp::add, 2, 0, 1), store(2, 2),
                                 op(TileOp::mul, 3, 0, 1), store(3, 3)}}};
  TestTensor a(DType::f32, {1500}), b(DType::f32, {1500}), c(DType::f32, {1500});
  a.randomize(1), b.randomize(2);
  std::vector<double> old;
  for (int64_t i = 0; i < 1500; ++i) old.push_back(a.get(i));
  step_testing::run_step({"tile", {a.arg(), b.arg()}, {a.arg(), c.arg()}, {1}, {}, &program}, detect_isa());
  for (int64_t i = 0; i < 1500; ++i) {
    const float x = static_cast<float>(old[static_cast<size_t>(i)]), y = static_cast<float>(b.get(i));
    ASSERT_EQ(a.get(i), x + y);
    ASSERT_EQ(c.get(i), x * y);
  }
}

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

// Layer norm in three stages with a row register; also its shape {…, n} as a two-axis inner space.
TileProgram layer_norm(double n) {
  return {{DType::f32, DType::f32, DType::f32},
          {DType::f32},
          {kFRow, kF, kF, kF},
          std::vector<TileType>(7, TileType::f32),
          {{constant(scalar(0), 1 / n), constant(scalar(1), 1e-5), load(0, 0),
            op(TileOp::reduce_sum, scalar(2), 0)},
           {op(TileOp::mul, scalar(3), scalar(2), scalar(0)), op(TileOp::sub, 0, 0, scalar(3)),
            op(TileOp::mul, 1, 0, 0), op(TileOp::reduce_sum, scalar(4), 1)},
           {op(TileOp::fma, scalar(5), scalar(4), scalar(0), scalar(1)),
            op(TileOp::rsqrt, scalar(6), scalar(5)), op(TileOp::mul, 1, 0, scalar(6)), load(2, 1),
            op(TileOp::mul, 1, 1, 2), load(3, 2), op(TileOp::add, 1, 1, 3), store(3, 1)}}};
}

TEST(Tile, StagesOverRows) {
  for (IsaLevel isa : isa_levels())
    for (auto sizes : {std::vector<int64_t>{5, 4, 96}, {3, 7, 200}, {70, 1, 3}}) {
      const int64_t n = sizes[1] * sizes[2];
      const TileProgram program = layer_norm(static_cast<double>(n));
      TestTensor x(DType::f32, sizes, Layout::kTransposed), scale(DType::f32, {1, sizes[1], sizes[2]}),
          bias(DType::f32, {1, 1, sizes[2]}), y(DType::f32, sizes);
      x.randomize(1), scale.randomize(2), bias.randomize(3);
      step_testing::run_step({"tile",
                              {x.arg(), broadcast(scale.arg(), sizes), broadcast(bias.arg(), sizes)},
                              {y.arg()},
                              {2},
                              {},
                              &program},
                             isa);
      for (int64_t r = 0; r < sizes[0]; ++r) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; ++i) sum += x.get(r * n + i);
        for (int64_t i = 0; i < n; ++i)
          squares += std::pow(x.get(r * n + i) - sum / static_cast<double>(n), 2);
        for (int64_t i = 0; i < n; ++i) {
          const double expected = (x.get(r * n + i) - sum / static_cast<double>(n)) /
                                      std::sqrt(squares / static_cast<double>(n) + 1e-5) * scale.get(i) +
                                  bias.get(i % sizes[2]);
          ASSERT_NEAR(y.get(r * n + i), expected, 1e-5 * (1 + std::fabs(expected)));
        }
      }
    }
}

TEST(Tile, InnerIndexAndMasks) {
  // y = index < limit ? x : 0 per row, limit a row scalar loaded from an i64 operand.
  TileProgram program = {
      {DType::f32, DType::i64},
      {DType::f32, DType::boolean},
      {kF, {TileType::i64}, {TileType::mask}, kF},
      {TileType::i64, TileType::f32},
      {{load(scalar(0), 1, TileType::i64), constant(scalar(1), 0), load(0, 0),
        op(TileOp::inner_index, 1, -1, -1, -1, TileType::i64),
        op(TileOp::lt, 2, 1, scalar(0), -1, TileType::i64), op(TileOp::select, 3, 2, 0, scalar(1)),
        store(2, 3), store(3, 2, TileType::mask)}}};
  for (IsaLevel isa : isa_levels()) {
    TestTensor x(DType::f32, {6, 700}), limit(DType::i64, {6, 1}), y(DType::f32, {6, 700}),
        m(DType::boolean, {6, 700});
    x.randomize(1), limit.fill([](int64_t i) { return static_cast<double>(i * 140); });
    step_testing::run_step({"tile", {x.arg(), limit.arg()}, {y.arg(), m.arg()}, {1}, {}, &program}, isa);
    for (int64_t i = 0; i < x.count(); ++i) {
      const bool inside = i % 700 < (i / 700) * 140;
      ASSERT_EQ(m.get(i), inside);
      ASSERT_EQ(y.get(i), inside ? x.get(i) : 0);
    }
  }
}

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

TEST(Tile, RowsOfARectangle) {
  const TileProgram program = chain();
  for (IsaLevel isa : isa_levels())
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {6, 16}, {64, 48}, {3, 1100}, {600, 1}}) {
      for (Layout layout : {Layout::kDense, Layout::kGaps}) {
        TestTensor x(DType::f32, {rows, columns}), y(DType::f32, {columns}),
            z(DType::f32, {rows, columns}, layout);
        x.randomize(1), y.randomize(2);
        std::vector<std::byte> scratch(static_cast<size_t>(tile_rows_scratch_bytes(program)));
        const TileWindow windows[] = {{x.arg().data, x.arg().strides[0], 1},
                                      {y.arg().data, 0, 1},
                                      {z.arg().data, z.arg().strides[0], z.arg().strides[1]}};
        run_tile_rows(program, isa, rows, columns, windows, scratch.data());
        for (int64_t i = 0; i < x.count(); ++i) {
          const float a = static_cast<float>(x.get(i)), b = static_cast<float>(y.get(i % columns));
          ASSERT_EQ(static_cast<float>(z.get(i)), (a - b) * a + 2);
        }
      }
    }
}

// Two outputs of which the first is an operand's memory: what is read is what was there before.
TEST(Tile, RowsWriteOverTheirOperands) {
  TileProgram program{{DType::f32, DType::f32},
                      {DType::f32, DType::f32},
                      {kF, kF, kF},
                      {},
                      {{load(0, 0), load(1, 1), op(TileOp::add, 2, 0, 1), store(2, 2), store(3, 1)}}};
  constexpr int64_t kRows = 3, kColumns = 600;
  for (IsaLevel isa : isa_levels()) {
    TestTensor x(DType::f32, {kRows, kColumns}), y(DType::f32, {kRows, kColumns}),
        old(DType::f32, {kRows, kColumns}), copy(DType::f32, {kRows, kColumns});
    x.randomize(1), y.randomize(2);
    old.fill([&](int64_t i) { return y.get(i); });
    std::vector<std::byte> scratch(static_cast<size_t>(tile_rows_scratch_bytes(program)));
    const TileWindow windows[] = {{x.arg().data, kColumns, 1},
                                  {y.arg().data, kColumns, 1},
                                  {y.arg().data, kColumns, 1},
                                  {copy.arg().data, kColumns, 1}};
    run_tile_rows(program, isa, kRows, kColumns, windows, scratch.data());
    for (int64_t i = 0; i < x.count(); ++i) {
      ASSERT_EQ(copy.get(i), old.get(i)) << i;
      ASSERT_EQ(static_cast<float>(y.get(i)), static_cast<float>(x.get(i)) + static_cast<float>(old.get(i)))
          << i;
    }
  }
}

TEST(Tile, RefusesWhatDoesNotFit) {
  const auto refuse = [](const TileProgram& program) {
    EXPECT_THROW(check_tile_program(program), UserError) << to_string(program);
  };
  EXPECT_NO_THROW(check_tile_program(chain()));
  for (size_t i = 0; i < chain().stages[0].size(); ++i) {
    TileProgram missing = chain();  // something is then read before it is written, or never stored
    missing.stages[0].erase(missing.stages[0].begin() + static_cast<std::ptrdiff_t>(i));
    if (i != 4 && i != 5) refuse(missing);
    for (int16_t TileInstr::* field : {&TileInstr::dst, &TileInstr::a, &TileInstr::b, &TileInstr::operand})
      for (int16_t value : {int16_t{-2}, int16_t{60}, int16_t{1023}, int16_t{1040}, int16_t{32767}}) {
        TileProgram changed = chain();
        TileInstr& instr = changed.stages[0][i];
        const bool used = field == &TileInstr::dst ? instr.op != TileOp::store
                          : field == &TileInstr::a ? instr.a >= 0
                          : field == &TileInstr::b ? instr.b >= 0
                                                   : instr.operand >= 0;
        instr.*field = value;
        if (used) refuse(changed);
      }
    TileProgram wrong = chain();
    wrong.stages[0][i].type = TileType::i64;
    refuse(wrong);
    wrong.stages[0][i].type = static_cast<TileType>(9);
    refuse(wrong);
    wrong = chain();
    wrong.stages[0][i].op = static_cast<TileOp>(5000);
    refuse(wrong);
  }
  TileProgram early = layer_norm(4);
  early.stages[0].push_back(op(TileOp::mul, scalar(3), scalar(2), scalar(0)));  // the sum is not complete yet
  refuse(early);
  TileProgram chunk = layer_norm(4);
  chunk.registers[0].row = false;  // read in a later stage
  refuse(chunk);

  const TileProgram program = chain();
  TestTensor x(DType::f32, {4, 5}), y(DType::f32, {4, 5}), z(DType::f32, {4, 5}), narrow(DType::f32, {4, 4}),
      half(DType::f16, {4, 5});
  const auto refuse_step = [&](TensorArg a, TensorArg b, TensorArg c, std::vector<int64_t> params,
                               const char* what) {
    step_testing::expect_refused({"tile", {a, b}, {c}, params, {}, &program}, what);
  };
  refuse_step(x.arg(), narrow.arg(), z.arg(), {1}, "sizes");
  refuse_step(x.arg(), half.arg(), z.arg(), {1}, "dtype");
  refuse_step(x.arg(), y.arg(), z.arg(), {3}, "inner rank");
  refuse_step(x.arg(), y.arg(), z.arg(), {}, "params");
  TensorArg flat = y.arg(), repeated = z.arg();
  flat.rank = 1;
  repeated.strides[0] = 0;
  refuse_step(x.arg(), flat, z.arg(), {1}, "rank");
  refuse_step(x.arg(), y.arg(), repeated, {1}, "output overlaps itself");
  step_testing::expect_refused({"tile", {x.arg(), y.arg()}, {z.arg()}, {1}, {}, nullptr}, "no program");
}

}  // namespace
}  // namespace aicf
