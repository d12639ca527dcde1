#include "base/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace aicf {
namespace {

TEST(Array, FloatsBecomeIntegersTowardZeroAndWithinTheirRange) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [value, expected] :
       std::initializer_list<std::pair<double, int64_t>>{{0.0, 0},
                                                         {-0.9, 0},
                                                         {2.9, 2},
                                                         {-2.9, -2},
                                                         {std::nan(""), 0},
                                                         {inf, INT64_MAX},
                                                         {-inf, INT64_MIN},
                                                         {0x1p63, INT64_MAX},
                                                         {-0x1p63, INT64_MIN},
                                                         {0x1p62, int64_t{1} << 62}}) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      Array array(dtype, {1});
      array.set_f64(0, value);
      if (array.get_f64(0) != value && !std::isnan(value)) continue;  // the dtype does not hold it
      EXPECT_EQ(array.get_i64(0), expected) << value;
    }
  }
}

}  // namespace
}  // namespace aicf
