// Which way a region takes follows from what it computes and from how its windows lie.
#include "kernels/tile/cuda/tile_way.h"

#include <gtest/gtest.h>

#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using tile_testing::load;
using tile_testing::op;
using tile_testing::store;

// y = -x; or y = x + the largest of its row.
TileProgram program_of(bool reduces) {
  TileProgram program{{DType::f32}, {DType::f32}, std::vector<TileRegister>(2, {TileType::f32}), {}, {}};
  if (!reduces) {
    program.stages = {{load(0, 0), op(TileOp::neg, 1, 0), store(1, 1)}};
    return program;
  }
  program.registers[0].row = true;
  program.scalars = {TileType::f32};
  program.stages = {{load(0, 0), op(TileOp::reduce_max, kTileScalarBase, 0)},
                    {op(TileOp::add, 1, 0, kTileScalarBase), store(1, 1)}};
  return program;
}

CudaWindow window(const Shape& sizes, const std::vector<Dim>& strides) {
  return {DType::f32, Dim(0), sizes, strides};
}

struct WayCase {
  const char* what;
  bool reduces;
  CudaWindow x, y;
  TileWay way;
};

TEST(TileWay, FollowsFromProgramAndWindows) {
  const Shape sizes{Dim(64), Dim(128)}, narrow{Dim(64), Dim(8)};
  const std::vector<Dim> rows{Dim(128), Dim(1)}, columns{Dim(1), Dim(64)};
  const WayCase cases[] = {
      {"element by element", false, window(sizes, rows), window(sizes, rows), TileWay::flat},
      {"both run across", false, window(sizes, columns), window(sizes, columns), TileWay::flat},
      {"x runs across y", false, window(sizes, columns), window(sizes, rows), TileWay::transpose},
      {"too narrow for squares", false, window(narrow, columns), window(narrow, {Dim(8), Dim(1)}),
       TileWay::flat},
      {"rows in memory", true, window(sizes, rows), window(sizes, rows), TileWay::rows},
      {"rows across memory", true, window(sizes, columns), window(sizes, columns), TileWay::columns},
  };
  for (const WayCase& c : cases) {
    const TileProgram program = program_of(c.reduces);
    check_tile_program(program);
    CudaProblem problem;
    problem.inputs = {c.x};
    problem.outputs = {c.y};
    problem.params = {Dim(c.reduces ? 1 : 0)};
    problem.program = &program;
    EXPECT_EQ(tile_plan(problem).way, c.way) << c.what;
  }
}

}  // namespace
}  // namespace aicf
