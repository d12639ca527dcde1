#include "kernels/common/cudnn_call.h"

#include <gtest/gtest.h>

#include "kernels/common/library_call.h"

namespace aicf {
namespace {

TensorArg dense(const std::vector<int64_t>& sizes, bool channels_last, DType dtype = DType::f16) {
  TensorArg arg;
  arg.dtype = dtype;
  arg.rank = static_cast<int>(sizes.size());
  std::vector<int> order;  // axes from the innermost
  if (channels_last) order.push_back(1);
  for (int axis = arg.rank - 1; axis >= 0; --axis)
    if (axis != 1 || !channels_last) order.push_back(axis);
  int64_t stride = 1;
  for (const int axis : order) {
    arg.sizes[axis] = sizes[static_cast<size_t>(axis)];
    arg.strides[axis] = stride;
    stride *= arg.sizes[axis];
  }
  return arg;
}

// x [2, 16, 9, 9] by 3 × 3 windows in steps of two, one row and column of zeros around it.
BoundCall conv_step() {
  BoundCall step;
  step.inputs = {dense({2, 16, 9, 9}, true), dense({32, 16, 3, 3}, true)};
  step.outputs = {dense({2, 32, 5, 5}, true)};
  step.params = {2, 1, 0, 2, 2, 1, 1, 1, 1, 1, 1};
  return step;
}

BoundCall attention_step(int64_t queries, int64_t keys, bool causal) {
  BoundCall step;
  step.inputs = {dense({1, 4, queries, 64}, false), dense({1, 2, keys, 64}, false),
                 dense({1, 2, keys, 64}, false)};
  step.outputs = {dense({1, 4, queries, 64}, false)};
  step.params = {causal ? 1 : 0, 0};
  step.fparams = {0.125, 0};
  return step;
}

CudnnCall attention_call() {
  CudnnCall call;
  call.op = CudnnOp::kAttention;
  return call;
}

TEST(CudnnCall, text_and_back) {
  CudnnCall call{91901, CudnnOp::kConv, 2, 3, true, 4096, 17, {{2, 5}, {14, -3}}};
  EXPECT_EQ(to_string(call), "91901 conv bias 2 add 3 relu workspace 4096 engine 17 knobs 2:5,14:-3");
  EXPECT_EQ(parse_cudnn_call(to_string(call)), call);
  CudnnCall other = call;
  other.knobs.clear();
  EXPECT_EQ(parse_cudnn_call(to_string(other)), other);
  EXPECT_TRUE(same_meaning(call, other));
  other.bias = -1;
  EXPECT_EQ(parse_cudnn_call(to_string(other)), other);
  EXPECT_FALSE(same_meaning(call, other));
  EXPECT_EQ(parse_cudnn_call(to_string(attention_call())), attention_call());
}

TEST(CudnnCall, malformed_texts_are_refused) {
  const std::string good = "91901 conv workspace 0 engine 1";
  ASSERT_TRUE(parse_cudnn_call(good));
  for (const std::string& text :
       {std::string(), std::string("91901"), std::string("91901 conv"), std::string("91901 pool engine 1"),
        std::string("-1 conv engine 1"), good + " knobs", good + " knobs 2",
        good + " knobs 2:", good + " knobs 2:3:4", good + " knobs 2:3,", good + " knobs -1:3",
        good + " knobs 1:1 knobs 1:1", good + " bias", good + " bias 64", good + " add -1", good + " gelu",
        good + " engine -1", std::string("91901 conv workspace 99999999999 engine 1")})
    EXPECT_FALSE(parse_cudnn_call(text)) << text;
  std::string many = good + " knobs 1:1";
  for (int i = 0; i < 64; ++i) many += ",1:1";
  EXPECT_FALSE(parse_cudnn_call(many));
}

TEST(CudnnCall, is_a_candidate_by_the_name_of_its_kernel) {
  const std::string text = "91901 conv workspace 8 engine 1";
  const auto call = parse_library_candidate("conv_cudnn/" + text);
  ASSERT_TRUE(call);
  EXPECT_EQ(to_string(*call), text);
  EXPECT_EQ(workspace_bytes(*call), 8);
  EXPECT_EQ(library_kernel(*call), "conv_cudnn");
  for (const std::string& name :
       {"attention_cudnn/" + text, "matmul_cublaslt/" + text, "conv_mma/" + text, "conv_cudnn" + text, text})
    EXPECT_FALSE(parse_library_candidate(name)) << name;
  EXPECT_FALSE(same_meaning(*call, LibraryCall(CublasLtCall{})));
}

TEST(CudnnCall, convolutions_that_the_library_can_take) {
  BoundCall step = conv_step();
  const auto conv = cudnn_conv({}, step);
  ASSERT_TRUE(conv);
  EXPECT_EQ(conv->strides, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(conv->low, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(conv->bias.rank, 0);
  const auto refused = [](const char* what, auto change) {
    BoundCall changed = conv_step();
    change(changed);
    EXPECT_FALSE(cudnn_conv({}, changed)) << what;
  };
  refused("channels that are not innermost", [](auto& s) { s.inputs[0] = dense({2, 16, 9, 9}, false); });
  refused("types", [](auto& s) { s.inputs[1].dtype = DType::bf16; });
  refused("f32", [](auto& s) {
    for (auto* list : {&s.inputs, &s.outputs})
      for (TensorArg& arg : *list) arg.dtype = DType::f32;
  });
  refused("the result's size", [](auto& s) { s.outputs[0] = dense({2, 32, 4, 5}, true); });
  refused("no pixels", [](auto& s) { s.inputs[0] = dense({0, 16, 9, 9}, true); });
  refused("groups", [](auto& s) { s.params[1] = 2; });
  refused("negative padding", [](auto& s) { s.params[5] = -1; });
  refused("a list too short", [](auto& s) { s.params.pop_back(); });
  refused("rows that overlap", [](auto& s) { s.inputs[0].strides[2] = 16; });
  refused("a bias of its own that the call leaves out", [](auto& s) { s.params[2] = 1; });
}

TEST(CudnnCall, axes_of_one_element_have_dense_strides) {
  BoundCall step = conv_step();
  step.inputs = {dense({1, 16, 5, 5}, true), dense({32, 16, 1, 1}, false)};
  step.outputs = {dense({1, 32, 5, 5}, true)};
  step.params = {2, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1};
  step.inputs[0].strides[0] = 7;
  const auto conv = cudnn_conv({}, step);
  ASSERT_TRUE(conv);
  EXPECT_EQ(conv->x.strides[0], 16 * 25);
  EXPECT_EQ(conv->w.strides[2], 16);
  EXPECT_EQ(conv->w.strides[3], 16);
}

TEST(CudnnCall, operands_of_the_epilogue) {
  CudnnCall call;
  call.bias = 2;
  call.addend = 3;
  BoundCall step = conv_step();
  EXPECT_FALSE(cudnn_conv(call, step));  // there are none
  TensorArg bias = step.outputs[0];
  for (const int axis : {0, 2, 3}) bias.strides[axis] = 0;
  bias.strides[1] = 1;
  step.inputs.insert(step.inputs.end(), {bias, step.outputs[0]});
  const auto conv = cudnn_conv(call, step);
  ASSERT_TRUE(conv);
  EXPECT_EQ(std::vector<int64_t>(conv->bias.sizes, conv->bias.sizes + 4),
            (std::vector<int64_t>{1, 32, 1, 1}));
  EXPECT_EQ(conv->addend.strides[2], step.outputs[0].strides[2]);
  step.inputs[2] = dense({32}, false);  // the convolution's own is a list
  EXPECT_TRUE(cudnn_conv(call, step));
  step.inputs[2] = dense({31}, false);
  EXPECT_FALSE(cudnn_conv(call, step));
  step.inputs[2] = bias;
  step.inputs[3].strides[0] = 0;
  EXPECT_FALSE(cudnn_conv(call, step));
}

TEST(CudnnCall, attention_that_the_library_can_take) {
  EXPECT_TRUE(cudnn_attention(attention_call(), attention_step(100, 300, false)));
  EXPECT_FALSE(cudnn_attention(attention_call(), attention_step(100, 100, true)));
  EXPECT_FALSE(cudnn_attention({}, attention_step(100, 100, false)));  // a convolution's
  const auto refused = [](const char* what, auto change) {
    BoundCall changed = attention_step(100, 100, false);
    change(changed);
    EXPECT_FALSE(cudnn_takes(attention_call(), changed)) << what;
  };
  refused("a mask", [](auto& s) { s.params[1] = 1; });
  refused("a window", [](auto& s) { s.params.push_back(50); });
  refused("the sums of rows", [](auto& s) { s.outputs.push_back(dense({1, 4, 100}, false)); });
  refused("a cap", [](auto& s) { s.fparams[1] = 20; });
  refused("heads", [](auto& s) { s.inputs[1] = s.inputs[2] = dense({1, 3, 100, 64}, false); });
  refused("keys", [](auto& s) { s.inputs[2] = dense({1, 2, 90, 64}, false); });
  refused("unaligned rows", [](auto& s) { s.inputs[0].strides[2] = 65; });
  refused("strided rows", [](auto& s) { s.inputs[0].strides[3] = 2; });
  refused("depth", [](auto& s) {
    s.inputs = {dense({1, 4, 9, 160}, false), dense({1, 4, 9, 160}, false), dense({1, 4, 9, 160}, false)};
    s.outputs = {dense({1, 4, 9, 160}, false)};
  });
}

}  // namespace
}  // namespace aicf
