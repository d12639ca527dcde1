// Convolutions of every kind beside sums in f64, their epilogues and refusals.
#include <functional>
#include <limits>

#include "kernels/common/step_check.h"
#include "kernels/conv/cpu/conv_plan.h"
#include "kernels/conv/testing/conv_case.h"
#include "kernels/tile/testing/hand_written.h"

namespace aicf {
namespace {

using namespace conv_testing;
using namespace tile_testing;

TEST(Conv, AgreesWithF64) {
  const std::pair<DType, const char*> kinds[] = {{DType::f32, "conv_f32"},
                                                 {DType::f64, "conv_f64"},
                                                 {DType::f16, "conv_half"},
                                                 {DType::bf16, "conv_half"}};
  for (const ConvCase& c : cases()) {
    for (const auto& [dtype, kernel] : kinds) {
      for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kGaps}) {
        Tensors t = make(c, dtype, false, layout);
        for (IsaLevel isa : isa_levels()) {
          t.out.poison();
          run_step(step_of(c, t, kernel), isa);
          expect_convolution(c, t, false, std::string(kernel) + " " + std::string(isa_name(isa)));
        }
      }
    }
  }
}

// A sum begins at 0 and takes its taps in order, those in the padding left out, wherever its vector begins.
TEST(Conv, DepthwiseSumsTakeTheirTapsInOrder) {
  for (int64_t number = 0; number < 4; ++number) {
    const int64_t stride = number % 2 + 1;
    const ConvCase c = {1, 40, 40, 40, {9, 21}, {3, 5}, {stride, stride}, {1, 2}, {1, 2}, {1, 1}, false};
    Tensors t = make(c, DType::f32, false, number < 2 ? Layout::kDense : Layout::kChannelsLast);
    const std::vector<int64_t> out = out_sizes(c, false);
    for (IsaLevel isa : isa_levels()) {
      if (isa == IsaLevel::kPortable) continue;  // rounds product and sum apart
      t.out.poison();
      run_step(step_of(c, t, "conv_f32_depthwise"), isa, true);
      for (int64_t i = 0; i < t.out.count(); ++i) {
        const int64_t channel = i / (out[0] * out[1]), y = i / out[1] % out[0], x = i % out[1];
        float sum = 0;
        for (int64_t tap = 0; tap < 15; ++tap) {
          const int64_t in_y = y * stride - 1 + tap / 5, in_x = x * stride - 2 + tap % 5;
          if (in_y < 0 || in_y >= 9 || in_x < 0 || in_x >= 21) continue;
          sum = std::fmaf(static_cast<float>(t.w.get(channel * 15 + tap)),
                          static_cast<float>(t.x.get((channel * 9 + in_y) * 21 + in_x)), sum);
        }
        ASSERT_EQ(static_cast<float>(t.out.get(i)), sum) << "stride " << stride << " at " << i;
      }
    }
  }
}

TEST(Conv, Depthwise) {
  const ConvCase list[] = {
      {2, 5, 5, 5, {20}, {3}, {1}, {1}, {1}, {1}},
      {1, 7, 7, 7, {14, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 3, 3, 3, {15, 33}, {5, 3}, {2, 2}, {2, 0}, {1, 3}, {1, 2}, false},
      {1, 2, 2, 2, {6, 40, 300}, {2, 3, 3}, {1, 1, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
      {1, 2, 2, 2, {2, 2}, {2, 2}, {1, 1}, {5, 5}, {5, 5}, {1, 1}},
      {2, 50, 50, 50, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {1, 36, 36, 36, {12, 35}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
      {1, 3, 3, 3, {9, 20}, {3, 5}, {1, 1}, {1, 9}, {1, 9}, {1, 2}},
      {1, 3, 3, 3, {5, 60}, {3, 17}, {1, 1}, {1, 8}, {1, 8}, {1, 1}},
      {2, 203, 203, 203, {7, 9}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 2}},
  };
  for (const ConvCase& c : list) {
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kReversed, Layout::kChannelsLast}) {
      Tensors t = make(c, DType::f32, false, layout);
      for (IsaLevel isa : isa_levels()) {
        t.out.poison();
        run_step(step_of(c, t, "conv_f32_depthwise"), isa, true);
        expect_convolution(c, t, false, std::string(isa_name(isa)));
      }
    }
  }
}

TEST(Conv, Transposed) {
  std::vector<ConvCase> all = cases();
  // Kernel positions that do not meet, and output channels that share the loads of x.
  all.push_back({2, 6, 42, 2, {5, 9}, {2, 3}, {2, 4}, {0, 1}, {1, 0}, {1, 1}});
  all.push_back({1, 3, 40, 1, {7}, {1}, {2}, {0}, {0}, {3}});
  for (const ConvCase& base : all) {
    ConvCase c = base;
    c.output_padding.assign(c.in.size(), 0);
    c.output_padding[0] = c.strides[0] - 1;
    bool possible = true;
    for (int64_t size : out_sizes(c, true)) possible = possible && size >= 0;
    if (!possible) continue;
    for (DType dtype : {DType::f32, DType::f64, DType::f16}) {
      for (Layout layout : {Layout::kDense, Layout::kReversed}) {
        Tensors t = make(c, dtype, true, layout);
        t.out.poison();
        run_step(step_of(c, t, "conv_transpose"), detect_isa());
        expect_convolution(c, t, true, std::string(dtype_name(dtype)));
      }
    }
  }
}

// An image alone, and any layout, gives the bits of the image in a batch.
TEST(Conv, ImageAloneEqualsImageInBatch) {
  const ConvCase batch = {3, 40, 70, 1, {17, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const Tensors t = make(batch, DType::f32, false, Layout::kDense);
  const int64_t x_image = 40 * 17 * 13, out_image = 70 * 17 * 13;
  ConvCase one = batch;
  one.batch = 1;
  for (IsaLevel isa : isa_levels()) {
    run_step(step_of(batch, t, "conv_f32"), isa, true);
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kGaps}) {
      Tensors alone = make(one, DType::f32, false, layout);
      alone.x.fill([&](int64_t i) { return t.x.get(2 * x_image + i); });
      alone.w.fill([&](int64_t i) { return t.w.get(i); });
      alone.bias.fill([&](int64_t i) { return t.bias.get(i); });
      run_step(step_of(one, alone, "conv_f32"), isa);
      for (int64_t i = 0; i < out_image; ++i)
        ASSERT_EQ(alone.out.bits(i), t.out.bits(2 * out_image + i)) << i;
    }
  }
}

// Epilogue out = result * scale[channel] + residual, on layouts whose pixels do and do not lie in one line.
TEST(Conv, EpilogueRunsOnEveryTile) {
  const TileProgram program = {
      {DType::f32, DType::f32, DType::f32},
      {DType::f32},
      {kF, kF, kF},
      {},
      {{load(0, 0), load(1, 1), load(2, 2), op(TileOp::fma, 0, 0, 1, 2), store(3, 0)}}};
  const std::pair<const char*, ConvCase> list[] = {
      {"conv_f32", {2, 5, 40, 1, {9, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {"conv_f32", {1, 8, 6, 2, {50}, {1}, {1}, {0}, {0}, {1}, false}},
      {"conv_f32_depthwise", {2, 6, 6, 6, {9, 31}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}},
      {"conv_f32_packed", {2, 5, 40, 1, {9, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {"conv_f32_packed", {1, 16, 9, 1, {20}, {3}, {1}, {1}, {1}, {1}, false}},
  };
  for (const auto& [kernel, c] : list) {
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kChannelsLast}) {
      Tensors t = make(c, DType::f32, false, Layout::kDense);
      TestTensor residual(DType::f32, t.out.sizes(), layout);
      std::vector<int64_t> channel(t.out.sizes().size() - 1, 1);
      channel[0] = c.maps;
      TestTensor scale(DType::f32, channel);
      residual.randomize(7);
      scale.randomize(8);
      const int64_t pixels = product(out_sizes(c, false));
      for (IsaLevel isa : isa_levels()) {
        Packed packed;
        Step step = step_of(c, t, kernel);
        if (step.kernel == "conv_f32_packed") {
          packed = pack(c, t, isa);
          step = packed_step(c, t, packed);
        }
        run_step(step, isa);
        TestTensor out(DType::f32, t.out.sizes(), layout);
        step.inputs.push_back(scale.arg());
        step.inputs.push_back(residual.arg());
        step.outputs = {out.arg()};
        step.program = &program;
        run_step(step, isa, true);
        for (int64_t i = 0; i < out.count(); ++i) {
          const double factor = scale.get(i / pixels % c.maps);
          const double expected = t.out.get(i) * factor + residual.get(i);
          const double bound = 2.5e-7 * (std::abs(t.out.get(i) * factor) + std::abs(residual.get(i)));
          ASSERT_TRUE(agrees(out.get(i), expected, bound)) << kernel << " element " << i;
        }
      }
    }
  }
}

TEST(Conv, NanStaysUnderItsWindows) {
  const ConvCase c = {1, 2, 3, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  Tensors t = make(c, DType::f32, false, Layout::kDense);
  t.x.set(4 * 10 + 7, std::nan(""));
  run_step(step_of(c, t, "conv_f32"), detect_isa());
  for (int64_t i = 0; i < t.out.count(); ++i) {
    const int64_t y = i / 10 % 10, x = i % 10;
    ASSERT_EQ(std::isnan(t.out.get(i)), std::abs(y - 4) <= 1 && std::abs(x - 7) <= 1) << i;
  }
}

TEST(Conv, RefusesStepsThatDoNotFit) {
  const ConvCase c = {1, 4, 6, 2, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const Tensors t = make(c, DType::f32, false, Layout::kDense);
  const Step good = step_of(c, t, "conv_f32");
  bind_step(good, IsaLevel::kPortable);
  const auto broken = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = good;
    change(step);
    expect_refused(step, what);
  };
  broken("groups", [](Step& s) { s.params[1] = 3; });
  broken("no groups", [](Step& s) { s.params[1] = 0; });
  broken("spatial rank", [](Step& s) { s.params[0] = 3; });
  broken("huge spatial rank", [](Step& s) { s.params[0] = int64_t{1} << 62; });
  broken("stride 0", [](Step& s) { s.params[3] = 0; });
  broken("huge dilation", [](Step& s) { s.params[9] = int64_t{1} << 40; });
  broken("negative pad", [](Step& s) { s.params[5] = -1; });
  broken("pad", [](Step& s) { s.params[5] = 2; });
  broken("output size", [](Step& s) { s.outputs[0].sizes[2] = 8; });
  broken("output batch", [](Step& s) { s.outputs[0].sizes[0] = 2; });
  broken("channels", [](Step& s) { s.inputs[0].sizes[1] = 3; });
  broken("bias", [](Step& s) { s.inputs[2].sizes[0] = 5; });
  broken("missing bias", [](Step& s) { s.inputs.pop_back(); });
  broken("missing params", [](Step& s) { s.params.pop_back(); });
  broken("dtype", [](Step& s) { s.inputs[1].dtype = DType::f64; });
  broken("rank of w", [](Step& s) { s.inputs[1].rank = 3; });
}

// 2^42 elements of four of x, which the kernel's positions would fill one by one.
TEST(Conv, TransposedRefusesPlanesBeyondNumber) {
  ConvCase c = {1, 1, 1, 1, {2, 2}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false, {0, 0}};
  const Tensors t = make(c, DType::f32, true, Layout::kDense);
  Step step = step_of(c, t, "conv_transpose");
  bind_step(step, IsaLevel::kPortable);
  constexpr int64_t kStride = int64_t{1} << 21;
  step.params[3] = step.params[4] = kStride;
  step.outputs[0].sizes[2] = step.outputs[0].sizes[3] = kStride + 2;
  step.outputs[0].strides[2] = kStride + 2;
  expect_refused(step, "a plane of 2^42 elements");
}

// An axis of one element may have any stride.
TEST(Conv, ImagesOfOneElementWindowsAreMatrices) {
  const auto is_matrix = [](const std::vector<int64_t>& in, int64_t row_stride) {
    const ConvCase c = {2, 4, 6, 1, in, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}};
    const Tensors t = make(c, DType::f32, false, Layout::kDense);
    Step step = step_of(c, t, "conv_f32");
    step.inputs[0].strides[2] = row_stride;
    return stored_plan<ConvPlan>(bind_step(step, IsaLevel::kPortable)).x_is_matrix != 0;
  };
  EXPECT_TRUE(is_matrix({3, 9}, 9));
  EXPECT_FALSE(is_matrix({3, 9}, 10));
  EXPECT_TRUE(is_matrix({1, 9}, 10));
}

TEST(Conv, SelectionPrefersDepthwise) {
  const auto tensor = [](std::vector<int64_t> sizes) { return ProblemTensor{DType::f32, to_shape(sizes)}; };
  Problem problem{"conv",
                  {tensor({1, 8, 5, 5}), tensor({8, 1, 3, 3})},
                  {tensor({1, 8, 3, 3})},
                  {Dim(2), Dim(8), Dim(0)},
                  {},
                  false};
  ASSERT_FALSE(candidates(problem).empty());
  EXPECT_EQ(candidates(problem)[0]->name, "conv_f32_depthwise");
  problem.params[1] = Dim(1);
  problem.inputs[1] = tensor({8, 8, 3, 3});
  EXPECT_EQ(candidates(problem)[0]->name, "conv_f32");
}

}  // namespace
}  // namespace aicf
