// Domains, layouts, stages, row indices and the refusals of the tile kernel.
#include <algorithm>
#include <cmath>

#include "kernels/testing/step.h"
#include "kernels/tile/cpu/tile_state.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using namespace tile_testing;
using step_testing::isa_levels;
using step_testing::Layout;
using step_testing::TestTensor;

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

// A register that holds no whole row names the memory of the operand that it is loaded from.
TEST(Tile, LoadsOfOneChunkCopyNothing) {
  const std::vector<int64_t> sizes = {3, 5000};
  const TileProgram program = layer_norm(5000);
  TestTensor x(DType::f32, sizes), scale(DType::f32, {1, 5000}), bias(DType::f32, {1, 5000}),
      y(DType::f32, sizes);
  const BoundCall call =
      step_testing::bind_step({"tile",
                               {x.arg(), broadcast(scale.arg(), sizes), broadcast(bias.arg(), sizes)},
                               {y.arg()},
                               {1},
                               {},
                               &program},
                              IsaLevel::kPortable);
  const TileState& state = tile_state(call);
  const auto named = [](const TileStep& step) { return step.kind == TileStepKind::kLoadAlias; };
  EXPECT_EQ(std::count_if(tile_steps(call), tile_steps(call) + state.begin[1 + 3 * state.stages], named), 2)
      << "scale and bias; x is kept for the stages that follow";
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
  TileProgram numbered = chain();
  numbered.stages[0].back().imm_i = 1;  // how a sum over all rows was once written
  refuse(numbered);
  TileProgram sum = chain();
  sum.stages[0].back().op = TileOp::store_sum;  // of GPUs
  EXPECT_NO_THROW(check_tile_program(sum));

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
  step_testing::expect_refused({"tile", {x.arg(), y.arg()}, {z.arg()}, {1}, {}, &sum}, "a sum over rows");
}

}  // namespace
}  // namespace aicf
