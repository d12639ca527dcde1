// Compile-only: the shared memory that the host counts for attention is what the device lays out.
#include <gtest/gtest.h>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/attention/cuda/attention_backward_cuda.h"
#include "kernels/attention/cuda/attention_cuda.h"
#include "kernels/testing/cuda_texts.h"
#include "kernels/testing/layout_text.h"

namespace aicf {
namespace {

using cuda_testing::dense;
using cuda_testing::expect_compiles;
using cuda_testing::LayoutText;

constexpr int64_t kAlign = 1024;  // of the first byte

CudaProblem laid_out_problem(DType dtype, const Shape& q, int64_t kv_heads, int64_t keys, int64_t depth,
                             bool has_mask) {
  CudaProblem p;
  p.inputs = {dense(dtype, q), dense(dtype, {q[0], Dim(kv_heads), Dim(keys), q[3]}),
              dense(dtype, {q[0], Dim(kv_heads), Dim(keys), Dim(depth)})};
  p.outputs = {dense(dtype, {q[0], q[1], q[2], Dim(depth)})};
  if (has_mask) p.inputs.push_back(dense(dtype, {q[0], Dim(1), Dim(1), Dim(keys)}));
  p.params = {Dim(0), Dim(has_mask ? 1 : 0)};
  p.fparams = {0.125, 0.0};
  p.arch = 90;
  return p;
}

std::string number_in(int64_t value) { return std::to_string(value); }

void add_split(LayoutText& text, const AttentionPlan& plan) {
  text.use("Split", "aicf::attention::SplitAttention<Traits, " + number_in(plan.way.keys) +
                        ", aicf::attention::Split::" +
                        (plan.way.cluster > 1    ? "kCluster"
                         : plan.way.cluster == 1 ? "kSingle"
                                                 : "kWorkspace") +
                        ", " + number_in(std::max(plan.way.cluster, 1)) + ", " + number_in(plan.tiles) +
                        ", " + number_in(plan.stages) + ", aicf::attention::AsTheyAre>");
  const std::string stages = number_in(plan.stages) + " * Split::kStageBytes",
                    sums = "(Split::kWarps * 16 * Split::kSumStride * 4 + (Split::kWarps + 1) * 16 * 8)";
  text.equal("16 * Split::kRowBytes + (" + stages + " > " + sums + " ? " + stages + " : " + sums + ")",
             plan.shared_bytes);
}

std::string layout_text(const CudaProblem& problem, const AttentionPlan& plan) {
  LayoutText text(attention_code(problem, plan.way).source);
  switch (plan.way.unit) {
    case AttentionUnit::kWgmma:
      text.equal("aicf::attention::HopperShared<Traits>::kBarriers + 12 * 8", plan.shared_bytes - kAlign);
      break;
    case AttentionUnit::kShort:
      text.equal("aicf::attention::ShortShared<Traits>::kBarriers + 2 * 8", plan.shared_bytes - kAlign);
      break;
    case AttentionUnit::kMma:
      text.use("Mma", "aicf::attention::MmaAttention<Traits, " + number_in(plan.warps) + ", " +
                          number_in(plan.way.rows / plan.warps / 16) + ">");
      text.equal(
          "(Traits::kRows + Mma::kKeys) * Mma::kRowBytes + Mma::kKeys * Mma::kValueBytes + "
          "(Traits::kMaskPerKey ? 2 * 4 * Mma::kKeys : 0)",
          plan.shared_bytes);
      break;
    case AttentionUnit::kSplit:
      add_split(text, plan);
      break;
    case AttentionUnit::kSimt:
      text.use("Simt", "aicf::attention::SimtShape<Traits>");
      text.equal("Simt::kElements * sizeof(Simt::A)", plan.shared_bytes);
      text.equal("32 * Simt::kWarps", 32 * plan.way.row_warps * plan.way.key_warps);
      break;
  }
  return text.text();
}

TEST(AttentionLayout, HostAndDeviceAgree) {
  std::vector<std::string> texts;
  std::vector<int> seen(5);
  for (const bool has_mask : {false, true})
    for (const auto& [q, kv_heads, keys, depth] :
         {std::tuple(Shape{Dim(4), Dim(16), Dim(4096), Dim(128)}, 16, 4096, 128),
          {Shape{Dim(4), Dim(16), Dim(4096), Dim(64)}, 16, 4096, 64},
          {Shape{Dim(64), Dim(12), Dim(128), Dim(32)}, 12, 128, 32},
          {Shape{Dim(8), Dim(12), Dim(128), Dim(64)}, 12, 100, 40},
          {Shape{Dim(1), Dim(32), Dim(1), Dim(64)}, 8, 1024, 64},
          {Shape{Dim(1), Dim(32), Dim(1), Dim(160)}, 8, 3000, 160},
          {Shape{Dim(1), Dim(2), Dim(512), Dim(80)}, 2, 512, 96}}) {
      const CudaProblem problem = laid_out_problem(DType::f16, q, kv_heads, keys, depth, has_mask);
      for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("attention_wgmma"), problem)) {
        const AttentionPlan plan = resolve(std::get<AttentionWay>(variant.way), problem);
        if (++seen[static_cast<size_t>(plan.way.unit)] <= 8) texts.push_back(layout_text(problem, plan));
      }
    }
  for (const AttentionUnit unit :
       {AttentionUnit::kMma, AttentionUnit::kSplit, AttentionUnit::kWgmma, AttentionUnit::kShort})
    EXPECT_GT(seen[static_cast<size_t>(unit)], 0) << static_cast<int>(unit);
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

TEST(AttentionLayout, HostAndDeviceAgreeOnTilesOfTheGeneralPurposeUnits) {
  std::vector<std::string> texts;
  int shared = 0;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [queries, keys, depth, value_depth] : {std::tuple(160, 160, 32, 32),
                                                            {512, 512, 128, 128},
                                                            {91, 133, 40, 24},
                                                            {33, 70, 7, 50},
                                                            {1, 900, 64, 64},
                                                            {300, 300, 256, 256}}) {
      const CudaProblem problem =
          laid_out_problem(dtype, Shape{4, 4, queries, depth}, 4, keys, value_depth, false);
      for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("attention_simt"), problem)) {
        const AttentionPlan plan = resolve(std::get<AttentionWay>(variant.way), problem);
        shared += attention_code(problem, plan.way).source.find("kShared = true") != std::string::npos;
        texts.push_back(layout_text(problem, plan));
      }
    }
  EXPECT_GT(shared, 0);
  EXPECT_GT(texts.size(), 100u);
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

// What the host thinks that registers let a multiprocessor hold is what it asks the compiler for, and the
// compiler need not move what the loops hold out of registers for it.
TEST(AttentionLayout, ScoresAndResultsStayInRegisters) {
  AICF_NEEDS_NVRTC();
  constexpr int64_t kMostStack = 128;  // what is not read in the loops over depth and keys
  std::vector<std::string> texts;
  for (const auto& [heads, queries, depth] :
       {std::tuple(128, 160, 32), {96, 197, 64}, {32, 200, 128}, {4, 1024, 64}, {64, 117, 80}})
    texts.push_back(find_cuda_kernel("attention_simt")
                        ->generate(laid_out_problem(DType::f32, Shape{1, heads, queries, depth}, heads,
                                                    queries, depth, false))
                        .source);
  const std::vector<std::string> cubins = compile_cuda(texts, "sm_90a");
  for (size_t i = 0; i < cubins.size(); ++i)
    EXPECT_LE(cuda_testing::stack_bytes(cubins[i]), kMostStack) << texts[i];
}

CudaProblem gradients_problem(DType dtype, const Shape& q, int64_t keys, int64_t value_depth, bool sums) {
  const CudaWindow k = dense(dtype, {q[0], q[1], Dim(keys), q[3]}),
                   v = dense(dtype, {q[0], q[1], Dim(keys), Dim(value_depth)}),
                   out = dense(dtype, {q[0], q[1], q[2], Dim(value_depth)});
  CudaProblem p;
  p.inputs = {dense(dtype, q), k, v, out, out};
  if (sums) p.inputs.push_back(dense(DType::f32, {q[0], q[1], q[2]}));
  p.outputs = {dense(dtype, q), k, v};
  p.params = {Dim(0), Dim(0)};
  p.fparams = {0.125, 0.0};
  p.arch = 90;
  return p;
}

TEST(AttentionLayout, HostAndDeviceAgreeOnTilesOfGradients) {
  std::vector<std::string> texts;
  bool one_stage = false, two_stages = false;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [queries, keys, depth, value_depth] : {std::tuple(197, 197, 80, 80),
                                                            {512, 512, 64, 64},
                                                            {91, 133, 40, 24},
                                                            {33, 70, 7, 50},
                                                            {300, 300, 256, 256}}) {
      CudaProblem problem = gradients_problem(dtype, Shape{4, 4, queries, depth}, keys, value_depth, false);
      for (const KernelVariant& variant :
           cuda_variants(*find_cuda_kernel("attention_backward_simt"), problem)) {
        problem.way = variant.way;
        const CudaCode code = attention_backward_code(problem, BackwardUnit::kSimt);
        (code.source.find("kStages = 2") != std::string::npos ? two_stages : one_stage) = true;
        LayoutText text(code.source);
        text.use("Shape", "aicf::attention::BackwardShape<Traits>");
        text.equal("Shape::kElements * sizeof(Shape::A)", code.launches.at(1).shared_bytes);
        text.equal("Shape::kThreads", code.launches.at(1).block);
        texts.push_back(text.text());
      }
    }
  // Where little shared memory is left, rows lie side by side.
  CudaProblem tight = gradients_problem(DType::f64, Shape{1, 1, 30, 256}, 30, 256, false);
  tight.arch = 86;
  const CudaCode code = attention_backward_code(tight, BackwardUnit::kSimt);
  EXPECT_NE(code.source.find("kOddRows = false"), std::string::npos);
  LayoutText text(code.source);
  text.equal("aicf::attention::BackwardShape<Traits>::kElements * 8", code.launches.at(1).shared_bytes);
  texts.push_back(text.text());
  EXPECT_TRUE(one_stage && two_stages);
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

TEST(AttentionLayout, GradientsStayInRegisters) {
  AICF_NEEDS_NVRTC();
  constexpr int64_t kMostStack = 16;  // rows of 256: a few addresses
  std::vector<std::string> texts;
  for (const auto& [heads, length, depth] :
       {std::tuple(8, 197, 80), {12, 300, 64}, {96, 512, 64}, {16, 1024, 128}, {8, 300, 256}})
    texts.push_back(
        find_cuda_kernel("attention_backward_simt")
            ->generate(gradients_problem(DType::f32, Shape{1, heads, length, depth}, length, depth, true))
            .source);
  const std::vector<std::string> cubins = compile_cuda(texts, "sm_90a");
  for (size_t i = 0; i < cubins.size(); ++i)
    EXPECT_LE(cuda_testing::stack_bytes(cubins[i]), kMostStack) << texts[i];
}

// Both have barriers set aside for the larger one.
TEST(AttentionLayout, GradientsFitWhatTheHostCounts) {
  AICF_NEEDS_NVRTC();
  constexpr int64_t kBarriers = 160;
  std::vector<std::string> texts;
  for (const int64_t depth : {32, 64, 96, 128}) {
    const CudaProblem problem =
        gradients_problem(DType::f16, Shape{Dim(2), Dim(4), Dim(256), Dim(depth)}, 256, depth, false);
    ASSERT_EQ(attention_backward_unit(problem), BackwardUnit::kWgmma);
    const CudaCode code = attention_backward_code(problem, BackwardUnit::kWgmma);
    LayoutText text(code.source);
    text.use("Dq", "aicf::attention::DqShared<Traits>");
    text.use("Dkv", "aicf::attention::DkvShared<Traits>");
    text.equal("Dq::kBarriers", code.launches[0].shared_bytes - kAlign - kBarriers);
    text.equal("Dkv::kBarriers", code.launches[1].shared_bytes - kAlign - kBarriers);
    text.equal("2 * Dq::kFulls * 8 <= " + number_in(kBarriers), 1);
    texts.push_back(text.text());
  }
  expect_compiles(texts, "sm_90a");
}

}  // namespace
}  // namespace aicf
