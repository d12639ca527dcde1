// The text of the convolution rows compiles for random problems, and the weights and layouts decide what is
// in it.
#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/conv/cuda/conv_program.h"
#include "kernels/conv/testing/cuda_conv_case.h"
#include "kernels/testing/cuda_texts.h"
#include "kernels/testing/layout_text.h"

namespace aicf {
namespace {

using cuda_testing::channels_last;
using cuda_testing::compile_all;
using cuda_testing::conv_problem;
using cuda_testing::ConvCase;
using cuda_testing::dense;
using cuda_testing::expect_compiles;
using cuda_testing::hopper_rows;
using cuda_testing::LayoutText;
using cuda_testing::plain_problem;
using cuda_testing::RandomWindows;
using cuda_testing::RowTexts;

TEST(ConvCuda, Compiles) {
  RowTexts texts;
  RandomWindows random(7);
  for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (size_t spatial = 1; spatial <= 3; ++spatial) {
      const bool half = dtype == DType::f16 || dtype == DType::bf16;
      for (int layout = 0; layout < 2; ++layout) {
        ConvCase c{.spatial = spatial, .bias = spatial == 1, .last = layout == 1};
        if (spatial == 3) c.groups = 2, c.maps = 12;
        texts.add(half ? "conv_mma" : "conv_simt", conv_problem(random, dtype, c), random.ranges());
        c.tf32 = true;
        if (dtype == DType::f32) texts.add("conv_mma", conv_problem(random, dtype, c), random.ranges());
      }
      ConvCase depthwise{.spatial = spatial, .groups = 16, .channels = 1, .maps = 1, .last = spatial != 3};
      texts.add("conv_depthwise", conv_problem(random, dtype, depthwise), random.ranges());
      if (spatial != 2) continue;
      ConvCase transposed{.spatial = spatial, .groups = 2, .bias = true, .last = half, .transposed = true};
      texts.add("conv_transpose", conv_problem(random, dtype, transposed), random.ranges());
    }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

// Groups that share a block, whole and in part of a vector of channels, in both layouts.
TEST(ConvCuda, GroupsOfFewChannelsCompile) {
  RowTexts texts;
  RandomWindows random(5);
  const std::vector<ConvCase> cases = {{.groups = 32, .channels = 8, .maps = 8, .bias = true, .stride = 1},
                                       {.groups = 7, .channels = 4, .maps = 4},
                                       {.groups = 9, .channels = 3, .maps = 5, .last = false},
                                       {.groups = 4, .channels = 32, .maps = 32, .last = false, .stride = 1},
                                       {.spatial = 1, .groups = 2, .channels = 24, .maps = 64, .dilation = 2},
                                       {.channels = 64, .maps = 3, .bias = true, .last = false, .stride = 1},
                                       {.channels = 3, .maps = 64, .kernel = 7},
                                       {.channels = 6, .maps = 12, .last = false},
                                       {.spatial = 1, .channels = 1, .maps = 12, .stride = 1, .dilation = 3}};
  for (const ConvCase& c : cases) {
    for (DType dtype : {DType::f16, DType::bf16})
      texts.add("conv_grouped", conv_problem(random, dtype, c), random.ranges());
    ConvCase tf32 = c;
    tf32.tf32 = true;
    texts.add("conv_grouped", conv_problem(random, DType::f32, tf32), random.ranges());
  }
  AICF_NEEDS_NVRTC();
  compile_all(texts);
}

TEST(ConvCuda, GroupsOfFewChannelsHaveTheirRow) {
  RandomWindows random(5);
  const auto have = [&](const ConvCase& c, DType dtype = DType::bf16) {
    const auto rows = hopper_rows(conv_problem(random, dtype, c));
    return std::any_of(rows.begin(), rows.end(),
                       [](const CudaKernel* row) { return row->name == "conv_grouped"; });
  };
  EXPECT_TRUE(have({.groups = 4}));
  EXPECT_TRUE(have({.groups = 4, .tf32 = true}, DType::f32));
  EXPECT_FALSE(have({.groups = 4}, DType::f32));
  EXPECT_TRUE(have({.channels = 128, .maps = 3, .stride = 1}));
  EXPECT_TRUE(have({.channels = 3, .maps = 64, .kernel = 7}));
  EXPECT_FALSE(have({.channels = 3, .maps = 65}));
  EXPECT_FALSE(have({.channels = 64, .maps = 64}));
  EXPECT_FALSE(have({.channels = 1024, .maps = 3}));  // no box has room
  EXPECT_TRUE(have({.groups = 4, .channels = 3, .maps = 5}));
  EXPECT_FALSE(have({.groups = 4, .channels = 1, .maps = 1}));
  EXPECT_FALSE(have({.groups = 2, .channels = 128}));                            // of many channels
  EXPECT_FALSE(have({.spatial = 3, .groups = 4}));                               // of volumes
  EXPECT_FALSE(have({.groups = 4, .kernel = 3, .stride = 1, .dilation = 200}));  // no box has room
}

// As the tuner asks for the reference of a convolution in tf32.
TEST(ConvCuda, F64IsMultipliedWithoutMatrixUnits) {
  RandomWindows random(5);
  const auto rows = hopper_rows(conv_problem(random, DType::f64, {.tf32 = true}));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]->name, "conv_simt");
}

CudaCode hopper_code(CudaProblem problem, const RandomWindows& random) {
  problem.arch = 90;
  problem.ranges = &random.ranges();
  return find_cuda_kernel("conv_mma")->generate(problem);
}

// The same, tap by tap by the copy engine where it can.
CudaCode tap_by_tap_code(CudaProblem problem, const RandomWindows& random) {
  problem.arch = 90;
  problem.ranges = &random.ranges();
  for (const KernelVariant& variant : cuda_variants(*find_cuda_kernel("conv_mma"), problem)) {
    problem.way = variant.way;
    const auto* way = std::get_if<ConvWay>(&variant.way);
    if (way != nullptr && way->loads == ConvLoads::tma) break;
  }
  return find_cuda_kernel("conv_mma")->generate(problem);
}

// Images of such sizes, channels last, at a stride of 2.
void set_sizes(CudaProblem& p, int64_t images, int64_t size) {
  const Dim half((size + 1) / 2);
  p.inputs[0].sizes = {Dim(images), p.inputs[0].sizes[1], Dim(size), Dim(size)};
  p.outputs[0].sizes = {Dim(images), p.outputs[0].sizes[1], half, half};
  for (CudaWindow* window : {&p.inputs[0], &p.outputs[0]}) {
    *window = channels_last(*window);
    window->offset = Dim(0);
  }
}

// Layers of ResNet-50: the copy engine finds the windows, at strides, with few pixels and with many tiles.
TEST(ConvCuda, CopyEngineReadsWindowsOfManyChannels) {
  std::vector<std::string> texts;
  RandomWindows random(3);
  for (const auto& [images, size, maps] : std::vector<std::array<int64_t, 3>>{
           {1, 56, 96}, {1, 9, 96}, {64, 56, 96}, {64, 9, 96}, {64, 56, 2048}}) {
    CudaProblem p = conv_problem(random, DType::bf16, {.channels = 128, .maps = maps, .bias = images == 1});
    set_sizes(p, images, size);
    const CudaCode code = tap_by_tap_code(p, random);
    EXPECT_TRUE(code.launches[0].function.starts_with("conv_tma_bf16")) << code.launches[0].function;
    ASSERT_EQ(code.launches[0].tensor_maps.size(), 2u);
    const TensorMapSpec& x = code.launches[0].tensor_maps[0];
    EXPECT_EQ(x.steps, (std::vector<int32_t>{1, 2, 2, 1}));
    for (int32_t elements : x.box) EXPECT_LE(elements, 256);
    EXPECT_LE(x.box[1] * 2, 256);
    texts.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

// In tf32 where the weights lie rounded, and with half as many channels in a step.
TEST(ConvCuda, CopyEngineReadsRoundedWeightsInTf32) {
  std::vector<std::string> texts;
  RandomWindows random(3);
  for (const auto& [channels, maps] : std::vector<std::array<int64_t, 2>>{{96, 96}, {64, 512}}) {
    CudaProblem p = conv_problem(random, DType::f32, {.channels = channels, .maps = maps, .tf32 = true});
    set_sizes(p, 32, 56);
    EXPECT_TRUE(hopper_code(p, random).launches.back().function.starts_with("conv_mma_f32"));
    p.params.back() = Dim(kRoundedY);
    const CudaCode code = tap_by_tap_code(p, random);
    EXPECT_TRUE(code.launches[0].function.starts_with("conv_tma_f32")) << code.launches[0].function;
    ASSERT_EQ(code.launches[0].tensor_maps.size(), 2u);
    EXPECT_EQ(code.launches[0].tensor_maps[0].box[0], 32);
    texts.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

// One axis, at a dilation.
TEST(ConvCuda, CopyEngineReadsWindowsOverTime) {
  std::vector<std::string> texts;
  RandomWindows random(3);
  for (const bool half : {true, false}) {
    CudaProblem p =
        conv_problem(random, half ? DType::bf16 : DType::f32,
                     {.spatial = 1, .channels = 128, .maps = 128, .stride = 1, .dilation = 8, .tf32 = !half});
    p.inputs[0].sizes = {Dim(8), Dim(128), Dim(1000)};
    p.outputs[0].sizes = {Dim(8), Dim(128), Dim(1000 + 2 - 16)};
    for (CudaWindow* window : {&p.inputs[0], &p.outputs[0]}) *window = channels_last(*window);
    p.inputs[0].offset = p.outputs[0].offset = Dim(0);
    if (!half) p.params.back() = Dim(kRoundedY);
    const CudaCode code = tap_by_tap_code(p, random);
    ASSERT_TRUE(code.launches[0].function.starts_with("conv_tma")) << code.launches[0].function;
    const TensorMapSpec& x = code.launches[0].tensor_maps[0];
    EXPECT_EQ(x.axes, (std::vector<int32_t>{1, 2, 0}));
    EXPECT_EQ(x.box.size(), 3u);
    EXPECT_EQ(x.steps, (std::vector<int32_t>{1, 1, 1}));
    EXPECT_EQ(code.launches[0].tensor_maps[1].axes, (std::vector<int32_t>{1, 2, 0}));
    texts.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90a");
}

TEST(ConvCuda, CopyEngineNeedsStepsOfOneTap) {
  RandomWindows random(3);
  const auto function = [&](CudaProblem p) {
    set_sizes(p, 4, 28);
    return tap_by_tap_code(p, random).launches.back().function;
  };
  EXPECT_TRUE(function(conv_problem(random, DType::f16, {.channels = 64})).starts_with("conv_tma"));
  EXPECT_FALSE(function(conv_problem(random, DType::f16, {.channels = 96})).starts_with("conv_tma"));
  EXPECT_FALSE(function(conv_problem(random, DType::f16, {.channels = 32})).starts_with("conv_tma"));
  EXPECT_FALSE(
      function(conv_problem(random, DType::f16, {.groups = 2, .channels = 64})).starts_with("conv_tma"));
  CudaProblem rows = conv_problem(random, DType::f16, {.channels = 64});
  set_sizes(rows, 4, 28);
  rows.inputs[0].strides = row_major_strides(rows.inputs[0].sizes);
  EXPECT_FALSE(tap_by_tap_code(rows, random).launches.back().function.starts_with("conv_tma"));
}

// A few maps of many pixels, and pictures of a few channels, cost less by boxes of windows than by tiles that
// are mostly empty.
TEST(ConvCuda, NarrowConvolutionsAreCheaperByBoxes) {
  RandomWindows random(3);
  const auto microseconds = [&](const ConvCase& c, DType dtype, const char* row) {
    CudaProblem p = conv_problem(random, dtype, c);
    const Dim size(224), out((224 + 2 - c.kernel) / c.stride + 1);
    p.inputs[0].sizes = {Dim(16), Dim(c.channels), size, size};
    p.outputs[0].sizes = {Dim(16), Dim(c.maps), out, out};
    p.inputs[0] = channels_last(p.inputs[0]);
    p.outputs[0].strides = row_major_strides(p.outputs[0].sizes);
    p.inputs[0].offset = p.outputs[0].offset = Dim(0);
    p.arch = 90;
    p.ranges = &random.ranges();
    const std::vector<KernelVariant> variants = cuda_variants(*find_cuda_kernel(row), p);
    const auto tiles = std::find_if(variants.begin(), variants.end(), [](const KernelVariant& v) {
      return !std::holds_alternative<HaloTmaWay>(v.way);
    });
    return tiles->microseconds;
  };
  for (const bool tf32 : {false, true})
    for (const ConvCase& c : std::vector<ConvCase>{{.channels = 64, .maps = 3, .stride = 1, .tf32 = tf32},
                                                   {.channels = 3, .maps = 64, .kernel = 7, .tf32 = tf32}}) {
      const DType dtype = tf32 ? DType::f32 : DType::bf16;
      EXPECT_LT(microseconds(c, dtype, "conv_grouped"), microseconds(c, dtype, "conv_mma")) << c.channels;
    }
}

bool loads_by_tma(const KernelVariant& variant) {
  const auto* way = std::get_if<ConvWay>(&variant.way);
  return way == nullptr || way->loads == ConvLoads::tma;
}

TEST(ConvCuda, EveryVariantIsAnotherKernelAndTheFirstIsTheChoice) {
  RandomWindows random(3);
  const CudaKernel& row = *find_cuda_kernel("conv_mma");
  for (const int64_t channels : {64, 24}) {
    CudaProblem p = conv_problem(random, DType::f16, {.channels = channels, .maps = 64});
    set_sizes(p, 4, 28);
    p.arch = 90;
    const std::string chosen = hopper_code(p, random).source;
    std::vector<std::string> texts;
    p.ranges = &random.ranges();
    bool gathers = false;
    for (const KernelVariant& variant : cuda_variants(row, p)) {
      EXPECT_GT(variant.microseconds, 0) << to_string(variant.way);
      p.way = variant.way;
      const CudaCode code = hopper_code(p, random);
      const bool tma = loads_by_tma(variant);
      EXPECT_FALSE(tma && gathers) << "what the copy engine reads comes first";
      const std::string& function = code.launches.back().function;
      EXPECT_EQ(function.starts_with("conv_tma") || function.starts_with("conv_halo_tma"), tma)
          << to_string(variant.way);
      gathers = gathers || !tma;
      texts.push_back(code.source);
    }
    ASSERT_FALSE(texts.empty());
    EXPECT_EQ(texts.front(), chosen);
    EXPECT_TRUE(gathers);
    EXPECT_TRUE(loads_by_tma(cuda_variants(row, p).front()));
    std::sort(texts.begin(), texts.end());
    EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
    p.way = ConvWay{ConvLoads::gathered, {.unit = MatmulUnit::simt}};
    EXPECT_THROW(hopper_code(p, random), InternalError);
  }
}

// Few positions share K among blocks, many have tiles of eight by eight results a thread, few maps narrow
// ones; and the compiler leaves at most some addresses to memory, no results.
TEST(ConvCuda, PlainTilesFollowTheSizes) {
  RandomWindows random(3);
  const CudaKernel& row = *find_cuda_kernel("conv_simt");
  std::vector<std::string> texts;
  const auto chosen = [&](const ConvCase& c, int64_t images, int64_t size) {
    CudaProblem p = plain_problem(random, c, images, size);
    const auto variants = cuda_variants(row, p);
    texts.push_back(row.generate(p).source);
    p.way = variants.front().way;
    EXPECT_EQ(row.generate(p).source, texts.back());
    return std::get<ConvWay>(variants.front().way).product;
  };
  const ConvCase few{.channels = 256, .maps = 256, .last = false, .stride = 1},
      many{.channels = 64, .maps = 128, .last = false, .stride = 1},
      narrow{.channels = 64, .maps = 2, .last = false, .stride = 1};
  EXPECT_GT(split_parts(chosen(few, 1, 7)), 1);
  const MatmulWay large = chosen(many, 64, 56);
  EXPECT_EQ(split_parts(large), 1);
  EXPECT_GE(large.block_m * large.block_n, 64 * 128);
  EXPECT_LE(chosen(narrow, 16, 56).block_m, 8);
  AICF_NEEDS_NVRTC();
  for (const std::string& image : compile_cuda(texts, "sm_90a"))
    EXPECT_LT(cuda_testing::stack_bytes(image), 128);
}

TEST(ConvCuda, EveryPlainVariantIsAnotherKernel) {
  RandomWindows random(3);
  const CudaKernel& row = *find_cuda_kernel("conv_simt");
  CudaProblem p = plain_problem(random, {.channels = 64, .maps = 64, .last = false, .stride = 1}, 4, 28);
  std::set<std::string> texts;
  const auto variants = cuda_variants(row, p);
  double before = 0;
  for (const KernelVariant& variant : variants) {
    EXPECT_GE(variant.microseconds, before);
    before = variant.microseconds;
    p.way = variant.way;
    texts.insert(row.generate(p).source);
  }
  EXPECT_GT(variants.size(), 20u);
  EXPECT_EQ(texts.size(), variants.size());
  p.way = ConvWay{ConvLoads::gathered, {.unit = MatmulUnit::simt, .block_m = 32, .block_n = 96}};
  EXPECT_THROW(row.generate(p), InternalError);
}

// A launch that brings the weights into order pays where blocks read them often.
TEST(ConvCuda, PacksWeightsWhoseMapsAreNoNeighbours) {
  RandomWindows random(1);
  CudaProblem p = plain_problem(random, {.channels = 64, .maps = 128, .last = false, .stride = 1}, 64, 56);
  const CudaKernel& row = *find_cuda_kernel("conv_simt");
  const CudaCode packed = row.generate(p);
  ASSERT_EQ(packed.launches.size(), 2u);
  EXPECT_EQ(packed.launches[0].function, "pack_maps_last");
  EXPECT_FALSE(packed.workspace_bytes == Dim(0));
  const double with_pack = cuda_variants(row, p).front().microseconds;
  const Dim maps(128), channels(64);
  p.inputs[1].strides = {Dim(1), maps, Dim(3) * channels * maps, channels * maps};
  const CudaCode read = row.generate(p);
  EXPECT_EQ(read.launches.size(), 1u);
  EXPECT_TRUE(read.launches[0].function.starts_with("conv_simt_f32"));
  EXPECT_LT(cuda_variants(row, p).front().microseconds, with_pack);
}

// Few results read their weights as they lie, neighbouring threads what lies closest; in every tile the
// compiler leaves at most some addresses to memory.
TEST(ConvCuda, ReadsWeightsOfFewResultsAsTheyLie) {
  RandomWindows random(1);
  const CudaKernel& row = *find_cuda_kernel("conv_simt");
  CudaProblem p = plain_problem(random, {.channels = 16, .maps = 24, .last = false}, 2, 20);
  const bool steps_fast[] = {true, false};
  std::vector<std::string> texts;
  for (const bool fast : steps_fast) {
    if (!fast) std::swap(p.inputs[1].strides[0], p.inputs[1].strides[1]);
    std::set<std::pair<int, int>> tiles;
    for (const KernelVariant& variant : cuda_variants(row, p)) {
      const MatmulWay way = std::get<ConvWay>(variant.way).product;
      p.way = variant.way;
      const CudaCode code = row.generate(p);
      if (code.launches[0].function == "pack_maps_last" || !tiles.insert({way.block_m, way.block_n}).second)
        continue;
      EXPECT_EQ(code.launches.size(), splits_in_workspace(way) ? 2u : 1u);
      EXPECT_EQ(code.source.find(", true>::run") != std::string::npos, fast) << code.source;
      texts.push_back(code.source);
    }
    EXPECT_GT(tiles.size(), 8u);
    p.way = {};
  }
  AICF_NEEDS_NVRTC();
  for (const std::string& image : compile_cuda(texts, "sm_90a"))
    EXPECT_LT(cuda_testing::stack_bytes(image), 128);
}

// Images are the channels of a gradient by filter: its taps lie closer, and fewer lines of memory cost less.
TEST(ConvCuda, TapsOfFewChannelsAreReadInRuns) {
  RandomWindows random(1);
  const CudaKernel& row = *find_cuda_kernel("conv_simt");
  const auto with_strides = [&](int64_t tap) {
    CudaProblem p =
        plain_problem(random, {.channels = 4, .maps = 3, .last = false, .kernel = 16, .stride = 1}, 8, 16);
    const int64_t rows = 16 * tap, plane = 16 * rows;
    p.inputs[1].strides = {Dim(plane), Dim(3 * plane), Dim(rows), Dim(tap)};
    return p;
  };
  const CudaProblem close = with_strides(1), far = with_strides(64);
  const CudaCode code = row.generate(close);
  EXPECT_FALSE(code.launches[0].function.starts_with("pack")) << code.launches[0].function;
  EXPECT_NE(code.source.find(", true>::run"), std::string::npos);
  EXPECT_LT(cuda_variants(row, close).front().microseconds, cuda_variants(row, far).front().microseconds);
}

// As the gradient of the weights of a convolution of few maps is: few results of a long window.
CudaProblem long_window(RandomWindows& random, int64_t images, int64_t maps, int64_t side) {
  CudaProblem p = plain_problem(
      random, {.channels = 1, .maps = maps, .last = false, .kernel = side, .stride = 1}, images, side);
  EXPECT_EQ(p.outputs[0].sizes[2], Dim(3));
  return p;
}

// One thread after the other over a thousand taps is no choice where blocks can share them; neighbouring
// results of small windows are.
TEST(ConvCuda, PlainRowsArePricedByTheirSerialSteps) {
  RandomWindows random(3);
  const auto microseconds = [&](const CudaProblem& p, const char* row) {
    return cuda_variants(*find_cuda_kernel(row), p).front().microseconds;
  };
  const CudaProblem few = long_window(random, 16, 3, 32);
  EXPECT_LT(4 * microseconds(few, "conv_simt"), microseconds(few, "conv_depthwise"));
  EXPECT_GT(
      split_parts(std::get<ConvWay>(cuda_variants(*find_cuda_kernel("conv_simt"), few).front().way).product),
      1);
  for (const int64_t kernel : {3, 7}) {
    const CudaProblem usual = plain_problem(
        random, {.groups = 96, .channels = 1, .maps = 1, .last = false, .kernel = kernel, .stride = 1}, 8,
        56);
    EXPECT_LT(microseconds(usual, "conv_depthwise"), microseconds(usual, "conv_simt")) << kernel;
  }
  // Twice the taps of a window take twice as long where nothing else runs; twice the images fill the machine.
  EXPECT_GT(microseconds(long_window(random, 16, 3, 45), "conv_depthwise"),
            1.8 * microseconds(few, "conv_depthwise"));
  EXPECT_LT(microseconds(long_window(random, 32, 3, 32), "conv_depthwise"),
            1.1 * microseconds(few, "conv_depthwise"));
}

// Few maps are the rows of results in planes: a tile has no second block of rows for them.
TEST(ConvCuda, FewMapsInPlanesHaveOneBlockOfRows) {
  RandomWindows random(3);
  std::vector<std::string> texts;
  const auto rows = [&](int64_t maps) {
    CudaProblem p = conv_problem(random, DType::f16,
                                 {.spatial = 3, .channels = 16, .maps = maps, .kernel = 3, .stride = 1});
    p.inputs[0] = channels_last(dense(DType::f16, {Dim(40), Dim(16), Dim(8), Dim(28), Dim(28)}));
    p.inputs[1] = dense(DType::f16, p.inputs[1].sizes);
    p.outputs[0] = dense(DType::f16, {Dim(40), Dim(maps), Dim(8), Dim(28), Dim(28)});
    p.arch = 90;
    const CudaKernel& row = *find_cuda_kernel("conv_mma");
    for (const KernelVariant& variant : cuda_variants(row, p)) {
      const auto way = std::get<ConvWay>(variant.way);
      if (way.loads != ConvLoads::gathered) continue;
      p.way = variant.way;
      texts.push_back(row.generate(p).source);
      return way.product.block_m;
    }
    return 0;
  };
  EXPECT_EQ(rows(16), 64);
  EXPECT_EQ(rows(64), 64);
  EXPECT_EQ(rows(72), 128);
  AICF_NEEDS_NVRTC();
  for (const std::string& image : compile_cuda(texts, "sm_90a"))
    EXPECT_EQ(cuda_testing::stack_bytes(image), 0);
}

// Parts are added by a block for each four results of the threads.
TEST(ConvCuda, BlocksShareTheSumOfParts) {
  RandomWindows random(3);
  const CudaKernel& row = *find_cuda_kernel("conv_simt");
  CudaProblem p = long_window(random, 8, 16, 32);
  std::vector<std::string> texts;
  for (const KernelVariant& variant : cuda_variants(row, p)) {
    const MatmulWay way = std::get<ConvWay>(variant.way).product;
    if (!splits_in_workspace(way) || way.split.parts != 32) continue;
    p.way = variant.way;
    const CudaCode code = row.generate(p);
    const CudaLaunch &parts = code.launches.end()[-2], &sum = code.launches.back();
    const int64_t tiles = *parts.grid[0].constant() / 32, results = int64_t{way.block_m} * way.block_n;
    EXPECT_EQ(sum.grid[0], Dim(tiles * (results / 4 / sum.block))) << to_string(variant.way);
    texts.push_back(code.source);
  }
  ASSERT_GT(texts.size(), 4u);
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

TEST(ConvCuda, PacksWeightsThatAreNotChannelsLast) {
  RowTexts texts;
  RandomWindows random(1);
  CudaProblem p = conv_problem(random, DType::f16, {.channels = 64});
  EXPECT_EQ(texts.add("conv_mma", p, random.ranges()).source.find("pack_weights("), std::string::npos);
  p.inputs[1].strides = row_major_strides(p.inputs[1].sizes);
  const CudaCode packed = texts.add("conv_mma", p, random.ranges());
  EXPECT_EQ(packed.launches[0].function, "pack_weights");
  EXPECT_FALSE(packed.workspace_bytes == Dim(0));
}

// x alone is copied where its channels are whole vectors; the launches that copy are in the estimates of
// tf32.
TEST(ConvCuda, CopiesOfOperandsAreLaunchesOfTheirOwn) {
  RandomWindows random(1);
  const CudaKernel& row = *find_cuda_kernel("conv_mma");
  const auto problem = [&](int64_t channels, bool x_last, bool w_last) {
    CudaProblem p =
        plain_problem(random, {.channels = channels, .maps = 32, .stride = 1, .tf32 = true}, 2, 20);
    p.outputs[0] = channels_last(p.outputs[0]);
    if (x_last) p.inputs[0] = channels_last(p.inputs[0]);
    if (w_last) p.inputs[1] = channels_last(p.inputs[1]);
    return p;
  };
  const auto functions = [&](const CudaProblem& p) {
    std::string names;
    for (const CudaLaunch& launch : row.generate(p).launches)
      names += launch.function.starts_with("conv_mma") ? "mma " : launch.function + " ";
    return names;
  };
  const auto microseconds = [&](const CudaProblem& p) { return cuda_variants(row, p).front().microseconds; };
  const CudaProblem none = problem(8, true, true), x = problem(8, false, true),
                    both = problem(8, false, false), padded = problem(6, false, true);
  EXPECT_EQ(functions(none), "mma ");
  EXPECT_EQ(functions(x), "pack_input mma ");
  EXPECT_EQ(functions(both), "pack_input pack_weights mma ");
  EXPECT_EQ(functions(padded), "pack_input pack_weights mma ");
  EXPECT_LT(microseconds(none) + 2, microseconds(x));
  EXPECT_LT(microseconds(x) + 2, microseconds(both));
  AICF_NEEDS_NVRTC();
  expect_compiles({row.generate(x).source, row.generate(padded).source}, "sm_90a");
}

// The stem of ResNet-50, whose images are copied with four channels: several kernels that NVRTC optimises
// side by side, which once left the quads that lanes transpose in memory.
TEST(ConvCuda, ResultsStayInRegistersBesideOtherKernels) {
  RandomWindows random(3);
  CudaProblem p = conv_problem(random, DType::f16, {.channels = 3, .maps = 64, .last = false});
  p.inputs[0].sizes = {Dim(64), Dim(3), Dim(224), Dim(224)};
  p.inputs[0].strides = row_major_strides(p.inputs[0].sizes);
  p.outputs[0].sizes = {Dim(64), Dim(64), Dim(112), Dim(112)};
  p.outputs[0] = channels_last(p.outputs[0]);
  const CudaCode code = hopper_code(p, random);
  EXPECT_GE(code.launches.size(), 2u);
  EXPECT_TRUE(code.launches.back().function.starts_with("conv_wgmma")) << code.launches.back().function;
  AICF_NEEDS_NVRTC();
  EXPECT_EQ(cuda_testing::stack_bytes(compile_cuda(code.source, "sm_90a")), 0);
}

TEST(ConvCuda, BiasComesBeforeTheEpilogue) {
  const TileProgram plain = conv_program(nullptr, DType::f16, DType::f16, false);
  EXPECT_EQ(plain.inputs, std::vector<DType>{DType::f32});
  TileProgram with_bias = conv_program(&plain, DType::f16, DType::f16, true);
  EXPECT_EQ(with_bias.inputs, (std::vector<DType>{DType::f32, DType::f16}));
  check_tile_program(with_bias);
  EXPECT_EQ(with_bias.stages[0].back().operand, 2);
}

}  // namespace
}  // namespace aicf
