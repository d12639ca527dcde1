// Transposed convolutions through the whole compiler, beside the reference; and what their phases store.
// AICF_TEST_DEVICE as in testing/test_device.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/splitmix.h"
#include "compile/testing/compiled.h"
#include "compile/testing/selected_calls.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"

namespace aicf::testing::conv_transpose_test {
namespace {

struct Case {
  const char* name;
  DType dtype;
  Ints x, w;
  Ints strides, pads, dilations, output_padding;
  int64_t groups = 1;
  bool has_bias = false;
};

Program program_of(const Case& c) {
  Graph graph("main");
  std::vector<ValueId> operands = {graph.add_input("x", {c.dtype, to_shape(c.x)}),
                                   graph.add_input("w", {c.dtype, to_shape(c.w)})};
  if (c.has_bias) operands.push_back(graph.add_input("bias", {c.dtype, {Dim(c.w[1] * c.groups)}}));
  graph.add_output(graph.add(Op::conv_transpose, operands,
                             {{"strides", c.strides},
                              {"pads", c.pads},
                              {"dilations", c.dilations},
                              {"output_padding", c.output_padding},
                              {"groups", c.groups}}),
                   "y");
  Program program;
  program.entries.push_back(std::move(graph));
  return program;
}

Array random_array(DType dtype, const Ints& sizes, uint64_t seed) {
  SplitMix random(seed);
  Array array(dtype, sizes);
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, 2 * random.unit() - 1);
  return array;
}

constexpr DType kHalf = DType::f16, kBrain = DType::bf16, kSingle = DType::f32;
const Case kCases[] = {
    {"stride_1", kHalf, {2, 16, 9, 7}, {16, 24, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, {0, 0}, 1, true},
    {"stride_2", kBrain, {2, 64, 6, 5}, {64, 32, 3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, {1, 1}},
    {"odd_result", kBrain, {2, 64, 6, 5}, {64, 32, 3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, {0, 0}, 1, true},
    {"one_tap", kHalf, {2, 16, 6, 5}, {16, 8, 1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}, {1, 1}, 1, true},
    {"upsampling", kSingle, {1, 16, 5, 6}, {16, 16, 2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}, {0, 0}, 1, true},
    {"depthwise", kSingle, {2, 24, 7, 5}, {24, 1, 3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, {1, 1}, 24},
    {"depthwise_halves", kBrain, {2, 24, 7, 5}, {24, 1, 5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}, {0, 0}, 24},
    {"groups", kHalf, {2, 16, 7, 5}, {16, 4, 3, 3}, {2, 1}, {1, 1, 0, 1}, {1, 2}, {1, 1}, 2, true},
    {"one_axis", kHalf, {3, 8, 11}, {8, 6, 5}, {3}, {1, 0}, {2}, {2}, 1, true},
    {"three_axes",
     kSingle,
     {1, 4, 3, 4, 5},
     {4, 3, 2, 3, 3},
     {2, 1, 2},
     {0, 1, 1, 0, 1, 0},
     {1, 1, 1},
     {0, 0, 1}},
    {"padding_beyond_the_kernel", kSingle, {1, 3, 9, 9}, {3, 4, 2, 3}, {2, 3}, {3, 4, 2, 3}, {1, 1}, {0, 0}},
};

class ConvTranspose : public ::testing::TestWithParam<Case> {};

TEST_P(ConvTranspose, IsThatOfTheReference) {
  const Case& c = GetParam();
  const Program program = program_of(c);
  const std::unique_ptr<Executable> exe = compiled(program);
  if (exe == nullptr) return;
  std::map<std::string, Array> inputs{{"x", random_array(c.dtype, c.x, 1)},
                                      {"w", random_array(c.dtype, c.w, 2)}};
  if (c.has_bias) inputs.emplace("bias", random_array(c.dtype, {c.w[1] * c.groups}, 3));
  const Array got = exe->run("", inputs).at("y");
  const Array want = evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs.at("y");
  ASSERT_EQ(got.count(), want.count());
  const double unit = c.dtype == kBrain ? 0x1p-8 : c.dtype == kHalf ? 0x1p-11 : 0x1p-22;
  for (int64_t i = 0; i < want.count(); ++i) {
    const double w = want.get_f64(i);
    ASSERT_NEAR(got.get_f64(i), w, unit * std::abs(w) + 1e-4 * (c.dtype == kSingle ? 0.1 : 1)) << i;
  }
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Windows, ConvTranspose, ::testing::ValuesIn(kCases), case_name);

// The phases of a value that a convolution with its channels last reads.
Program between_convolutions() {
  return parse(R"(program {
  entry main(%x: bf16[32, 64, 56, 56], %w: bf16[64, 64, 3, 3], %v: bf16[64, 64, 3, 3]) {
    %0 = relu(%x) : bf16[32, 64, 56, 56]
    %1 = conv(%0, %v, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : bf16[32, 64, 56, 56]
    %2 = conv_transpose(%1, %w, none) {strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], output_padding = [1, 1]} : bf16[32, 64, 112, 112]
    %3 = conv(%2, %v, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : bf16[32, 64, 112, 112]
    return "y" = %3
  }
}
)");
}

TEST(ConvTransposePhases, WriteTheirPartsOfOneValueAndShareOneCopyOfTheWeights) {
  const SelectedCalls s = select_calls(between_convolutions(), "sm_90");
  std::vector<const KernelCall*> phases;
  for (const KernelCall& call : s.calls.calls) {
    EXPECT_EQ(call.reason.find("part of a concat"), std::string::npos) << call.reason;
    const RowCall* row = own_row(call);
    if (row != nullptr && facts_of(row->row).work == WorkForm::kConv && call.origins[0] == "conv")
      phases.push_back(&call);
  }
  ASSERT_EQ(phases.size(), 6u);  // with the convolutions before and behind
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(phases[i]->outputs[0].root, phases[1]->outputs[0].root);
    EXPECT_EQ(phases[i]->inputs[1].root, phases[1]->inputs[1].root);
    EXPECT_EQ(phases[i]->outputs[0].strides[1], Dim(1));
    EXPECT_EQ(phases[i]->outputs[0].strides[3], Dim(2 * 64));
  }
  EXPECT_EQ(phases[5]->inputs[0].root, phases[1]->outputs[0].root);
}

const KernelCall* call_of(const SelectedCalls& s, std::string_view row) {
  for (const KernelCall& call : s.calls.calls)
    if (const RowCall* own = own_row(call); own != nullptr && own->row == row) return &call;
  return nullptr;
}

// Without matrix units weights lie with maps innermost, packed at load; all phases are one call.
TEST(PlainConvolutions, ReadWeightsPackedAtLoad) {
  const SelectedCalls s = select_calls(parse(R"(program {
  param "v" : f32[24, 16, 3, 3]
  param "w" : f32[24, 12, 2, 2]
  entry main(%x: f32[2, 16, 20, 20]) {
    %v = param "v" : f32[24, 16, 3, 3]
    %w = param "w" : f32[24, 12, 2, 2]
    %0 = conv(%x, %v, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f32[2, 24, 20, 20]
    %1 = conv_transpose(%0, %w, none) {strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1], output_padding = [0, 0]} : f32[2, 12, 40, 40]
    %2 = relu(%1) : f32[2, 12, 40, 40]
    return "y" = %2
  }
}
)"),
                                       "sm_90");
  EXPECT_EQ(s.calls.calls.size(), 2u) << "the rectifier is an epilogue";
  const KernelCall *conv = call_of(s, "conv_simt"), *transposed = call_of(s, "conv_transpose");
  ASSERT_TRUE(conv != nullptr && transposed != nullptr);
  EXPECT_EQ(conv->inputs[1].strides, (Shape{Dim(1), Dim(24), Dim(3 * 16 * 24), Dim(16 * 24)}));
  EXPECT_EQ(transposed->inputs[1].strides, (Shape{Dim(12), Dim(1), Dim(2 * 24 * 12), Dim(24 * 12)}));
  EXPECT_EQ(s.calls.init_calls.size(), 2u);
}

TEST(PlainConvolutions, DepthwiseOnesKeepChannelsLast) {
  const SelectedCalls s = select_calls(parse(R"(program {
  entry main(%x: f32[8, 64, 28, 28], %v: f32[96, 64, 1, 1], %w: f32[96, 1, 3, 3], %u: f32[64, 96, 1, 1]) {
    %0 = conv(%x, %v, none) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], tf32 = true} : f32[8, 96, 28, 28]
    %1 = conv(%0, %w, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 96} : f32[8, 96, 28, 28]
    %2 = conv(%1, %u, none) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], tf32 = true} : f32[8, 64, 28, 28]
    return "y" = %2
  }
}
)"),
                                       "sm_90");
  const KernelCall* depthwise = call_of(s, "conv_depthwise");
  ASSERT_NE(depthwise, nullptr);
  EXPECT_EQ(depthwise->inputs[0].strides[1], Dim(1));
  EXPECT_EQ(depthwise->outputs[0].strides[1], Dim(1));
}

// Those of halves take channels as they lie, also where their weights' gradient reads the same: no copy, and
// a result that no product reads stays row-major.
TEST(PlainConvolutions, DepthwiseOnesOfHalvesReadInPlace) {
  const SelectedCalls s = select_calls(parse(R"(program {
  entry main(%x: f16[367, 32, 14, 14], %w: f16[32, 1, 3, 3]) {
    %0 = conv(%x, %w, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 32} : f16[367, 32, 14, 14]
    %1 = tanh(%0) : f16[367, 32, 14, 14]
    %2 = conv_weight_gradient(%x, %1) {kernel = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 32} : f16[32, 1, 3, 3]
    return "y" = %2
  }
}
)"),
                                       "sm_90");
  EXPECT_EQ(s.calls.calls.size(), 2u);
  const KernelCall* gradient = call_of(s, "weight_gradient_depthwise");
  ASSERT_NE(gradient, nullptr);
  for (const Window& w : gradient->inputs) EXPECT_EQ(w.strides[1], Dim(14 * 14));
}

// Between products they keep channels last, and before one they store them so.
TEST(PlainConvolutions, DepthwiseOnesOfHalvesStoreWhatProductsRead) {
  for (const char* before : {"%x", "%0"}) {
    const SelectedCalls s = select_calls(
        parse(
            std::string(R"(program {
  entry main(%x: f16[8, 64, 28, 28], %v: f16[64, 64, 3, 3], %w: f16[64, 1, 3, 3]) {
    %0 = conv(%x, %v, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f16[8, 64, 28, 28]
    %1 = conv()") +
            before +
            R"(, %w, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 64} : f16[8, 64, 28, 28]
    %2 = conv(%1, %v, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f16[8, 64, 28, 28]
    return "y" = %2, "z" = %0
  }
}
)"),
        "sm_90");
    const KernelCall* depthwise = call_of(s, "conv_depthwise");
    ASSERT_NE(depthwise, nullptr) << before;
    EXPECT_EQ(depthwise->outputs[0].strides[1], Dim(1)) << before;
  }
}

// A norm over channels leaves them last, and the transpose back is seen, not stored; so do sums of such
// values.
TEST(PlainConvolutions, DepthwiseOnesSeeChannelsLastThroughTransposes) {
  for (const char* shape : {"f32[8, 64, 28, 28]", "f16[8, 64, 28, 28]"}) {
    const std::string type = shape, dtype = type.substr(0, 3);
    const SelectedCalls s = select_calls(
        parse("program {\n  entry main(%x: " + dtype + "[8, 28, 28, 64], %w: " + dtype +
              "[128, 1, 7, 7]) {\n    %0 = exp(%x) : " + dtype +
              "[8, 28, 28, 64]\n    %1 = transpose(%0) {perm = [0, 3, 1, 2]} : " + type +
              "\n    %2 = conv(%1, %w, none) {strides = [2, 2], pads = [3, 3, 3, 3], dilations = [1, 1], "
              "groups = "
              "64} : " +
              dtype + "[8, 128, 14, 14]\n    %3 = transpose(%2) {perm = [0, 2, 3, 1]} : " + dtype +
              "[8, 14, 14, 128]\n    %4 = exp(%3) : " + dtype +
              "[8, 14, 14, 128]\n    return \"y\" = %4\n  }\n}\n"),
        "sm_90");
    const KernelCall* depthwise = call_of(s, "conv_depthwise");
    ASSERT_NE(depthwise, nullptr) << type;
    EXPECT_EQ(depthwise->inputs[0].strides[1], Dim(1)) << type;
    EXPECT_EQ(depthwise->outputs[0].strides[1], Dim(1)) << type;
  }
}

// Pictures made larger between convolutions keep channels last: their edges are repeated, a region weighs
// each with a neighbour, and its result is seen with fewer axes.
TEST(PlainConvolutions, LargerPicturesKeepChannelsLast) {
  const SelectedCalls s = select_calls(parse(R"(program {
  entry main(%x: f16[2, 64, 8, 8], %w: f16[64, 64, 3, 3], %u: f16[2, 1, 2]) {
    %0 = conv(%x, %w, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1} : f16[2, 64, 8, 8]
    %1 = pad(%0) {low = [0, 0, 1, 1], high = [0, 0, 1, 1], mode = "edge"} : f16[2, 64, 10, 10]
    %2 = slice(%1) {starts = [0, 0, 0, 0], limits = [2, 64, 8, 8], steps = [1, 1, 1, 1]} : f16[2, 64, 8, 8]
    %3 = reshape(%2) {shape = [2, 64, 8, 1, 8, 1]} : f16[2, 64, 8, 1, 8, 1]
    %4 = broadcast_to(%3) {shape = [2, 64, 8, 2, 8, 2]} : f16[2, 64, 8, 2, 8, 2]
    %5 = mul(%4, %u) : f16[2, 64, 8, 2, 8, 2]
    %6 = exp(%5) : f16[2, 64, 8, 2, 8, 2]
    %7 = reshape(%6) {shape = [2, 64, 16, 16]} : f16[2, 64, 16, 16]
    %8 = conv(%7, %w, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1} : f16[2, 64, 16, 16]
    return "y" = %8
  }
}
)"),
                                       "sm_90");
  const KernelCall* pad = call_of(s, "pad");
  ASSERT_NE(pad, nullptr);
  EXPECT_EQ(pad->inputs[0].strides[1], Dim(1));
  EXPECT_EQ(pad->outputs[0].strides[1], Dim(1));
  const KernelCall* region = call_of(s, "tile");
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->outputs[0].strides.back(), Dim(1));
  EXPECT_EQ(region->outputs[0].sizes.back(), Dim(64));
}

// Element-wise results of values that all lie with channels last lie so, too.
TEST(PlainConvolutions, SumsOfTransposesKeepChannelsLast) {
  const SelectedCalls s = select_calls(parse(R"(program {
  entry main(%x: f32[8, 28, 28, 64], %y: f32[8, 28, 28, 64], %w: f32[64, 1, 7, 7]) {
    %0 = transpose(%x) {perm = [0, 3, 1, 2]} : f32[8, 64, 28, 28]
    %1 = transpose(%y) {perm = [0, 3, 1, 2]} : f32[8, 64, 28, 28]
    %2 = add(%0, %1) : f32[8, 64, 28, 28]
    %3 = conv(%2, %w, none) {strides = [1, 1], pads = [3, 3, 3, 3], dilations = [1, 1], groups = 64} : f32[8, 64, 28, 28]
    %4 = transpose(%3) {perm = [0, 2, 3, 1]} : f32[8, 28, 28, 64]
    %5 = exp(%4) : f32[8, 28, 28, 64]
    return "y" = %5
  }
}
)"),
                                       "sm_90");
  const KernelCall* depthwise = call_of(s, "conv_depthwise");
  ASSERT_NE(depthwise, nullptr);
  EXPECT_EQ(depthwise->inputs[0].strides[1], Dim(1));
  EXPECT_EQ(depthwise->outputs[0].strides[1], Dim(1));
}

}  // namespace
}  // namespace aicf::testing::conv_transpose_test
