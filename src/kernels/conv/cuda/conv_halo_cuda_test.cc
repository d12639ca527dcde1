// The row of convolutions whose windows lie in shared memory: layouts, ways, and what it takes.
#include <algorithm>
#include <set>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/conv/cuda/conv_program.h"
#include "kernels/conv/testing/cuda_conv_case.h"
#include "kernels/testing/layout_text.h"

namespace aicf {
namespace {

using cuda_testing::channels_last;
using cuda_testing::conv_problem;
using cuda_testing::ConvCase;
using cuda_testing::hopper_rows;
using cuda_testing::LayoutText;
using cuda_testing::RandomWindows;

// Images of such sizes in either layout, of weights that lie as they are packed at load.
CudaProblem halo_problem(RandomWindows& random, DType dtype, const ConvCase& c, int64_t images,
                         int64_t size) {
  CudaProblem p = conv_problem(random, dtype, c);
  const Dim out((size + 2 - c.dilation * (c.kernel - 1) - 1) / c.stride + 1);
  for (size_t i = 0; i < c.spatial; ++i)
    p.inputs[0].sizes[2 + i] = Dim(size), p.outputs[0].sizes[2 + i] = out;
  p.inputs[0].sizes[0] = p.outputs[0].sizes[0] = Dim(images);
  for (CudaWindow* window : {&p.inputs[0], &p.inputs[1], &p.outputs[0]}) {
    window->strides = row_major_strides(window->sizes);
    window->offset = Dim(0);
    if (c.last) *window = channels_last(*window);
  }
  if (c.bias) p.inputs.back() = {dtype, Dim(0), {Dim(c.maps)}, {Dim(1)}};
  p.inputs[1].constant = true;
  p.arch = 90;
  p.ranges = &random.ranges();
  return p;
}

const std::vector<ConvCase>& halo_cases() {
  static const std::vector<ConvCase> cases = {
      {.channels = 24, .maps = 24, .bias = true, .stride = 1},
      {.channels = 24, .maps = 96},
      {.channels = 48, .maps = 192, .bias = true, .stride = 1},
      {.channels = 40, .maps = 20, .kernel = 5},
      {.channels = 16, .maps = 300, .kernel = 1},
      {.channels = 8, .maps = 12, .last = false, .stride = 1},
      {.channels = 12, .maps = 7, .stride = 1, .dilation = 2},
      {.spatial = 1, .channels = 56, .maps = 40, .stride = 3},
  };
  return cases;
}

std::vector<KernelVariant> halo_variants(const CudaProblem& p) {
  return cuda_variants(*find_cuda_kernel("conv_halo"), p);
}

// In every way the shared memory that the host counts is what the device lays out.
TEST(ConvHaloCuda, LayoutsAgree) {
  std::vector<std::string> texts;
  RandomWindows random(9);
  for (const ConvCase& c : halo_cases()) {
    CudaProblem p = halo_problem(random, DType::bf16, c, 4, 29);
    const std::vector<KernelVariant> variants = halo_variants(p);
    ASSERT_FALSE(variants.empty());
    for (const KernelVariant& variant : variants) {
      p.way = variant.way;
      const CudaCode code = find_cuda_kernel("conv_halo")->generate(p);
      const size_t type = code.source.find("aicf::ConvHalo<");
      LayoutText text(code.source);
      text.use("Kernel", code.source.substr(type, code.source.find("::run", type) - type));
      text.equal("Kernel::kBytes", code.launches.at(0).shared_bytes);
      text.equal("Kernel::kThreads", code.launches.at(0).block);
      texts.push_back(text.text());
    }
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

// The results of a warpgroup stay in registers, beside the epilogue of whichever warps share a scheduler.
TEST(ConvHaloCuda, ResultsStayInRegisters) {
  std::vector<std::string> texts;
  RandomWindows random(9);
  for (const ConvCase& c : halo_cases())
    for (const DType dtype : {DType::f16, DType::bf16})
      texts.push_back(find_cuda_kernel("conv_halo")->generate(halo_problem(random, dtype, c, 24, 56)).source);
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

TEST(ConvHaloCuda, VariantsAreOtherKernelsAndTheFirstIsTheChoice) {
  RandomWindows random(3);
  const CudaKernel& row = *find_cuda_kernel("conv_halo");
  CudaProblem p = halo_problem(random, DType::f16, {.channels = 48, .maps = 192, .stride = 1}, 24, 56);
  const std::string chosen = row.generate(p).source;
  std::set<std::string> texts;
  double before = 0;
  const std::vector<KernelVariant> variants = halo_variants(p);
  for (const KernelVariant& variant : variants) {
    EXPECT_GE(variant.microseconds, before);
    before = variant.microseconds;
    p.way = variant.way;
    texts.insert(row.generate(p).source);
    EXPECT_TRUE(texts.contains(chosen));
  }
  EXPECT_GT(texts.size(), 4u);
  EXPECT_EQ(texts.size(), variants.size());
  p.way = WindowWay{1, 1, 8, 8, 1};
  EXPECT_THROW(row.generate(p), InternalError);
}

// Before the launches before have ended, only weights that no launch writes.
TEST(ConvHaloCuda, ReadsConstantWeightsEarly) {
  RandomWindows random(3);
  CudaProblem p = halo_problem(random, DType::f16, {.channels = 24, .maps = 24, .stride = 1}, 24, 56);
  for (const bool constant : {true, false}) {
    p.inputs[1].constant = constant;
    const CudaCode code = find_cuda_kernel("conv_halo")->generate(p);
    EXPECT_EQ(code.launches.at(0).early_inputs, constant ? std::vector<int32_t>{1} : std::vector<int32_t>());
    EXPECT_NE(code.source.find(constant ? ", true>::run" : ", false>::run"), std::string::npos);
  }
}

// Layers of EfficientNetV2-S: few channels, whose windows cost more to gather for each tap than to multiply;
// and such of many.
TEST(ConvHaloCuda, ConvolutionsOfFewChannelsAreCheaperWithHalos) {
  RandomWindows random(3);
  // Of conv_mma the ways that bring each tap by itself.
  const auto tap_by_tap = [](const CudaProblem& p) {
    for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("conv_mma"), p))
      if (std::holds_alternative<ConvWay>(variant.way)) return variant.microseconds;
    return 0.0;
  };
  const auto is_cheaper = [&](const ConvCase& c, int64_t images, int64_t size) {
    const CudaProblem p = halo_problem(random, DType::f16, c, images, size);
    return halo_variants(p).front().microseconds < tap_by_tap(p);
  };
  EXPECT_TRUE(is_cheaper({.channels = 24, .maps = 24, .stride = 1}, 24, 112));
  EXPECT_FALSE(is_cheaper({.channels = 24, .maps = 96}, 24, 112)) << "strided: 32 us, gathered 30";
  EXPECT_TRUE(is_cheaper({.channels = 48, .maps = 192, .stride = 1}, 24, 56));
  EXPECT_FALSE(is_cheaper({.channels = 192, .maps = 256, .stride = 1}, 64, 14));
}

TEST(ConvHaloCuda, RowTakesOneGroupOfHalves) {
  RandomWindows random(5);
  const auto have = [&](const ConvCase& c, DType dtype = DType::bf16) {
    const auto rows = hopper_rows(conv_problem(random, dtype, c));
    return std::any_of(rows.begin(), rows.end(),
                       [](const CudaKernel* row) { return row->name == "conv_halo"; });
  };
  EXPECT_TRUE(have({.channels = 24, .maps = 24}));
  EXPECT_TRUE(have({.channels = 3, .maps = 5}, DType::f16));
  EXPECT_FALSE(have({.channels = 24, .maps = 24, .tf32 = true}, DType::f32));
  EXPECT_FALSE(have({.groups = 2, .channels = 24, .maps = 24}));
  EXPECT_FALSE(have({.channels = 1024, .maps = 24}));  // no box has room beside the weights
  EXPECT_FALSE(have({.spatial = 3, .channels = 24, .maps = 24}));
}

}  // namespace
}  // namespace aicf
