#include "runtime/tensor_view.h"

#include <gtest/gtest.h>

namespace aicf {
namespace {

TEST(TensorView, RowMajorLooksAtStridesThatMatter) {
  struct Case {
    std::vector<int64_t> sizes, strides;
    bool expected;
  };
  for (const Case& c : std::vector<Case>{{{2, 3}, {}, true},
                                         {{2, 3}, {3, 1}, true},
                                         {{2, 3}, {1, 2}, false},
                                         {{2, 1, 3}, {3, 99, 1}, true},
                                         {{1, 3}, {7, 2}, false},
                                         {{5, 0, 3}, {1, 9, 1}, true},
                                         {{5, 3, 0}, {1, 9, 1}, true},
                                         {{}, {}, true}}) {
    TensorView view;
    view.sizes = c.sizes;
    view.strides = c.strides;
    EXPECT_EQ(view.row_major(), c.expected) << ::testing::PrintToString(c.strides);
  }
}

}  // namespace
}  // namespace aicf
