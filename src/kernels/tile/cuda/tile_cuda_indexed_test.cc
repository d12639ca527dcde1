// Regions that read elements at indices: what a thread asks for once, and that texts of many forms compile.
#include <gtest/gtest.h>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/testing/cuda_texts.h"
#include "kernels/tile/cuda/tile_cuda.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using cuda_testing::RandomWindows;
using tile_testing::load;
using tile_testing::op;
using tile_testing::store;

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two tables of one dtype, and weights: a w + b.
TileProgram weighted(DType dtype) {
  return {{dtype, dtype, dtype},
          {dtype},
          std::vector<TileRegister>(2, {TileType::f32}),
          {},
          {{load(0, 0), load(1, 2), op(TileOp::mul, 0, 0, 1), load(1, 1), op(TileOp::add, 0, 0, 1),
            store(3, 0)}}};
}

// x [images, channels, size] at indices of each image, which all channels share.
CudaProblem sampled(const TileProgram& program, const Shape& y, const Dim& size, DType index) {
  const DType dtype = program.outputs[0];
  CudaProblem problem;
  const CudaWindow x{dtype, Dim(0), {y[0], y[1], Dim(1), size}, {y[1] * size, size, Dim(0), Dim(1)}};
  const auto shared = [&](DType of) {
    return CudaWindow{of, Dim(0), {y[0], Dim(1), y[2]}, {y[2], Dim(0), Dim(1)}};
  };
  problem.inputs = {x, x, shared(dtype), shared(index), shared(index)};
  problem.outputs = {cuda_testing::dense(dtype, y)};
  problem.params = {Dim(3), Dim(3), Dim(4), Dim(-1)};
  problem.program = &program;
  return problem;
}

std::string indexed_text(const CudaProblem& problem) {
  check_tile_program(*problem.program);
  const CudaCode code = find_cuda_kernel("tile_indexed")->generate(problem);
  if (cuda_testing::has_nvrtc()) cuda_testing::expect_compiles({code.source}, "sm_90a");
  EXPECT_TRUE(code.launches[0].reports_errors);
  return code.source;
}

TEST(TileCudaIndexed, ManyChannelsShareAnIndex) {
  const TileProgram program = weighted(DType::f32);
  const std::string text =
      indexed_text(sampled(program, {Dim(1562), Dim(32), Dim(289)}, Dim(289), DType::i64));
  EXPECT_TRUE(mentions(text, "kItems = 8"));
  EXPECT_TRUE(mentions(text, "Vec<int64_t, kVector> x3;"));  // one for all items
  EXPECT_TRUE(mentions(text, "Vec<float, kVector> x2;"));    // weights, too
  EXPECT_TRUE(mentions(text, "x0[k].at[v] = in0["));
}

TEST(TileCudaIndexed, FewElementsAreManyThreads) {
  const TileProgram program = weighted(DType::f32);
  EXPECT_TRUE(mentions(indexed_text(sampled(program, {Dim(2), Dim(32), Dim(289)}, Dim(289), DType::i64)),
                       "kItems = 1,"));
}

// Threads that just fill the device share no channels, unless each takes fewer neighbours.
TEST(TileCudaIndexed, ChannelsOfAnElementComeBeforeItsNeighbours) {
  const TileProgram program = weighted(DType::f16);
  const auto text = [&](int64_t channels) {
    return indexed_text(sampled(program, {Dim(123), Dim(channels), Dim(784)}, Dim(784), DType::i64));
  };
  EXPECT_TRUE(mentions(text(24), "kVector = 1, kItems = 4, kAtOnce = 4;"));
  EXPECT_TRUE(mentions(text(3), "kVector = 2, kItems = 2,"));
  EXPECT_TRUE(mentions(text(1), "kVector = 4, kItems = 1,"));
}

// An index of a whole row: its elements come 16 bytes at a time, as far as all rows begin at such an address.
TEST(TileCudaIndexed, RowsComeInVectors) {
  const TileProgram program = weighted(DType::f32);
  const auto text = [&](int64_t pitch) {
    CudaProblem problem;
    const CudaWindow table{DType::f32, Dim(0), {Dim(1), Dim(64), Dim(9)}, {Dim(0), Dim(1), Dim(pitch)}};
    const CudaWindow indices{DType::i32, Dim(0), {Dim(500), Dim(1)}, {Dim(1), Dim(0)}};
    const CudaWindow y = cuda_testing::dense(DType::f32, {Dim(500), Dim(64)});
    problem.inputs = {table, table, y, indices};
    problem.outputs = {y};
    problem.params = {Dim(2), Dim(3), Dim(3), Dim(-1)};
    problem.program = &program;
    return indexed_text(problem);
  };
  EXPECT_TRUE(mentions(text(64), "load<16>(x0, in0 + (o0"));
  EXPECT_TRUE(mentions(text(66), "load<8>(x0, in0 + (o0"));
  EXPECT_TRUE(mentions(text(64), "Index at0[1];"));
}

TEST(TileCudaIndexed, OffsetsAreAsWideAsTables) {
  const TileProgram program = weighted(DType::f32);
  const Shape y{Dim(2), Dim(3), Dim(5)};
  EXPECT_TRUE(mentions(indexed_text(sampled(program, y, Dim(1000), DType::i64)), "using Index = int32_t"));
  EXPECT_TRUE(mentions(indexed_text(sampled(program, y, Dim(int64_t{1} << 31), DType::i64)),
                       "using Index = int64_t"));
}

TEST(TileCudaIndexed, ManyFormsCompile) {
  AICF_NEEDS_NVRTC();
  cuda_testing::RowTexts texts;
  std::vector<TileProgram> programs;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) programs.push_back(weighted(dtype));
  for (uint64_t seed = 0; seed < 24; ++seed) {
    RandomWindows random(seed);
    const TileProgram& program = programs[seed % programs.size()];
    const Shape y{random.size(1, 40), random.size(1, 40), random.size(1, 300)};
    CudaProblem problem = sampled(program, y, random.size(1, 90), seed % 2 == 0 ? DType::i64 : DType::i32);
    problem.outputs[0] = random.window(program.outputs[0], y);
    texts.add("tile_indexed", problem, random.ranges());
  }
  texts.compile(
      [](const auto& sources, const char* target) { cuda_testing::expect_compiles(sources, target); });
}

}  // namespace
}  // namespace aicf
