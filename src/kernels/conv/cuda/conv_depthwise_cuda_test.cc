// Tiles, layouts and prices of depthwise convolutions on CUDA.
#include <gtest/gtest.h>

#include <array>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/conv/testing/cuda_conv_case.h"
#include "kernels/testing/cuda_texts.h"

namespace aicf {
namespace {

using cuda_testing::channels_last;
using cuda_testing::conv_problem;
using cuda_testing::dense;
using cuda_testing::plain_problem;
using cuda_testing::RandomWindows;

// A channel with many maps, as a front end of audio has, is a product over the kernel positions.
TEST(ConvDepthwiseCuda, TakesFewMapsOfAChannel) {
  RandomWindows random(3);
  const auto takes = [&](int64_t groups, int64_t maps) {
    const CudaProblem p =
        conv_problem(random, DType::f32, {.spatial = 1, .groups = groups, .channels = 1, .maps = maps});
    Problem problem{.family = "conv", .inputs = {}, .outputs = {}, .params = p.params, .fparams = {}};
    for (const CudaWindow& w : p.inputs) problem.inputs.push_back({w.dtype, w.sizes});
    problem.outputs = {{p.outputs[0].dtype, p.outputs[0].sizes}};
    return find_cuda_kernel("conv_depthwise")->can_run(problem);
  };
  EXPECT_TRUE(takes(16, 1));
  EXPECT_TRUE(takes(16, 8));
  EXPECT_FALSE(takes(16, 9));
  EXPECT_FALSE(takes(1, 256));
}

// Maps of kernels that are known when the text is written: tiles of results, in both layouts, whose loops the
// compiler unrolls without leaving registers for memory.
TEST(ConvDepthwiseCuda, TilesStayInRegisters) {
  RandomWindows random(11);
  std::vector<std::string> sources;
  const std::vector<std::array<int64_t, 3>> geometries = {{3, 1, 1}, {5, 2, 1}, {7, 1, 1}, {3, 1, 2}};
  for (size_t i = 0; i < geometries.size(); ++i)
    for (const bool last : {true, false}) {
      const auto [kernel, stride, dilation] = geometries[i];
      const int64_t groups = i == 2 ? 73 : 96;
      CudaProblem p = conv_problem(random, i % 2 == 0 ? DType::bf16 : DType::f32,
                                   {.groups = groups,
                                    .channels = 1,
                                    .maps = 1,
                                    .last = last,
                                    .kernel = kernel,
                                    .stride = stride,
                                    .dilation = dilation});
      const Dim out((56 + 2 - dilation * (kernel - 1) - 1) / stride + 1);
      p.inputs[0].sizes = {Dim(16), Dim(groups), Dim(56), Dim(56)};
      p.outputs[0].sizes = {Dim(16), Dim(groups), out, out};
      for (CudaWindow* w : {&p.inputs[0], &p.outputs[0]}) {
        w->offset = Dim(0);
        w->strides = row_major_strides(w->sizes);
        if (last) *w = channels_last(*w);
      }
      const bool wide = last && i % 2 == 0 && groups % 8 == 0;  // as weights are packed at load
      if (wide) {
        p.inputs[1].offset = Dim(0);
        p.inputs[1].strides = {Dim(1), Dim(groups), Dim(kernel * groups), Dim(groups)};
      }
      p.arch = 90;
      p.ranges = &random.ranges();
      const CudaCode code = find_cuda_kernel("conv_depthwise")->generate(p);
      EXPECT_NE(code.source.find(last ? "ConvDepthwiseLast" : "ConvDepthwiseFirst"), std::string::npos);
      const bool reads_wide = code.source.find(", true, aicf::DepthwiseTile") != std::string::npos;
      EXPECT_TRUE(!last || reads_wide == wide);
      sources.push_back(code.source);
    }
  AICF_NEEDS_NVRTC();
  const std::vector<std::string> images = compile_cuda(sources, "sm_90a");
  for (size_t i = 0; i < images.size(); ++i) EXPECT_EQ(cuda_testing::stack_bytes(images[i]), 0) << sources[i];
}

// Channels last, of one, two and three maps each: a thread reads whole channels, or one for a part of its
// maps.
TEST(ConvDepthwiseCuda, TilesTakeEveryMapOfTheirChannels) {
  struct Geometry {
    DType dtype;
    int64_t groups, maps, kernel, stride, images, side;
    const char* tile;  // maps of a thread, and of a channel
  };
  const std::vector<Geometry> geometries = {{DType::f32, 48, 2, 7, 2, 48, 64, "float, float, 4, 2, "},
                                            {DType::f32, 64, 1, 7, 1, 32, 72, "float, float, 4, 1, "},
                                            {DType::f32, 16, 8, 3, 1, 4, 20, "float, float, 4, 8, "},
                                            {DType::f32, 30, 3, 5, 1, 4, 20, "float, float, 1, 3, "},
                                            {DType::f16, 384, 1, 7, 1, 2, 10, "aicf::f16, float, 4, 1, "},
                                            {DType::bf16, 192, 1, 7, 1, 32, 28, "aicf::bf16, float, 4, 1, "},
                                            {DType::f16, 240, 1, 5, 1, 32, 28, nullptr},
                                            {DType::bf16, 96, 2, 3, 2, 8, 56, nullptr},
                                            {DType::f16, 73, 1, 7, 1, 2, 14, "aicf::f16, float, 1, 1, "},
                                            {DType::f64, 10, 1, 7, 1, 8, 36, "double, double, 2, 1, "},
                                            {DType::f32, 64, 1, 9, 1, 8, 36, nullptr},
                                            {DType::f16, 64, 1, 3, 1, 32, 112, nullptr}};
  RandomWindows random(13);
  std::vector<std::string> sources;
  for (const Geometry& g : geometries) {
    CudaProblem p = plain_problem(
        random, {.groups = g.groups, .channels = 1, .maps = g.maps, .kernel = g.kernel, .stride = g.stride},
        g.images, g.side);
    for (CudaWindow* w : {&p.inputs[0], &p.inputs[1], &p.outputs[0]}) w->dtype = g.dtype;
    for (CudaWindow* w : {&p.inputs[0], &p.outputs[0]}) *w = channels_last(*w);
    const CudaCode code = find_cuda_kernel("conv_depthwise")->generate(p);
    EXPECT_NE(code.source.find("ConvDepthwiseLast<" + std::string(g.tile != nullptr ? g.tile : "")),
              std::string::npos)
        << code.source;
    sources.push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  const std::vector<std::string> images = compile_cuda(sources, "sm_90a");
  for (size_t i = 0; i < images.size(); ++i) EXPECT_EQ(cuda_testing::stack_bytes(images[i]), 0) << sources[i];
}

// A depthwise convolution of any type has the price of its cheapest tile.
TEST(ConvDepthwiseCuda, HasAPriceForEveryType) {
  RandomWindows random(3);
  const CudaKernel& row = *find_cuda_kernel("conv_depthwise");
  CudaProblem p = conv_problem(random, DType::f16, {.groups = 16, .channels = 1, .maps = 1});
  p.ranges = &random.ranges();
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (CudaWindow* w : {&p.inputs[0], &p.inputs[1], &p.outputs[0]}) w->dtype = dtype;
    const std::vector<KernelVariant> ways = cuda_variants(row, p);
    ASSERT_EQ(ways.size(), 1u);
    EXPECT_GT(ways[0].microseconds, 0);
  }
}

// Results of a thread: many where there is work for all, fewer of a small picture, whose windows then run
// side by side.
TEST(ConvDepthwiseCuda, TilesFollowTheWork) {
  RandomWindows random(3);
  const auto tile = [&](int64_t images, int64_t groups, int64_t side, bool last) {
    CudaProblem p = plain_problem(
        random, {.groups = groups, .channels = 1, .maps = 1, .kernel = 7, .stride = 1}, images, side);
    for (CudaWindow* w : {&p.inputs[0], &p.outputs[0]})
      if (last) *w = channels_last(*w);
    return std::get<WindowWay>(cuda_variants(*find_cuda_kernel("conv_depthwise"), p).front().way);
  };
  for (const bool last : {true, false}) {
    const WindowWay many = tile(32, 64, 72, last), few = tile(2, 384, 10, last);
    EXPECT_GE(many.rows * many.columns, 8) << last;
    EXPECT_LE(few.rows * few.columns, 4) << last;
  }
}

// Rows of results that are no multiples of a tile's width are stored in the widest units that they hold, and
// a tile is no wider than one where scattered stores would take longest.
TEST(ConvDepthwiseCuda, TilesStoreWholeUnits) {
  RandomWindows random(3);
  std::vector<std::string> texts;
  const auto text = [&](int64_t kernel, int64_t side) {
    CudaProblem p = conv_problem(random, DType::f16,
                                 {.groups = 32, .channels = 1, .maps = 1, .kernel = kernel, .stride = 1});
    p.inputs[0] = dense(DType::f16, {Dim(300), Dim(32), Dim(side), Dim(side)});
    const Dim out(side + 2 - (kernel - 1));
    p.outputs[0] = dense(DType::f16, {Dim(300), Dim(32), out, out});
    p.inputs[1] = dense(DType::f16, p.inputs[1].sizes);
    p.arch = 90;
    texts.push_back(find_cuda_kernel("conv_depthwise")->generate(p).source);
    return texts.back();
  };
  EXPECT_NE(text(3, 14).find("ConvDepthwiseFirst<aicf::f16, float, 2, 1, 2, aicf::DepthwiseTile"),
            std::string::npos);
  EXPECT_NE(text(3, 7).find("ConvDepthwiseFirst<aicf::f16, float, 1, 0, 1, aicf::DepthwiseTile"),
            std::string::npos);
  // Of a row of 30, four results in two stores.
  EXPECT_NE(text(7, 34).find(", 2, aicf::DepthwiseTile<float, 1, 7, 7, 1, 1, 1, 1, 6, 4>"), std::string::npos)
      << texts.back();
  AICF_NEEDS_NVRTC();
  for (const std::string& image : compile_cuda(texts, "sm_90a"))
    EXPECT_EQ(cuda_testing::stack_bytes(image), 0);
}

}  // namespace
}  // namespace aicf
