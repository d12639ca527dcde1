#include "kernels/work.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

TensorArg dense(DType dtype, const std::vector<int64_t>& sizes) {
  TensorArg arg;
  arg.dtype = dtype;
  arg.rank = static_cast<int>(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    arg.sizes[i] = sizes[i];
    arg.strides[i] = stride;
  }
  return arg;
}

TEST(Work, PackedWeightsCountAsWhatTheyWerePackedFrom) {
  const TensorArg x = dense(DType::f32, {2, 12, 9, 9}), out = dense(DType::f32, {2, 40, 9, 9});
  const TensorArg weights = dense(DType::f32, {40, 6, 3, 3}), packed = dense(DType::u8, {1 << 16});
  std::vector<int64_t> params = {2, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const double flops = work_of("conv_f32", {x, weights}, {out}, params).flops;
  EXPECT_EQ(flops, 2.0 * 2 * 40 * 81 * 6 * 9);
  params.insert(params.end(), {3, 3});
  EXPECT_EQ(work_of("conv_f32_packed", {x, packed}, {out}, params).flops, flops);
}

TEST(Work, BroadcastOperandsAreReadOnce) {
  TensorArg row = dense(DType::f32, {8, 16});
  row.strides[0] = 0;
  const TensorArg out = dense(DType::f32, {8, 16});
  EXPECT_EQ(work_of("tile", {row}, {out}, {}).bytes, 4.0 * (16 + 8 * 16));
}

}  // namespace
}  // namespace aicf
