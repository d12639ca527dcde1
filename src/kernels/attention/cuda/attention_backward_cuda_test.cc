// Compile-only: attention's gradients on every architecture, and which unit serves which problem. What the
// code computes is checked where there is a GPU (compile/gradients_test.cc).
#include "kernels/attention/cuda/attention_backward_cuda.h"

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"

namespace aicf {
namespace {

using cuda_testing::compile_all;
using cuda_testing::dense;
using cuda_testing::expect_compiles;
using cuda_testing::RandomWindows;
using cuda_testing::RowTexts;

CudaProblem backward_problem(DType dtype, const Shape& q, int64_t kv_heads, const Dim& keys,
                             int64_t value_depth, bool causal) {
  const CudaWindow k = dense(dtype, {q[0], Dim(kv_heads), keys, q[3]}),
                   v = dense(dtype, {q[0], Dim(kv_heads), keys, Dim(value_depth)}),
                   out = dense(dtype, {q[0], q[1], q[2], Dim(value_depth)});
  CudaProblem p;
  p.inputs = {dense(dtype, q), k, v, out, out};
  p.outputs = {dense(dtype, q), k, v};
  p.params = {Dim(causal ? 1 : 0), Dim(0)};
  p.fparams = {0.125, 0.0};
  p.arch = 90;
  return p;
}

CudaProblem random_backward_problem(RandomWindows& random, DType dtype) {
  const std::vector<int64_t> depths = {1, 8, 20, 32, 64, 80, 128, 160, 256};
  const int64_t kv_heads = 1 + random.below(3), group = 1 + random.below(3);
  const Dim batch = random.size(1, 4), queries = random.size(1, 300), keys = random.size(1, 600),
            kv(kv_heads);
  const Dim depth(random.pick(depths)), value_depth(random.pick(depths)), heads(kv_heads * group);
  const Shape q{batch, heads, queries, depth}, k{batch, kv, keys, depth}, v{batch, kv, keys, value_depth},
      out{batch, heads, queries, value_depth};
  CudaProblem p;
  for (const Shape& sizes : {q, k, v, out, out}) p.inputs.push_back(random.window(dtype, sizes));
  for (const Shape& sizes : {q, k, v}) p.outputs.push_back(random.window(dtype, sizes));
  p.params = {Dim(random.below(2)), Dim(random.below(2))};
  p.fparams = {0.3, random.below(3) == 0 ? 20.0 : 0.0};
  if (p.params[1] == Dim(1)) {
    const DType mask = random.pick(std::vector<DType>{DType::boolean, DType::f32, dtype});
    p.inputs.push_back(
        random.window(mask, random.below(2) ? Shape{queries, keys} : Shape{batch, Dim(1), Dim(1), keys}));
  }
  if (random.below(3) == 0) p.params.emplace_back(1 + random.below(200));
  return p;
}

TEST(AttentionBackwardCuda, RandomProblemsCompileForEveryArchitecture) {
  RowTexts texts;
  RandomWindows random(5);
  const std::vector<DType> dtypes = {DType::f32, DType::bf16, DType::f64, DType::f16, DType::f32};
  for (int i = 0; i < 10; ++i)
    texts.add("attention_backward_simt", random_backward_problem(random, dtypes[static_cast<size_t>(i % 5)]),
              random.ranges());
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(AttentionBackwardCuda, HopperKernelsCompile) {
  std::vector<std::string> sources;
  const SymbolRanges ranges{{"t", {1, 4096}}};
  const Dim t = Dim::symbol("t");
  for (const auto& [dtype, depth, value_depth] :
       {std::tuple{DType::bf16, 128, 128}, std::tuple{DType::f16, 64, 64}, std::tuple{DType::bf16, 80, 64}}) {
    CudaProblem p =
        backward_problem(dtype, {Dim(2), Dim(4), t, Dim(depth)}, 2, t, value_depth, dtype == DType::bf16);
    if (depth == 64) {
      CudaProblem windowed = p;
      windowed.params.emplace_back(300);
      windowed.ranges = &ranges;
      sources.push_back(attention_backward_code(windowed, BackwardUnit::kWgmma).source);
    }
    p.ranges = &ranges;
    ASSERT_EQ(attention_backward_unit(p), BackwardUnit::kWgmma);
    const CudaCode code = attention_backward_code(p, BackwardUnit::kWgmma);
    ASSERT_EQ(code.launches.size(), 2u);
    for (const CudaLaunch& launch : code.launches) EXPECT_LE(launch.shared_bytes, 227 * 1024);
    EXPECT_EQ(evaluate(code.launches[0].grid[0], {{"t", 300}}), 24);
    EXPECT_EQ(evaluate(code.launches[0].grid[0], {{"t", 4096}}), 132) << "no more blocks than run at once";
    sources.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_90a");
}

TEST(AttentionBackwardCuda, EveryProblemGivesCodeWithinSharedMemory) {
  RandomWindows random(9);
  for (int i = 0; i < 200; ++i) {
    CudaProblem p = random_backward_problem(
        random, random.pick(std::vector<DType>{DType::f16, DType::bf16, DType::f32, DType::f64}));
    p.ranges = &random.ranges();
    for (const cuda_testing::Arch& arch : cuda_testing::kArchs) {
      p.arch = arch.number;
      const BackwardUnit unit = attention_backward_unit(p);
      const CudaCode code = attention_backward_code(p, unit);
      EXPECT_EQ(code, attention_backward_code(p, unit));
      for (const CudaLaunch& launch : code.launches)
        EXPECT_LE(launch.shared_bytes, shared_limit(arch.number));
    }
  }
}

// Blocks of the launch that gives all gradients: of dk and dv, and of dq.
TEST(AttentionBackwardCuda, SmallProblemsHaveManyBlocks) {
  const auto blocks = [&](int64_t batch, int64_t heads, int64_t length, int64_t depth) {
    const CudaProblem p = backward_problem(DType::f32, {Dim(batch), Dim(heads), Dim(length), Dim(depth)},
                                           heads, Dim(length), depth, false);
    return evaluate(attention_backward_code(p, BackwardUnit::kSimt).launches.at(1).grid[0], {});
  };
  EXPECT_GE(blocks(4, 2, 197, 80), 100);
  EXPECT_GE(blocks(1, 2, 197, 80), 50);
  EXPECT_LE(blocks(8, 12, 512, 64), 2 * 8 * 12 * 512 / 48) << "many have tiles that reuse what they read";
}

TEST(AttentionBackwardCuda, EveryWayRunsAsNamed) {
  CudaProblem p = backward_problem(DType::f32, {Dim(4), Dim(2), Dim(197), Dim(80)}, 2, Dim(197), 80, false);
  const CudaKernel& row = *find_cuda_kernel("attention_backward_simt");
  const std::vector<KernelVariant> variants = cuda_variants(row, p);
  ASSERT_GT(variants.size(), 3u);
  EXPECT_EQ(row.generate(p), [&] {
    CudaProblem named = p;
    named.way = variants[0].way;
    return row.generate(named);
  }()) << "the row's own choice comes first";
  for (const KernelVariant& variant : variants) {
    p.way = variant.way;
    const auto& way = std::get<AttentionWay>(variant.way);
    const CudaCode code = row.generate(p);
    EXPECT_EQ(code.launches.at(1).block, 32 * way.row_warps * way.key_warps);
    EXPECT_NE(code.source.find("kOwn = " + std::to_string(way.rows)), std::string::npos);
  }
  p.way = AttentionWay{.rows = 32, .keys = 96, .row_warps = 1, .key_warps = 3, .row_lanes = 8};
  EXPECT_THROW(row.generate(p), InternalError) << "pairs of warps share their others";
}

TEST(AttentionBackwardCuda, WhatTheMatrixUnitsDoNotServeGoesWithoutThem) {
  const CudaProblem good =
      backward_problem(DType::bf16, {Dim(2), Dim(4), Dim(512), Dim(128)}, 2, Dim(512), 128, true);
  ASSERT_EQ(attention_backward_unit(good), BackwardUnit::kWgmma);
  const auto of_depth = [](int64_t depth) {
    return attention_backward_unit(
        backward_problem(DType::bf16, {Dim(2), Dim(4), Dim(512), Dim(depth)}, 2, Dim(512), depth, true));
  };
  EXPECT_EQ(of_depth(32), BackwardUnit::kWgmma);
  EXPECT_EQ(of_depth(24), BackwardUnit::kSimt);
  CudaProblem older = good, capped = good, masked = good, reversed = good, deep = good;
  older.arch = 80;
  capped.fparams[1] = 30;
  masked.params[1] = Dim(1);
  masked.inputs.push_back(dense(DType::f32, {Dim(512), Dim(512)}));
  reversed.inputs[4].strides[2] = Dim(-128);
  deep.inputs[0].sizes[3] = Dim(256);
  for (const CudaProblem* other : {&older, &capped, &masked, &reversed, &deep})
    EXPECT_EQ(attention_backward_unit(*other), BackwardUnit::kSimt);
}

}  // namespace
}  // namespace aicf
