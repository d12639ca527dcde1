#include <gtest/gtest.h>

#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

Attrs transposed(bool x, bool y) { return {{"transpose_x", x}, {"transpose_y", y}}; }

}  // namespace

std::vector<OpCase> contractions_cases() {
  const CaseTensor x = t({2, 3}, {1, 2, 3, 4, 5, 6}), y = t({3, 2}, {1, 2, 0, 1, 2, 0});
  const CaseTensor xt = t({3, 2}, {1, 4, 2, 5, 3, 6}), yt = t({2, 3}, {1, 0, 2, 2, 1, 0});
  const CaseTensor product = t({2, 2}, {7, 4, 16, 13});
  const CaseTensor batch = t({2, 1, 2}, {1, 2, 3, 4}), square = t({2, 2}, {1, 2, 3, 4});
  return {
      {Op::matmul, {x, y}, {}, {product}},
      {Op::matmul, {xt, y}, transposed(true, false), {product}},
      {Op::matmul, {x, yt}, transposed(false, true), {product}},
      {Op::matmul, {xt, yt}, transposed(true, true), {product}},
      // More than the rows that are added at a time, and some left.
      {Op::matmul,
       {t({2, 6}, {1, 2, 0, 1, 3, 1, 0, 1, 2, 1, 1, 2}),
        t({6, 3}, {1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4})},
       {},
       {t({2, 3}, {32, 19, 27, 17, 17, 24})}},
      {Op::matmul, {batch, square}, {}, {t({2, 1, 2}, {7, 10, 15, 22})}},
      {Op::matmul, {square, t({2, 1, 2, 1}, {1, 1, 2, 0})}, {}, {t({2, 1, 2, 1}, {3, 7, 2, 6})}},
      {Op::matmul, {t({2, 0}, {}), t({0, 2}, {})}, {}, {t({2, 2}, {0, 0, 0, 0})}},
      {Op::matmul, {t({0, 2}, {}), square}, {}, {t({0, 2}, {})}},
      {Op::matmul, {t({1, 2}, {100, 100}), t({2, 1}, {1, 1})}, {}, {t({1, 1}, {-56})}, {DType::i8}},
      // A zero does not hide an infinity, and a NaN reaches only its row.
      {Op::matmul, {t({2, 2}, {0, 1, 1, 1}), t({2, 1}, {kInf, 1})}, {}, {t({2, 1}, {kNan, kInf})}, kFloats},
      {Op::matmul, {t({2, 2}, {kNan, 1, 1, 1}), t({2, 1}, {1, 1})}, {}, {t({2, 1}, {kNan, 2})}, kFloats},
      {Op::linear, {x, y, t({2}, {10, 20})}, {}, {t({2, 2}, {17, 24, 26, 33})}},
      {Op::linear, {x, yt}, {{"transpose_w", true}}, {product}},
      {Op::linear, {t({2, 1, 2}, {1, 2, 3, 4}), t({2, 1}, {1, 1}), t({1}, {1})}, {}, {t({2, 1, 1}, {4, 8})}},
      {Op::linear, {t({2}, {1, 2}), t({2, 2}, {1, 2, 3, 4})}, {}, {t({2}, {7, 10})}},
      {Op::linear, {t({2, 0}, {}), t({0, 2}, {}), t({2}, {1, 2})}, {}, {t({2, 2}, {1, 2, 1, 2})}},
      {Op::linear, {t({0, 1}, {}), t({1, 2}, {1, 2})}, {}, {t({0, 2}, {})}},
  };
}

namespace {

// 4096 + 1 is 4096 in f16 and bf16: the sum is kept wider than the dtype.
TEST(ReferenceContractions, AccumulatesWide) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    std::vector<double> ones(1024, 1.0);
    const Array x = Array::from<double>(dtype, {1, 1024}, ones),
                y = Array::from<double>(dtype, {1024, 1}, ones);
    EXPECT_EQ(run_op(Op::matmul, {x, y}).at(0).get_f64(0), 1024);
  }
}

}  // namespace
}  // namespace aicf
