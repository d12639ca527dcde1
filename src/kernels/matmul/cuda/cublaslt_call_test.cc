#include "kernels/matmul/cuda/cublaslt_call.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

TensorArg matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                 DType dtype = DType::bf16) {
  TensorArg arg;
  arg.dtype = dtype;
  arg.rank = 2;
  arg.sizes[0] = rows;
  arg.sizes[1] = columns;
  arg.strides[0] = row_stride;
  arg.strides[1] = column_stride;
  return arg;
}

TEST(CublasLtCall, text_and_back) {
  CublasLtCall call{130101, CublasLtActivation::kGelu, 2, 3, 4096, {1, 2, 3, 4, 5, 6, 7, ~uint64_t{0}}};
  const auto back = parse_cublaslt_call(to_string(call));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, call);
  call.bias = -1;
  EXPECT_EQ(parse_cublaslt_call(to_string(call)), call);
  EXPECT_FALSE(same_meaning(*back, call));
}

TEST(CublasLtCall, malformed_texts_are_refused) {
  const std::string good = to_string(CublasLtCall{});
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("130101"), good + "0", good + " bias", good + " bias 99",
        good + " bias -1", good + " magic", std::string("1 workspace 99999999999999 algorithm 0"),
        std::string("1 algorithm 12")})
    EXPECT_FALSE(parse_cublaslt_call(text)) << text;
  EXPECT_TRUE(parse_cublaslt_call(good));
}

TEST(CublasLtCall, row_major_matrices_become_columns) {
  // x [5, 7], y [7, 9] stored transposed as a linear layer's weight.
  const auto shape =
      cublaslt_shape({}, {matrix(5, 7, 7, 1), matrix(7, 9, 1, 7)}, matrix(5, 9, 16, 1, DType::f32));
  ASSERT_TRUE(shape);
  EXPECT_FALSE(shape->transpose_x);
  EXPECT_EQ(shape->x.rows, 7);
  EXPECT_EQ(shape->x.columns, 5);
  EXPECT_EQ(shape->x.leading, 7);
  EXPECT_TRUE(shape->transpose_y);
  EXPECT_EQ(shape->y.rows, 7);
  EXPECT_EQ(shape->y.columns, 9);
  EXPECT_EQ(shape->out.rows, 9);
  EXPECT_EQ(shape->out.columns, 5);
  EXPECT_EQ(shape->out.leading, 16);
  EXPECT_EQ(shape->out.dtype, DType::f32);
}

TEST(CublasLtCall, windows_that_the_library_cannot_take) {
  const TensorArg x = matrix(5, 7, 7, 1), y = matrix(7, 9, 9, 1), out = matrix(5, 9, 9, 1);
  EXPECT_TRUE(cublaslt_shape({}, {x, y}, out));
  EXPECT_FALSE(cublaslt_shape({}, {matrix(5, 7, 14, 2), y}, out));
  EXPECT_FALSE(cublaslt_shape({}, {matrix(5, 7, 3, 1), y}, out));  // overlapping rows
  EXPECT_FALSE(cublaslt_shape({}, {x, y}, matrix(5, 9, 1, 5)));    // results by columns
  EXPECT_FALSE(cublaslt_shape({}, {x, matrix(8, 9, 9, 1)}, out));
  EXPECT_FALSE(cublaslt_shape({}, {x, matrix(7, 9, 9, 1, DType::f16)}, out));
  EXPECT_FALSE(cublaslt_shape({}, {x}, out));
  CublasLtCall bias;
  bias.bias = 2;
  EXPECT_FALSE(cublaslt_shape(bias, {x, y}, out));
  EXPECT_TRUE(cublaslt_shape(bias, {x, y, matrix(5, 9, 0, 1)}, out));
  EXPECT_FALSE(cublaslt_shape(bias, {x, y, matrix(5, 9, 9, 1)}, out));
  CublasLtCall addend;
  addend.addend = 2;
  EXPECT_TRUE(cublaslt_shape(addend, {x, y, matrix(5, 9, 9, 1)}, out));
  EXPECT_FALSE(cublaslt_shape(addend, {x, y, matrix(5, 9, 0, 1)}, out));
}

}  // namespace
}  // namespace aicf
