// Epilogues: the type of the tile they read, and sums of halves two at a time.
#include "kernels/tile/cuda/tile_cuda.h"

#include <gtest/gtest.h>

#include "kernels/tile/cuda/tile_epilogue_writer.h"
#include "kernels/tile/cuda/tile_half_sums.h"

namespace aicf {
namespace {

// acc + x, with the accumulator rounded first or not, stored as f16.
TileProgram sum_with(TileOp first, DType accumulator) {
  TileProgram program;
  program.inputs = {accumulator, DType::f16};
  program.outputs = {DType::f16};
  program.registers.assign(4, {TileType::f32});
  program.stages = {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                     {.op = first, .type = TileType::f32, .dst = 1, .a = 0},
                     {.op = TileOp::load, .type = TileType::f32, .dst = 2, .operand = 1},
                     {.op = TileOp::add, .type = TileType::f32, .dst = 3, .a = 1, .b = 2},
                     {.op = TileOp::store, .type = TileType::f32, .a = 3, .operand = 2}}};
  return program;
}

TEST(TileCuda, EpilogueTilesHaveTheHalfTypeThatTheyAreRoundedToFirst) {
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::round_f16, DType::f32)), DType::f16);
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::round_bf16, DType::f32)), DType::bf16);
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::neg, DType::bf16)), DType::bf16);
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::neg, DType::f32)), std::nullopt);
  TileProgram both = sum_with(TileOp::round_f16, DType::f32);
  both.stages[0][3].b = 0;  // the sum itself, too
  EXPECT_EQ(epilogue_tile(both), std::nullopt);
  TileProgram stored = sum_with(TileOp::neg, DType::f32);
  stored.stages[0] = {stored.stages[0][0],
                      {.op = TileOp::store, .type = TileType::f32, .a = 0, .operand = 2}};
  EXPECT_EQ(epilogue_tile(stored), DType::f16);
}

// Text that serves any sizes has members for them, but 0 and 1, which decide what is done.
TEST(TileCuda, EpiloguesOfAnySizesHaveNoNumbers) {
  CudaParams params;
  EpilogueMembers own(params, false), any(params, true);
  EXPECT_EQ(own.number(Dim(72)), "72");
  EXPECT_EQ(own.number(Dim(-72)), "(-72)");
  EXPECT_EQ(own.number(Dim::symbol("n")), "q0");
  EXPECT_EQ(any.number(Dim(72)), "q0");
  EXPECT_EQ(any.number(Dim(64)), "q1");
  EXPECT_EQ(any.number(Dim(72)), "q0");
  EXPECT_EQ(any.number(Dim(0)) + any.number(Dim(1)), "01");
}

// Which values are sums of halves, by the operation that each one is.
std::vector<TileOp> half_sum_ops(const TileProgram& program, std::optional<DType> tile) {
  const TileValues values = tile_values(program, [](int) { return true; });
  const auto sums = half_sums(values, {tile, program.inputs[1]});
  std::vector<TileOp> ops;
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i]) ops.push_back(values.values[i].op);
  return ops;
}

TEST(TileCuda, SumsOfHalvesNeedBothOperandsInOneHalfType) {
  const std::vector<TileOp> one{TileOp::add};
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::round_f16, DType::f32), DType::f16), one);
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::round_bf16, DType::f32), DType::bf16), std::vector<TileOp>());
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::round_f16, DType::f32), std::nullopt), std::vector<TileOp>());
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::neg, DType::f16), DType::f16), std::vector<TileOp>());

  // (acc + x rounded) + x: the second sum takes the first one only once it is rounded.
  for (const bool rounds : {true, false}) {
    TileProgram twice = sum_with(TileOp::round_f16, DType::f32);
    twice.registers.assign(6, {TileType::f32});
    twice.stages[0][4] = {
        .op = rounds ? TileOp::round_f16 : TileOp::neg, .type = TileType::f32, .dst = 4, .a = 3};
    twice.stages[0].push_back({.op = TileOp::add, .type = TileType::f32, .dst = 5, .a = 4, .b = 2});
    twice.stages[0].push_back({.op = TileOp::store, .type = TileType::f32, .a = 5, .operand = 2});
    EXPECT_EQ(half_sum_ops(twice, DType::f16).size(), rounds ? 2u : 1u);
  }
}

// A sum that is stored as its type has no elements in f32; one that goes into a function has them.
TEST(TileCuda, EpiloguesAddHalvesTwoAtATime) {
  const auto text = [](const TileProgram& program) {
    const CudaWindow tile{DType::f16, Dim(0), {Dim(32), Dim(64)}, {Dim(64), Dim(1)}};
    CudaProblem problem;
    problem.inputs = {tile, tile};
    problem.outputs = {tile};
    problem.program = &program;
    CudaParams params;
    return cuda_epilogue(problem, 1, params).text;
  };
  TileProgram plain = sum_with(TileOp::round_f16, DType::f32), gelu = plain;
  EXPECT_NE(text(plain).find("add_halves(h"), std::string::npos);
  EXPECT_EQ(text(plain).find("const float v"), std::string::npos);
  gelu.registers.assign(6, {TileType::f32});
  gelu.stages[0][4] = {.op = TileOp::round_f16, .type = TileType::f32, .dst = 4, .a = 3};
  gelu.stages[0].push_back({.op = TileOp::gelu, .type = TileType::f32, .dst = 5, .a = 4});
  gelu.stages[0].push_back({.op = TileOp::store, .type = TileType::f32, .a = 5, .operand = 2});
  EXPECT_NE(text(gelu).find("gelu_f16("), std::string::npos);
  EXPECT_NE(text(gelu).find("value(h"), std::string::npos);
  EXPECT_EQ(text(gelu).find("tile::add("), std::string::npos);
}

// A number of a row is one element, which both ways of adding repeat.
TEST(TileCuda, EpiloguesHaveOneElementOfWhatRepeatsAlongRows) {
  for (const TileOp first : {TileOp::round_f16, TileOp::neg}) {
    const TileProgram program = sum_with(first, DType::f32);
    const CudaWindow tile{DType::f16, Dim(0), {Dim(32), Dim(64)}, {Dim(64), Dim(1)}};
    CudaProblem problem;
    problem.inputs = {tile, tile};
    problem.inputs[1].strides = {Dim(1), Dim(0)};
    problem.outputs = {tile};
    problem.program = &program;
    CudaParams params;
    const std::string text = cuda_epilogue(problem, 1, params).text;
    EXPECT_NE(text.find("Vec<aicf::f16, 1> x1;"), std::string::npos) << text;
    EXPECT_NE(text.find("to.x1.at[0] = *(in1 + row.o0);"), std::string::npos) << text;
    EXPECT_EQ(text.find("own.x1.at[v]"), std::string::npos) << text;
  }
}

// gelu_tanh of a sum: of a vector's elements together where the result is stored in halves.
TEST(TileCuda, EpiloguesShareReciprocalsOfNeighbours) {
  const auto text = [](DType result) {
    const CudaWindow tile{DType::f32, Dim(0), {Dim(32), Dim(64)}, {Dim(64), Dim(1)}};
    const TileProgram program{{DType::f32, DType::f32},
                              {result},
                              std::vector<TileRegister>(4, {TileType::f32}),
                              {},
                              {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                                {.op = TileOp::load, .type = TileType::f32, .dst = 1, .operand = 1},
                                {.op = TileOp::add, .type = TileType::f32, .dst = 2, .a = 0, .b = 1},
                                {.op = TileOp::gelu_tanh, .type = TileType::f32, .dst = 3, .a = 2},
                                {.op = TileOp::store, .type = TileType::f32, .a = 3, .operand = 2}}}};
    CudaProblem problem;
    problem.inputs = {tile, tile};
    problem.outputs = {tile};
    problem.outputs[0].dtype = result;
    problem.program = &program;
    CudaParams params;
    return cuda_epilogue(problem, 1, params).text;
  };
  EXPECT_NE(text(DType::bf16).find("gelu_tanh_half(g"), std::string::npos);
  EXPECT_EQ(text(DType::f32).find("gelu_tanh_half("), std::string::npos);
}

}  // namespace
}  // namespace aicf
