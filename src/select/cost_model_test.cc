#include "select/cost_model.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

TEST(CostModel, TheSlowerOfMemoryAndArithmeticBounds) {
  const TargetFacts facts = {100, 1000, 4000, 500, 1};
  const auto least = [&](int64_t bytes, int64_t flops, std::string_view kernel, DType x) {
    Work work;
    work.bytes = bytes;
    work.flops = flops;
    return least_microseconds(work, facts_of(kernel).units, x, facts);
  };
  EXPECT_EQ(least(8000, 400, "tile", DType::f32), 8);
  EXPECT_EQ(least(8000, 8000, "matmul_simt", DType::f32), 16);
  EXPECT_EQ(least(8000, 8000, "matmul_simt", DType::bf16), 16);
  EXPECT_EQ(least(1000, 8000, "matmul_tensor_core", DType::f16), 2);
  EXPECT_EQ(least(1000, 8000, "matmul_tensor_core", DType::f32), 4);  // tf32
  EXPECT_EQ(least(1000, 8000, "conv_mma", DType::f16), 2);
  for (const char* kernel : {"conv_depthwise", "conv_transpose", "conv_simt", "attention_simt"})
    EXPECT_EQ(least(1000, 8000, kernel, DType::f16), 16) << kernel;
}

}  // namespace
}  // namespace aicf
