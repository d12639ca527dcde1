// What runs where a way is asked for: the schedule that epilogue and sizes allow, and what follows from it.
#include "kernels/matmul/cuda/matmul_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using tile_testing::load;
using tile_testing::store;

struct PlanCase {
  TileProgram program{{DType::f32}, {DType::f16}, {{TileType::f32}}, {}, {{load(0, 0), store(1, 0)}}};
  SymbolRanges ranges;
  CudaProblem problem;
};

void set_up_plan(PlanCase& c, const Dim& m, int64_t n, int64_t k, DType result = DType::f16) {
  c.program.outputs = {result};
  c.problem.inputs = {{DType::f16, Dim(0), {m, Dim(k)}, {Dim(k), Dim(1)}},
                      {DType::f16, Dim(0), {Dim(k), Dim(n)}, {Dim(1), Dim(k)}}};
  c.problem.outputs = {{result, Dim(0), {m, Dim(n)}, {Dim(n), Dim(1)}}};
  c.problem.program = &c.program;
  c.problem.ranges = &c.ranges;
  c.problem.arch = 90;
}

MatmulWay wgmma(MatmulSchedule schedule, int columns, int stages) {
  return {.unit = MatmulUnit::wgmma,
          .block_m = 128,
          .block_n = columns,
          .stages = stages,
          .warpgroups = 2,
          .schedule = schedule};
}

TEST(MatmulPlan, EpilogueWarpsGetHalves) {
  const MatmulWay asked = wgmma(MatmulSchedule::epilogue_warps, 192, 4);
  PlanCase halves, floats;
  set_up_plan(halves, Dim(4096), 2304, 768);
  set_up_plan(floats, Dim(4096), 2304, 768, DType::f32);
  EXPECT_EQ(resolve(asked, halves.problem).way, asked);
  EXPECT_EQ(resolve(asked, floats.problem).way, wgmma(MatmulSchedule::cooperative, 192, 5));
}

TEST(MatmulPlan, XIsStationaryWhereItsSizeIsKnownAndFits) {
  const MatmulWay asked = wgmma(MatmulSchedule::stationary_x, 192, 3);
  const MatmulWay with_epilogue_warps = wgmma(MatmulSchedule::epilogue_warps, 192, 3);
  PlanCase known, symbolic, deep;
  set_up_plan(known, Dim(8192), 1536, 384);
  symbolic.ranges["m"] = {1, 8192};
  set_up_plan(symbolic, Dim::symbol("m"), 1536, 384);
  set_up_plan(deep, Dim(8192), 1536, 768);
  const MatmulPlan plan = resolve(asked, known.problem);
  EXPECT_EQ(plan.way, asked);
  EXPECT_EQ(plan.row_blocks, 2);
  EXPECT_EQ(plan.wgmma.kept_steps, 6);
  EXPECT_EQ(plan.wgmma.x_rows, 0) << "no stage has any";
  for (const PlanCase* c : {&symbolic, &deep}) {
    const MatmulPlan other = resolve(asked, c->problem);
    EXPECT_EQ(other.way, with_epilogue_warps);
    EXPECT_EQ(other.row_blocks, 0);
    EXPECT_EQ(other.wgmma.x_rows, 128);
  }
}

TEST(MatmulPlan, FewRowsAreKeptWholeOrLoadedAlone) {
  const MatmulWay way{.unit = MatmulUnit::wgmma, .block_n = 32, .stages = 8, .warpgroups = 1};
  PlanCase one, forty;
  set_up_plan(one, Dim(1), 2048, 2048);
  set_up_plan(forty, Dim(40), 2048, 2048);
  const MatmulPlan kept = resolve(way, one.problem), loaded = resolve(way, forty.problem);
  EXPECT_TRUE(kept.keeps_x);
  EXPECT_EQ(kept.wgmma.kept_bytes, 2048 * 2);
  EXPECT_FALSE(loaded.keeps_x);
  EXPECT_EQ(loaded.wgmma.x_rows, 40);
  EXPECT_EQ(loaded.tiles, Dim(2048 / 32));
}

TEST(MatmulPlan, WhatNoKernelIsLikeIsRefused) {
  PlanCase c;
  set_up_plan(c, Dim(256), 256, 256);
  MatmulWay way = wgmma(MatmulSchedule::ping_pong, 128, 4);
  EXPECT_NO_THROW(resolve(way, c.problem));
  way.split = {SplitKind::cluster, 2};
  EXPECT_THROW(resolve(way, c.problem), InternalError);
  c.problem.arch = 80;
  EXPECT_THROW(resolve(wgmma(MatmulSchedule::ping_pong, 128, 4), c.problem), InternalError);
}

}  // namespace
}  // namespace aicf
