// Convolutions of which a box comes once with its halo: layouts, ways, and what it takes.
#include <algorithm>
#include <set>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/conv/testing/cuda_conv_case.h"
#include "kernels/conv/windows.h"
#include "kernels/matmul/cuda/matmul_way.h"
#include "kernels/testing/layout_text.h"

namespace aicf {
namespace {

using cuda_testing::channels_last;
using cuda_testing::conv_problem;
using cuda_testing::ConvCase;
using cuda_testing::expect_compiles;
using cuda_testing::LayoutText;
using cuda_testing::RandomWindows;

const CudaKernel& conv_row(const CudaProblem& p) {
  const bool by_parts = p.inputs[0].dtype == DType::f32 && !asks_tf32(p.params);
  return *find_cuda_kernel(by_parts ? "conv_tf32x3" : "conv_mma");
}

// Channels last, of weights that lie as they are packed at load. `first`: the result has its pixels as
// neighbours.
CudaProblem boxed_problem(RandomWindows& random, const ConvCase& c, int64_t images, int64_t size,
                          bool by_parts = false, bool first = false) {
  CudaProblem p = conv_problem(random, c.tf32 || by_parts ? DType::f32 : DType::bf16, c);
  const Dim out((size + 1 - c.dilation * (c.kernel - 1)) / c.stride + 1);
  for (size_t i = 0; i < c.spatial; ++i)
    p.inputs[0].sizes[2 + i] = Dim(size), p.outputs[0].sizes[2 + i] = out;
  p.inputs[0].sizes[0] = p.outputs[0].sizes[0] = Dim(images);
  for (CudaWindow* window : {&p.inputs[0], &p.inputs[1], &p.outputs[0]}) {
    *window = channels_last(*window);
    window->offset = Dim(0);
  }
  if (first) p.outputs[0].strides = row_major_strides(p.outputs[0].sizes);
  if (c.bias) p.inputs.back() = {p.inputs[0].dtype, Dim(0), {Dim(c.groups * c.maps)}, {Dim(1)}};
  if (c.tf32) p.params.back() = Dim(kRoundedY);
  p.inputs[1].constant = true;
  p.arch = 90;
  p.ranges = &random.ranges();
  return p;
}

struct Sized {
  ConvCase c;
  int64_t images, size;
  bool by_parts = false, first = false;
};
const std::vector<Sized>& boxed_cases() {
  static const std::vector<Sized> cases = {
      {{.channels = 64, .maps = 64, .bias = true, .stride = 1}, 12, 256},
      {{.channels = 64, .maps = 64, .bias = true, .stride = 1, .tf32 = true}, 12, 256},
      {{.channels = 256, .maps = 256, .stride = 1}, 12, 64},
      {{.channels = 128, .maps = 128, .bias = true, .stride = 1, .tf32 = true}, 12, 128},
      {{.channels = 72, .maps = 100, .kernel = 5, .stride = 1}, 3, 29},
      {{.channels = 24, .maps = 24, .stride = 1, .dilation = 2}, 6, 96},
      {{.channels = 512, .maps = 512, .stride = 1}, 48, 7},
      {{.channels = 64, .maps = 128, .stride = 2}, 24, 56},
      {{.channels = 128, .maps = 128, .stride = 2, .tf32 = true}, 4, 57},
      {{.spatial = 1, .channels = 96, .maps = 80, .kernel = 7, .stride = 1, .tf32 = true}, 5, 1000},
      {{.channels = 64, .maps = 64, .bias = true, .stride = 1}, 12, 256, true},
      {{.channels = 128, .maps = 128, .stride = 1}, 12, 128, true},
      {{.channels = 72, .maps = 100, .kernel = 5, .stride = 1}, 3, 29, true},
      {{.channels = 24, .maps = 24, .bias = true, .stride = 1, .dilation = 2}, 6, 96, true},
      {{.channels = 64, .maps = 128, .stride = 2}, 24, 56, true},
      {{.channels = 256, .maps = 64, .kernel = 1, .stride = 1}, 24, 56, true},
      {{.spatial = 1, .channels = 96, .maps = 80, .kernel = 7, .stride = 1}, 5, 1000, true},
      // Pixels as neighbours in the result.
      {{.channels = 96, .maps = 96, .bias = true, .stride = 1}, 12, 64, false, true},
      {{.channels = 24, .maps = 20, .stride = 1}, 7, 13, false, true},
      {{.channels = 96, .maps = 96, .stride = 2}, 24, 56, false, true},
      {{.channels = 128, .maps = 128, .stride = 1, .tf32 = true}, 4, 57, false, true},
      {{.channels = 72, .maps = 100, .bias = true, .stride = 1}, 3, 29, true, true},
      {{.channels = 96, .maps = 40, .stride = 1}, 24, 56, true, true},
      // Groups, and planes of volumes.
      {{.groups = 4, .channels = 48, .maps = 48, .bias = true, .stride = 1}, 2, 64},
      {{.groups = 2, .channels = 96, .maps = 136, .stride = 2}, 9, 56, false, true},
      {{.groups = 4, .channels = 48, .maps = 48, .stride = 1}, 1, 64, true, true},
      {{.spatial = 3, .channels = 16, .maps = 16, .bias = true, .stride = 1}, 38, 28},
      {{.spatial = 3, .channels = 72, .maps = 96, .stride = 2}, 2, 13, false, true},
      {{.spatial = 3, .groups = 2, .channels = 24, .maps = 24, .stride = 1}, 2, 12, true, true},
  };
  return cases;
}

std::vector<KernelVariant> halo_tma_variants(const CudaProblem& p) {
  std::vector<KernelVariant> list;
  for (const KernelVariant& variant : cuda_variants(conv_row(p), p))
    if (std::holds_alternative<HaloTmaWay>(variant.way)) list.push_back(variant);
  return list;
}

// In every way what the host counts, of shared memory and of boxes, is what the device lays out.
TEST(ConvHaloTmaCuda, LayoutsAgree) {
  std::vector<std::string> texts;
  RandomWindows random(9);
  for (const auto& [c, images, size, by_parts, first] : boxed_cases()) {
    CudaProblem p = boxed_problem(random, c, images, size, by_parts, first);
    const std::vector<KernelVariant> variants = halo_tma_variants(p);
    ASSERT_FALSE(variants.empty());
    for (const KernelVariant& variant : variants) {
      p.way = variant.way;
      const CudaCode code = conv_row(p).generate(p);
      const CudaLaunch& launch = code.launches.at(0);
      const size_t type = code.source.find("aicf::ConvHaloTma<");
      LayoutText text(code.source);
      text.use("Kernel", code.source.substr(type, code.source.find("::run", type) - type));
      text.equal("Kernel::kBytes<Epilogue::Tile>", launch.shared_bytes);
      text.equal("Kernel::kThreads", launch.block);
      const std::vector<int32_t>&x = launch.tensor_maps.at(0).box, &w = launch.tensor_maps.at(1).box;
      text.equal("Kernel::kSliceChannels", x[0]);
      text.equal("Kernel::kSliceChannels", w[0]);
      int64_t positions = 1;
      for (size_t axis = 1; axis < x.size(); ++axis) positions *= x[axis];
      text.equal("Kernel::Box::kPositions", positions);
      text.equal("Kernel::Box::kWidth", x[1]);
      EXPECT_EQ(launch.tensor_maps[0].steps[1], c.stride);
      text.equal("Kernel::kStageBytes", w.back() * 128);
      texts.push_back(text.text());
    }
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

// The sums of 64 maps and 256 pixels stay in registers, beside the epilogue.
TEST(ConvHaloTmaCuda, ResultsStayInRegisters) {
  std::vector<std::string> texts;
  RandomWindows random(9);
  for (const auto& [c, images, size, by_parts, first] : boxed_cases()) {
    CudaProblem p = boxed_problem(random, c, images, size, by_parts, first);
    p.way = halo_tma_variants(p).front().way;
    texts.push_back(conv_row(p).generate(p).source);
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

// So do they beside two operands as large as the result: those of f32 take twice the registers of halves.
TEST(ConvHaloTmaCuda, ResultsBesideOperandsStayInRegisters) {
  const auto load = [](int16_t to, int16_t operand) {
    return TileInstr{.op = TileOp::load, .type = TileType::f32, .dst = to, .operand = operand};
  };
  const auto add = [](int16_t to, int16_t a, int16_t b) {
    return TileInstr{.op = TileOp::add, .type = TileType::f32, .dst = to, .a = a, .b = b};
  };
  TileProgram program;
  program.inputs.assign(3, DType::f32), program.outputs = {DType::f32};
  program.registers.assign(5, {TileType::f32});
  program.stages = {{load(0, 0),
                     load(1, 1),
                     add(2, 0, 1),
                     load(3, 2),
                     add(4, 2, 3),
                     {.op = TileOp::store, .type = TileType::f32, .a = 4, .operand = 3}}};
  RandomWindows random(11);
  std::vector<std::string> texts;
  for (const bool tf32 : {true, false}) {
    CudaProblem p =
        boxed_problem(random, {.channels = 64, .maps = 64, .stride = 1, .tf32 = tf32}, 12, 256, !tf32);
    p.program = &program;
    p.inputs.resize(2);
    p.inputs.resize(4, p.outputs[0]);
    p.way = halo_tma_variants(p).front().way;
    texts.push_back(conv_row(p).generate(p).source);
    EXPECT_NE(texts.back().find(", true, false, true>::run"), std::string::npos);  // none is fetched ahead
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

TEST(ConvHaloTmaCuda, VariantsAreOtherKernels) {
  RandomWindows random(3);
  CudaProblem p = boxed_problem(random, {.channels = 64, .maps = 64, .stride = 1}, 24, 56);
  std::set<std::string> texts;
  double before = 0;
  const std::vector<KernelVariant> variants = halo_tma_variants(p);
  for (const KernelVariant& variant : variants) {
    EXPECT_GE(variant.microseconds, before);
    before = variant.microseconds;
    p.way = variant.way;
    const CudaCode code = conv_row(p).generate(p);
    EXPECT_TRUE(code.launches.at(0).function.starts_with("conv_halo_tma")) << to_string(variant.way);
    texts.insert(code.source);
  }
  EXPECT_GT(texts.size(), 4u);
  EXPECT_EQ(texts.size(), variants.size());
  p.way = HaloTmaWay{1, 1, 32};
  EXPECT_THROW(conv_row(p).generate(p), InternalError);
}

// As many images as there are: the launch counts their boxes, whole images of several in one among them.
TEST(ConvHaloTmaCuda, TakesAnyNumberOfImages) {
  RandomWindows random(4);
  std::vector<std::string> texts;
  for (const int64_t size : {56, 7}) {
    CudaProblem p = boxed_problem(random, {.channels = 64, .maps = 64, .stride = 1}, 1, size);
    Dim images(1);
    while (images.is_constant()) images = random.size(1, 100);
    p.inputs[0].sizes[0] = p.outputs[0].sizes[0] = images;
    p.way = halo_tma_variants(p).front().way;
    const CudaCode code = conv_row(p).generate(p);
    EXPECT_FALSE(code.launches.at(0).grid[0].is_constant());
    texts.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

// Before the launches before have ended, only weights that no launch writes.
TEST(ConvHaloTmaCuda, ReadsConstantWeightsEarly) {
  RandomWindows random(3);
  CudaProblem p = boxed_problem(random, {.channels = 64, .maps = 64, .stride = 1}, 24, 56);
  p.way = halo_tma_variants(p).front().way;
  for (const bool constant : {true, false}) {
    p.inputs[1].constant = constant;
    const CudaCode code = conv_row(p).generate(p);
    EXPECT_EQ(code.launches.at(0).early_inputs, constant ? std::vector<int32_t>{1} : std::vector<int32_t>());
    EXPECT_NE(code.source.find(constant ? ", true>::run" : ", false>::run"), std::string::npos);
  }
}

// Windows of several taps, channels last.
TEST(ConvHaloTmaCuda, TakesWindowsThatOverlap) {
  RandomWindows random(5);
  const auto takes = [&](const ConvCase& c, bool last = true) {
    CudaProblem p = boxed_problem(random, c, 4, 28);
    if (!last) std::swap(p.inputs[0].strides[1], p.inputs[0].strides[3]);
    return !halo_tma_variants(p).empty();
  };
  EXPECT_TRUE(takes({.channels = 64, .maps = 64, .stride = 1}));
  EXPECT_TRUE(takes({.channels = 64, .maps = 64, .stride = 1, .tf32 = true}));
  EXPECT_TRUE(takes({.channels = 64, .maps = 64, .stride = 2}));
  EXPECT_TRUE(takes({.channels = 24, .maps = 64, .stride = 1}));
  EXPECT_TRUE(takes({.channels = 24, .maps = 64, .stride = 1, .tf32 = true}));
  EXPECT_FALSE(takes({.channels = 16, .maps = 64, .stride = 1, .tf32 = true})) << "half would be zeros";
  EXPECT_FALSE(takes({.channels = 64, .maps = 64, .stride = 2, .dilation = 2}));
  EXPECT_FALSE(takes({.channels = 64, .maps = 64, .kernel = 1, .stride = 1}));
  EXPECT_FALSE(takes({.channels = 64, .maps = 64, .stride = 1}, false));
  EXPECT_TRUE(takes({.groups = 2, .channels = 48, .maps = 40, .stride = 1}));
  EXPECT_FALSE(takes({.groups = 2, .channels = 24, .maps = 64, .stride = 1}))
      << "a last instruction would take channels of the next group";
  EXPECT_FALSE(takes({.groups = 2, .channels = 64, .maps = 60, .stride = 1})) << "no whole vectors of maps";
  EXPECT_TRUE(takes({.spatial = 3, .channels = 64, .maps = 64, .stride = 1}));
  EXPECT_FALSE(takes({.channels = 60, .maps = 64, .stride = 1})) << "positions are no whole 16 bytes";
}

// By parts, windows of one tap, too.
TEST(ConvHaloTmaCuda, TakesF32ByParts) {
  RandomWindows random(5);
  const auto takes = [&](const ConvCase& c, bool last = true) {
    CudaProblem p = boxed_problem(random, c, 4, 28, true);
    if (!last) std::swap(p.inputs[0].strides[1], p.inputs[0].strides[3]);
    return !halo_tma_variants(p).empty();
  };
  EXPECT_TRUE(takes({.channels = 64, .maps = 64, .stride = 1}));
  EXPECT_TRUE(takes({.channels = 64, .maps = 3, .stride = 1}));
  EXPECT_TRUE(takes({.channels = 64, .maps = 64, .stride = 2}));
  EXPECT_TRUE(takes({.channels = 64, .maps = 64, .kernel = 1, .stride = 1}));
  EXPECT_FALSE(takes({.channels = 16, .maps = 64, .stride = 1})) << "half would be zeros";
  EXPECT_FALSE(takes({.channels = 64, .maps = 64, .stride = 2, .dilation = 2}));
  EXPECT_FALSE(takes({.channels = 64, .maps = 64, .stride = 1}, false));
  EXPECT_TRUE(takes({.groups = 2, .channels = 24, .maps = 64, .stride = 1}));
  EXPECT_FALSE(takes({.groups = 2, .channels = 20, .maps = 64, .stride = 1}));
  EXPECT_TRUE(takes({.spatial = 3, .channels = 64, .maps = 64, .stride = 1}));
  EXPECT_FALSE(takes({.channels = 66, .maps = 64, .stride = 1})) << "positions are no whole 16 bytes";
}

// An output whose neighbours lie apart takes a sector for each result, of pixels that are neighbours in
// another; gathered windows, whose threads have several maps of a pixel, come first then.
TEST(ConvHaloTmaCuda, CountsScatteredOutputs) {
  RandomWindows random(8);
  CudaProblem p = boxed_problem(random, {.channels = 96, .maps = 96, .stride = 1}, 55, 32, false, true);
  const double alone = halo_tma_variants(p).front().microseconds;
  EXPECT_TRUE(std::holds_alternative<HaloTmaWay>(cuda_variants(conv_row(p), p).front().way));
  p.outputs.push_back(channels_last(p.outputs[0]));
  EXPECT_GT(halo_tma_variants(p).front().microseconds, alone + 55 * 96 * 32 * 32 / 50.0 / 1700);
  EXPECT_TRUE(std::holds_alternative<ConvWay>(cuda_variants(conv_row(p), p).front().way));
}

// Layers of which each tap by itself would bring x anew.
TEST(ConvHaloTmaCuda, OverlappingWindowsAreCheaperAtOnce) {
  RandomWindows random(7);
  const auto is_first = [&](const ConvCase& c, int64_t images, int64_t size) {
    const CudaProblem p = boxed_problem(random, c, images, size);
    return std::holds_alternative<HaloTmaWay>(cuda_variants(conv_row(p), p).front().way);
  };
  EXPECT_TRUE(is_first({.channels = 64, .maps = 64, .stride = 1}, 24, 56));
  EXPECT_TRUE(is_first({.channels = 64, .maps = 64, .stride = 1, .tf32 = true}, 12, 256));
  EXPECT_TRUE(is_first({.channels = 128, .maps = 128, .stride = 1, .tf32 = true}, 12, 128));
}

}  // namespace
}  // namespace aicf
