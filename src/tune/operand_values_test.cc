// What the operands of a trial hold.
#include "tune/operand_values.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace aicf {
namespace {

TEST(OperandValues, AreWhatTheHeaderSays) {
  constexpr int64_t kCount = 20000;
  for (const DType dtype : {DType::boolean, DType::u8}) {
    std::vector<std::byte> bytes(kCount);
    fill_values({dtype, 0, {kCount}, {1}}, dtype, 0, bytes.data());
    int64_t ones = 0;
    for (const std::byte b : bytes) {
      ASSERT_LE(static_cast<int>(b), 1);
      ones += static_cast<int>(b);
    }
    const double share = static_cast<double>(ones) / kCount;
    EXPECT_NEAR(share, dtype == DType::boolean ? 7.0 / 8 : 1.0 / 2, 0.02);
  }
  std::vector<float> floats(kCount);
  fill_values({DType::f32, 0, {kCount}, {1}}, DType::f32, 0, reinterpret_cast<std::byte*>(floats.data()));
  EXPECT_LT(*std::min_element(floats.begin(), floats.end()), -0.99f);
  EXPECT_GT(*std::max_element(floats.begin(), floats.end()), 0.99f);
  EXPECT_LE(*std::max_element(floats.begin(), floats.end()), 1.0f);
}

// The order of memory does not matter, nor does a lower type's rounding more than once.
TEST(OperandValues, BelongToTheLogicalIndex) {
  std::vector<float> rows(12), columns(12);
  fill_values({DType::f32, 0, {3, 4}, {4, 1}}, DType::bf16, 1, reinterpret_cast<std::byte*>(rows.data()));
  fill_values({DType::f32, 0, {3, 4}, {1, 3}}, DType::bf16, 1, reinterpret_cast<std::byte*>(columns.data()));
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 4; ++j) EXPECT_EQ(rows[4 * i + j], columns[3 * j + i]);
}

}  // namespace
}  // namespace aicf
