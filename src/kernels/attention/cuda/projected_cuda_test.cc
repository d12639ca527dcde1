// Compile-only: attention with the product before it, and what it takes. What it computes is checked where
// there is a GPU (compile/calls/join_attention_test.cc).
#include "kernels/attention/cuda/projected_cuda.h"

#include <gtest/gtest.h>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"

namespace aicf {
namespace {

using cuda_testing::expect_compiles;

struct Case {
  DType dtype = DType::f16;
  int64_t heads = 12, depth = 32, width = 384;
  bool bias = true, causal = false;
  enum class Mask { kNone, kPerKey, kPerRow } mask = Mask::kPerKey;
  Dim batch{64};
  SymbolRanges ranges = {};
};

CudaProblem projected_problem(const Case& c) {
  const int64_t columns = c.heads * c.depth;
  const Dim rows = c.batch * Dim(128);
  CudaProblem problem;
  problem.inputs = {{c.dtype, Dim(0), {rows, Dim(c.width)}, {Dim(c.width), Dim(1)}},
                    {c.dtype, Dim(0), {Dim(c.width), Dim(3 * columns)}, {Dim(3 * columns), Dim(1)}, true}};
  if (c.bias) problem.inputs.push_back({c.dtype, Dim(0), {rows, Dim(3 * columns)}, {Dim(0), Dim(1)}});
  const bool mask = c.mask != Case::Mask::kNone;
  const Dim queries(c.mask == Case::Mask::kPerRow ? 128 : 1);
  if (mask)
    problem.inputs.push_back({c.dtype,
                              Dim(0),
                              {c.batch, Dim(1), queries, Dim(128)},
                              {queries * Dim(128), Dim(128), Dim(128), Dim(1)}});
  problem.outputs = {{c.dtype,
                      Dim(0),
                      {c.batch, Dim(c.heads), Dim(128), Dim(c.depth)},
                      {Dim(128 * columns), Dim(c.depth), Dim(columns), Dim(1)}}};
  problem.params = {Dim(c.causal ? 1 : 0), Dim(mask ? 1 : 0), Dim(c.bias ? 1 : 0), Dim(0),
                    Dim(columns),          Dim(2 * columns)};
  problem.fparams = {0.125, 0};
  problem.ranges = &c.ranges;
  problem.arch = 90;
  return problem;
}

const CudaKernel& row() { return *find_cuda_kernel("matmul_attention"); }

TEST(ProjectedAttention, Compiles) {
  Case ranged{.dtype = DType::bf16, .depth = 64, .bias = false, .causal = true, .mask = Case::Mask::kPerRow};
  ranged.batch = Dim::symbol("batch");
  ranged.ranges["batch"] = {1, 64};
  std::vector<std::string> sources;
  for (const Case& c : {Case{}, Case{.depth = 64, .mask = Case::Mask::kNone}, ranged})
    sources.push_back(row().generate(projected_problem(c)).source);
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

TEST(ProjectedAttention, ATileIsASequenceAndAHeadOrTwo) {
  for (const int64_t depth : {32, 64}) {
    const CudaLaunch launch =
        row().generate(projected_problem({.depth = depth, .batch = Dim(2)})).launches.at(0);
    EXPECT_EQ(evaluate(launch.grid[0], {}), 2 * 12 * depth / 64);
    EXPECT_LE(launch.shared_bytes, 227 * 1024);
    EXPECT_EQ(launch.early_inputs, std::vector<int32_t>{1}) << "the weights are constant";
  }
}

TEST(ProjectedAttention, TakesNothingElse) {
  EXPECT_TRUE(fits_projected_attention(projected_problem({})));
  EXPECT_FALSE(fits_projected_attention(projected_problem({.heads = 3}))) << "half a tile";
  EXPECT_FALSE(fits_projected_attention(projected_problem({.depth = 48})));
  EXPECT_FALSE(fits_projected_attention(projected_problem({.width = 100}))) << "rows of 200 bytes";
  CudaProblem problem = projected_problem({});
  problem.arch = 89;
  EXPECT_FALSE(fits_projected_attention(problem));
  problem = projected_problem({});
  problem.outputs[0].sizes[2] = Dim(64);
  EXPECT_FALSE(fits_projected_attention(problem));
  problem = projected_problem({});
  problem.inputs[1].strides = {Dim(1), Dim(384)};
  EXPECT_FALSE(fits_projected_attention(problem)) << "rows of y along k";
}

TEST(ProjectedAttention, LongProductsOfFewTilesTakeLongerThanTheirWork) {
  const double few =
      projected_attention_microseconds(projected_problem({.depth = 64, .width = 768, .batch = Dim(1)}));
  const double many =
      projected_attention_microseconds(projected_problem({.depth = 64, .width = 768, .batch = Dim(11)}));
  EXPECT_EQ(few, many) << "one tile a multiprocessor, 12 or 132 of them";
}

}  // namespace
}  // namespace aicf
