// Pointwise regions: how many elements a thread takes, and how it loads those that lie a step apart.
#include <gtest/gtest.h>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/tile/cuda/tile_cuda.h"
#include "kernels/tile/testing/hand_written.h"
#include "kernels/tile/testing/one_op.h"

namespace aicf {
namespace {

using tile_testing::load;
using tile_testing::op;
using tile_testing::store;

std::string text_of(const TileProgram& program, std::vector<CudaWindow> inputs, CudaWindow output) {
  check_tile_program(program);
  CudaProblem problem;
  problem.inputs = std::move(inputs);
  problem.outputs = {std::move(output)};
  problem.params = {Dim(0)};
  problem.program = &program;
  const CudaCode code = find_cuda_kernel("tile")->generate(problem);
  if (cuda_testing::has_nvrtc()) cuda_testing::expect_compiles({code.source}, "sm_90a");
  return code.source;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TileProgram copy_program(DType from, DType to) {
  return {{from}, {to}, {{TileType::f32}}, {}, {{load(0, 0), store(1, 0)}}};
}

CudaWindow flat_window(DType dtype, int64_t count) { return {dtype, Dim(0), {Dim(count)}, {Dim(1)}}; }

// A warp's store has whole sectors when each lane stores 16 bytes.
TEST(TileCudaFlat, ALaneStoresSixteenBytes) {
  const int64_t count = 1 << 22;
  const auto vector = [&](DType from, DType to) {
    const std::string text =
        text_of(copy_program(from, to), {flat_window(from, count)}, flat_window(to, count));
    return std::stoi(text.substr(text.find("kVector = ") + 10));
  };
  EXPECT_EQ(vector(DType::f16, DType::f16), 8);
  EXPECT_EQ(vector(DType::f16, DType::f32), 4);
  EXPECT_EQ(vector(DType::f32, DType::f16), 8);
  EXPECT_EQ(vector(DType::f32, DType::f32), 4);
  const std::string masked = text_of(
      tile_testing::one_op(TileOp::select, TileType::f32),
      {flat_window(DType::boolean, count), flat_window(DType::f32, count), flat_window(DType::f32, count)},
      flat_window(DType::f32, count));
  EXPECT_TRUE(has(masked, "kVector = 4,"));
}

// Rows of an odd stride in memory are read in narrow accesses and written in wide ones.
TEST(TileCudaFlat, TheResultsAlignmentDecides) {
  const Shape sizes{Dim(4096), Dim(64)};
  const CudaWindow y{DType::f16, Dim(0), sizes, {Dim(64), Dim(1)}};
  const CudaWindow x{DType::f16, Dim(1), sizes, {Dim(67), Dim(1)}};
  const std::string text = text_of(copy_program(DType::f16, DType::f16), {x}, y);
  EXPECT_TRUE(has(text, "kVector = 8,"));
  EXPECT_TRUE(has(text, "load<2>(x0"));
  EXPECT_TRUE(has(text, "store<16>(out0"));
}

struct StepCase {
  DType dtype;
  int64_t step, offset, row;
  const char *loads, *lane;  // nothing: element by element
};

TEST(TileCudaFlat, ElementsAFewApartAreLoadedWhole) {
  const StepCase cases[] = {
      {DType::f16, 2, 0, 224, "load<16>(x0[k], in0 + (o0[k] - 0))", "at[2 * v + 0]"},
      {DType::f16, 2, 113, 224, "load<16>(x0[k], in0 + (o0[k] - 1))", "at[2 * v + 1]"},
      {DType::f16, 3, 2, 336, "load<16>(x0[k], in0 + (o0[k] - 2))", "at[3 * v + 2]"},
      {DType::f32, 2, 1, 112, "load<16>(x0[k], in0 + (o0[k] - 1))", "at[2 * v + 1]"},
      {DType::f16, 2, 0, 226, "load<4>(x0[k], in0 + (o0[k] - 0))", "at[2 * v + 0]"},
      {DType::f16, 2, 0, 227, nullptr, nullptr},  // an access would hold one element, maybe the wrong one
      {DType::f16, 7, 0, 1024, nullptr, nullptr},
      {DType::f64, 4, 0, 448, nullptr, nullptr},
  };
  for (const StepCase& c : cases) {
    const Shape sizes{Dim(4096), Dim(56)};
    const CudaWindow y{c.dtype, Dim(0), sizes, {Dim(56), Dim(1)}};
    const CudaWindow x{c.dtype, Dim(c.offset), sizes, {Dim(c.row), Dim(c.step)}};
    TileProgram program = copy_program(c.dtype, c.dtype);
    if (c.dtype == DType::f64) {
      program.registers = {{TileType::f64}};
      program.stages = {{load(0, 0, TileType::f64), store(1, 0, TileType::f64)}};
    }
    const std::string text = text_of(program, {x}, y);
    EXPECT_EQ(has(text, "load_each"), c.loads == nullptr) << c.step << " " << c.row;
    if (c.loads == nullptr) continue;
    EXPECT_TRUE(has(text, c.loads)) << text;
    EXPECT_TRUE(has(text, c.lane)) << text;
  }
}

// x * scale + shift: of maps, where both have an element for each channel, or of rows that share them.
TileProgram scaled(DType dtype) {
  return {{dtype, DType::f32, DType::f32},
          {dtype},
          std::vector<TileRegister>(3, {TileType::f32}),
          {},
          {{load(0, 0), load(1, 1), op(TileOp::rsqrt, 1, 1), op(TileOp::mul, 0, 0, 1), load(2, 2),
            op(TileOp::add, 0, 0, 2), store(3, 0)}}};
}

// Of maps of odd sizes a lane still stores 16 bytes, some of the next map. What is made of a channel's
// elements alone is made once for each of the two maps.
TEST(TileCudaFlat, VectorsGoOnFromOneDenseRowToTheNext) {
  const auto text = [](DType dtype, int64_t map, bool dense = true) {
    const Shape sizes{Dim(239), Dim(128), Dim(map)};
    const Dim step(map + (dense ? 0 : 1));
    const CudaWindow x{dtype, Dim(0), sizes, {Dim(128) * step, step, Dim(1)}};
    const CudaWindow channel{DType::f32, Dim(0), sizes, {Dim(0), Dim(1), Dim(0)}};
    return text_of(scaled(dtype), {x, channel, channel}, x);
  };
  const std::string odd = text(DType::f16, 289);
  EXPECT_TRUE(has(odd, "kVector = 8,")) << odd;
  EXPECT_TRUE(has(odd, "load<16>(x0[k]") && has(odd, "store<16>(out0"));
  EXPECT_LT(odd.find("aicf::tile::rsqrt("), odd.find("for (int v = 0;"));
  EXPECT_TRUE(has(text(DType::f32, 289), "kVector = 4,"));
  EXPECT_TRUE(has(text(DType::f32, 49), "store<16>(out0"));
  // Rows of whole vectors, of gaps, and shorter than a vector stay what they are.
  EXPECT_FALSE(has(text(DType::f16, 288), "in_row"));
  EXPECT_FALSE(has(text(DType::f16, 289, false), "in_row"));
  EXPECT_FALSE(has(text(DType::f16, 7), "in_row"));
}

TEST(TileCudaFlat, RowsThatUniteReadWhatTheyShareByElements) {
  const auto text = [](int64_t columns, Dim stride) {
    const Shape sizes{Dim(6992), Dim(columns)};
    const CudaWindow y{DType::f16, Dim(0), sizes, {Dim(columns), Dim(1)}};
    const CudaWindow row{DType::f32, Dim(0), sizes, {Dim(0), stride}};
    return text_of(scaled(DType::f16), {y, row, row}, y);
  };
  EXPECT_TRUE(has(text(175, Dim(1)), "store<16>(out0"));
  EXPECT_FALSE(has(text(175, Dim(3)), "in_row")) << "far apart";
  EXPECT_FALSE(has(text(176, Dim(1)), "in_row"));
}

// Sizes that are ranges: no row may be shorter than a vector.
TEST(TileCudaFlat, RowsOfARangeUniteWhereNoneIsShort) {
  for (const int64_t least : {1, 8}) {
    const SymbolRanges ranges{{"n", {0, 100000}}, {"m", {least, 300}}};
    const TileProgram program = copy_program(DType::f16, DType::f16);
    const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
    CudaProblem problem;
    problem.inputs = {{DType::f16, Dim(0), {n, m}, {Dim(1), Dim(0)}}};
    problem.outputs = {{DType::f16, Dim(0), {n, m}, {m, Dim(1)}}};
    problem.params = {Dim(0)};
    problem.program = &program;
    problem.ranges = &ranges;
    const CudaCode code = find_cuda_kernel("tile")->generate(problem);
    EXPECT_EQ(has(code.source, "in_row"), least == 8);
    if (cuda_testing::has_nvrtc()) cuda_testing::expect_compiles({code.source}, "sm_90a");
  }
}

// The estimate of the hardware has all the digits of what is rounded to halves.
TEST(TileCudaFlat, ReciprocalRootsOfHalvesAreTheHardwares) {
  const auto text = [](DType dtype) {
    const TileProgram program{
        {dtype}, {dtype}, {{TileType::f32}}, {}, {{load(0, 0), op(TileOp::rsqrt, 0, 0), store(1, 0)}}};
    return text_of(program, {flat_window(dtype, 1 << 20)}, flat_window(dtype, 1 << 20));
  };
  EXPECT_TRUE(has(text(DType::f16), "rsqrt_half("));
  EXPECT_TRUE(has(text(DType::bf16), "rsqrt_half("));
  EXPECT_FALSE(has(text(DType::f32), "rsqrt_half("));
}

// Vectors of many operands come one at a time: registers hold a thread's.
TEST(TileCudaFlat, ManyOperandsTakeTurns) {
  const TileProgram program{{DType::f32, DType::f32, DType::f32},
                            {DType::f32},
                            std::vector<TileRegister>(2, {TileType::f32}),
                            {},
                            {{load(0, 0), load(1, 1), op(TileOp::add, 0, 0, 1), load(1, 2),
                              op(TileOp::add, 0, 0, 1), store(3, 0)}}};
  const Shape sizes{Dim(1 << 18), Dim(56)};
  const CudaWindow y{DType::f32, Dim(0), sizes, {Dim(56), Dim(1)}};
  const CudaWindow x{DType::f32, Dim(0), sizes, {Dim(120), Dim(2)}};
  EXPECT_TRUE(has(text_of(program, {x, x, x}, y), "kItems = 1;"));
  EXPECT_TRUE(has(text_of(program, {y, y, x}, y), "kItems = 2;"));
}

}  // namespace
}  // namespace aicf
