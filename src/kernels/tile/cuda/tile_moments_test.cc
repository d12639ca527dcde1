// Which programs make mean and squared differences in one walk, and what their kernels are.
#include "kernels/tile/cuda/tile_moments.h"

#include <gtest/gtest.h>

#include <map>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using tile_testing::constant;
using tile_testing::load;
using tile_testing::op;
using tile_testing::scalar;
using tile_testing::store;
using tile_testing::store_scalar;

// What differs from mean = sum(x) / n, squares = sum((x - mean)²).
struct Form {
  double divisor = 100;
  TileOp by = TileOp::div, change = TileOp::sub, square = TileOp::mul, first = TileOp::reduce_sum,
         second = TileOp::reduce_sum;
  bool other_x = false, other_factor = false;
};

// x = a + b; the mean and the variance of its rows.
TileProgram statistics(const Form& form) {
  TileProgram program{{DType::f16, DType::f32}, {DType::f32, DType::f32}, {}, {}, {}};
  program.registers.assign(5, {TileType::f32});
  program.scalars.assign(5, TileType::f32);
  program.stages = {
      {load(0, 0), load(1, 1), op(TileOp::add, 2, 0, 1), op(form.first, scalar(0), 2)},
      {constant(scalar(1), form.divisor), op(form.by, scalar(2), scalar(0), scalar(1)), load(0, 0),
       load(1, 1), op(TileOp::add, 2, 0, 1), op(form.change, 3, form.other_x ? 0 : 2, scalar(2)),
       op(form.square, 4, 3, form.other_factor ? 2 : 3), op(form.second, scalar(3), 4), store_scalar(2, 2)},
      {op(TileOp::div, scalar(4), scalar(3), scalar(1)), store_scalar(3, 4)}};
  check_tile_program(program);
  return program;
}

TileValues joined(const TileProgram& program, const Dim& length = Dim(100)) {
  TileValues values = tile_values(program, [](int) { return true; });
  join_moments(values, length);
  return values;
}

TEST(TileMoments, MeanAndSquaredDifferencesAreOneWalk) {
  for (const Form& form : {Form{}, Form{.divisor = 1.0F / 100.0F, .by = TileOp::mul}}) {
    const TileValues values = joined(statistics(form));
    ASSERT_EQ(values.moments.size(), 1U);
    const auto [sum, squares] = values.moments[0];
    EXPECT_EQ(values.values[static_cast<size_t>(sum)].stage, 0);
    EXPECT_EQ(values.values[static_cast<size_t>(squares)].stage, 0);
    EXPECT_EQ(values.moments_of(sum), values.moments_of(squares));
    EXPECT_EQ(values.stages, 2);
    for (const TileStore& each : values.stores) EXPECT_EQ(each.stage, 1);
  }
}

TEST(TileMoments, OtherSumsStayAsTheyAre) {
  const Form forms[] = {
      {.divisor = 99},                     // not the length of a row
      {.divisor = 99, .by = TileOp::mul},  // not its inverse
      {.by = TileOp::sub},
      {.change = TileOp::add},
      {.square = TileOp::add},
      {.first = TileOp::reduce_max},
      {.second = TileOp::reduce_max},
      {.other_x = true},
      {.other_factor = true},
  };
  for (const Form& form : forms) {
    const TileProgram program = statistics(form);
    const TileValues values = joined(program);
    EXPECT_TRUE(values.moments.empty()) << to_string(program);
    EXPECT_EQ(values.stages, 3);
  }
  EXPECT_TRUE(joined(statistics({}), Dim::symbol("n")).moments.empty()) << "the length is not known";
}

// Rows of `x` sums of a and b: in memory, or across it.
CudaProblem problem_of(const TileProgram& program, int64_t places, int64_t length, int64_t columns) {
  const Shape sizes{Dim(places), Dim(columns), Dim(length)};
  const std::vector<Dim> strides{Dim(length * columns), Dim(1), Dim(columns)},
      rows{Dim(columns), Dim(1), Dim(0)};
  CudaProblem problem;
  for (DType dtype : program.inputs) problem.inputs.push_back({dtype, Dim(0), sizes, strides});
  for (DType dtype : program.outputs) problem.outputs.push_back({dtype, Dim(0), sizes, rows});
  problem.params = {Dim(1)};
  problem.program = &program;
  problem.arch = 90;
  return problem;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// One walk and what reads its parts; two launches where blocks share rows, not three.
TEST(TileMoments, ColumnsAreReadOnce) {
  std::vector<std::string> texts;
  size_t split = 0;
  for (const int64_t places : {1, 12, 4000})
    for (const int64_t length : {2, 30, 4096, 100000})
      for (const int64_t columns : {3, 64, 257}) {
        if (places * length * columns > 300'000'000) continue;
        const TileProgram program = statistics({.divisor = static_cast<double>(length)});
        const CudaCode code =
            find_cuda_kernel("tile")->generate(problem_of(program, places, length, columns));
        EXPECT_EQ(count(code.source, "in0 + "), 1U) << code.source;
        EXPECT_EQ(count(code.source, "::reduce_sum<"), 0U);
        EXPECT_LE(code.launches.size(), 2U);
        EXPECT_EQ(count(code.source, "::reduce_moments<"), code.launches.size());
        split += code.launches.size() - 1;
        texts.push_back(code.source);
      }
  EXPECT_GT(split, 0U);
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_compiles(texts, "sm_90a");
}

// So are rows that are too long for a block's registers; of shorter ones each walk is one over registers.
TEST(TileMoments, LongRowsAreReadOnce) {
  std::map<std::string, std::vector<std::string>> texts;  // by target
  for (const int64_t length : {1000, 32768, 40000, 300001})
    for (const int64_t rows : {3, 200}) {
      const TileProgram program = statistics({.divisor = static_cast<double>(length)});
      CudaProblem problem = problem_of(program, rows, length, 1);
      for (const int arch : {80, 90}) {
        problem.arch = arch;
        const CudaCode code = find_cuda_kernel("tile")->generate(problem);
        const bool kept = length <= 32768 || code.launches[0].cluster > 1;
        EXPECT_EQ(count(code.source, "::reduce_moments<"), kept ? 0 : code.launches.size());
        EXPECT_EQ(count(code.source, "in0 + "), 1U) << code.source;
        texts[arch == 80 ? "sm_80" : "sm_90a"].push_back(code.source);
      }
    }
  AICF_NEEDS_NVRTC();
  for (const auto& [target, sources] : texts) cuda_testing::expect_compiles(sources, target);
}

// A norm reads its elements again, other sums of the walks before stay theirs, and no register spills.
TEST(TileMoments, OtherStagesWalkAsBefore) {
  std::vector<std::string> texts;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    TileProgram program{{dtype}, {dtype, DType::f32, DType::f32}, {}, {}, {}};
    program.registers.assign(3, {TileType::f32});
    program.scalars.assign(6, TileType::f32);
    const TileInstr difference = op(TileOp::sub, 1, 0, scalar(2));
    program.stages = {
        {load(0, 0), op(TileOp::reduce_sum, scalar(0), 0), op(TileOp::reduce_max, scalar(5), 0)},
        {constant(scalar(1), 100000), op(TileOp::div, scalar(2), scalar(0), scalar(1)), load(0, 0),
         difference, op(TileOp::mul, 2, 1, 1), op(TileOp::reduce_sum, scalar(3), 2), op(TileOp::abs, 2, 1),
         op(TileOp::reduce_sum, scalar(4), 2)},
        {load(0, 0), difference, op(TileOp::mul, 2, 1, scalar(3)), store(1, 2), store_scalar(2, 5),
         store_scalar(3, 4)}};
    check_tile_program(program);
    for (const int64_t columns : {64, 1}) {
      CudaProblem problem = problem_of(program, 8, 100000, columns);
      problem.outputs[0].strides = problem.inputs[0].strides;
      const CudaCode code = find_cuda_kernel("tile")->generate(problem);
      EXPECT_EQ(count(code.source, "in0 + "), 2U) << code.source;
      EXPECT_GT(count(code.source, "tile::abs("), 0U);
      texts.push_back(code.source);
    }
  }
  AICF_NEEDS_NVRTC();
  for (const std::string& cubin : compile_cuda(texts, "sm_90a"))
    EXPECT_EQ(cuda_testing::stack_bytes(cubin), 0);
}

}  // namespace
}  // namespace aicf
