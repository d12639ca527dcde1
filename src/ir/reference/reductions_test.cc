#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

Attrs over(Ints axes, bool keepdims = false) { return {{"axes", axes}, {"keepdims", keepdims}}; }
Attrs along(int64_t axis, bool last = false) { return {{"axis", axis}, {"select_last", last}}; }

const CaseTensor kMatrix = t({2, 3}, {1, 2, 3, 4, 5, 6});

void add_sums(std::vector<OpCase>& rows) {
  rows.push_back({Op::reduce_sum, {kMatrix}, over({0}), {t({3}, {5, 7, 9})}});
  rows.push_back({Op::reduce_sum, {kMatrix}, over({-1}, true), {t({2, 1}, {6, 15})}});
  rows.push_back({Op::reduce_sum, {kMatrix}, over({0, 1}), {t(21)}});
  rows.push_back({Op::reduce_sum, {kMatrix}, over({}), {kMatrix}});
  rows.push_back({Op::reduce_sum, {t({0, 2}, {})}, over({0}), {t({2}, {0, 0})}});
  rows.push_back({Op::reduce_sum, {t({2, 0}, {})}, over({0}), {t({0}, {})}});
  rows.push_back({Op::reduce_sum, {t({2}, {127, 2})}, over({0}), {t(-127)}, {DType::i8}});
  rows.push_back({Op::reduce_sum, {t({2}, {kInf, -kInf})}, over({0}), {t(kNan)}, kFloats});
  // 2048 + 1 + 1: rounding each step to f16 would give 2048.
  rows.push_back(
      {Op::reduce_sum, {t({3}, {2048, 1, 1})}, over({0}), {t(2050)}, {DType::f64, DType::f32, DType::f16}});
  rows.push_back({Op::reduce_prod, {kMatrix}, over({1}), {t({2}, {6, 120})}});
  rows.push_back({Op::reduce_prod, {t({0}, {})}, over({0}), {t(1)}});
  rows.push_back({Op::reduce_prod, {t({2}, {16, 17})}, over({0}), {t(16)}, {DType::i8, DType::u8}});
  rows.push_back({Op::reduce_mean, {t({2, 2}, {1, 3, 5, 7})}, over({0}), {t({2}, {3, 5})}});
  rows.push_back({Op::reduce_mean, {t({2}, {-1, -2})}, over({0}), {t(-1)}, kSignedInts});
  rows.push_back({Op::reduce_mean, {t({2}, {-1, -2})}, over({0}), {t(-1.5)}, kFloats});
  rows.push_back({Op::reduce_mean, {t({2}, {100, 100})}, over({0}), {t(-28)}, {DType::i8}});
  rows.push_back({Op::reduce_mean, {t({0}, {})}, over({0}), {t(kNan)}, kFloats});
  rows.push_back({Op::reduce_mean, {t({0}, {})}, over({0}), {t(0)}, kSignedInts});
}

void add_extremes(std::vector<OpCase>& rows) {
  const CaseTensor x = t({2, 3}, {3, 1, 2, 3, 5, 0});
  rows.push_back({Op::reduce_max, {x}, over({1}), {t({2}, {3, 5})}, kNumbers});
  rows.push_back({Op::reduce_min, {x}, over({0}, true), {t({1, 3}, {3, 1, 0})}, kNumbers});
  rows.push_back({Op::reduce_max, {t({2}, {kNan, 1})}, over({0}), {t(kNan)}, kFloats});
  rows.push_back({Op::reduce_min, {t({2}, {1, kNan})}, over({0}), {t(kNan)}, kFloats});
  rows.push_back({Op::reduce_max, {t({0}, {})}, over({0}), {t(-kInf)}, kFloats});
  rows.push_back({Op::reduce_min, {t({0}, {})}, over({0}), {t(kInf)}, kFloats});
  rows.push_back({Op::reduce_max, {t({0}, {})}, over({0}), {t(-128)}, {DType::i8}});
  rows.push_back({Op::reduce_min, {t({0}, {})}, over({0}), {t(127)}, {DType::i8}});
  rows.push_back({Op::reduce_max, {t({0}, {})}, over({0}), {t(0)}, {DType::u8, DType::boolean}});
  rows.push_back({Op::reduce_min, {t({0}, {})}, over({0}), {t(255)}, {DType::u8}});
  rows.push_back({Op::reduce_min, {t({0}, {})}, over({0}), {t(1)}, {DType::boolean}});
  rows.push_back(
      {Op::reduce_max, {boolean({2, 2}, {0, 1, 0, 0})}, over({1}), {boolean({2}, {1, 0})}, {DType::boolean}});
  rows.push_back(
      {Op::reduce_min, {boolean({2, 2}, {0, 1, 1, 1})}, over({1}), {boolean({2}, {0, 1})}, {DType::boolean}});
}

void add_arguments(std::vector<OpCase>& rows) {
  const CaseTensor x = t({2, 4}, {1, 3, 3, 0, 2, 2, 2, 2});
  rows.push_back({Op::argmax, {x}, along(1), {i64({2}, {1, 0})}});
  rows.push_back({Op::argmax, {x}, along(-1, true), {i64({2}, {2, 3})}});
  rows.push_back({Op::argmin, {x}, along(1), {i64({2}, {3, 0})}});
  rows.push_back({Op::argmin, {x}, along(0, true), {i64({4}, {0, 1, 1, 0})}});
  rows.push_back({Op::argmax, {x}, {{"axis", int64_t{0}}, {"keepdims", true}}, {i64({1, 4}, {1, 0, 0, 1})}});
  const CaseTensor nan = t({4}, {kInf, kNan, -kInf, kNan});
  rows.push_back({Op::argmax, {nan}, along(0), {i64({}, {1})}, kFloats});
  rows.push_back({Op::argmax, {nan}, along(0, true), {i64({}, {3})}, kFloats});
  rows.push_back({Op::argmin, {nan}, along(0), {i64({}, {1})}, kFloats});
  rows.push_back({Op::argmin, {t({0, 2}, {})}, along(1), {i64({0}, {})}});
}

void add_logsumexp(std::vector<OpCase>& rows) {
  rows.push_back({Op::reduce_logsumexp, {t({2}, {0, 0})}, over({0}), {t(std::log(2))}});
  rows.push_back({Op::reduce_logsumexp,
                  {t({2, 2}, {1000, 1000, -1000, -1000})},
                  over({1}),
                  {t({2}, {1000 + std::log(2), -1000 + std::log(2)})}});
  rows.push_back({Op::reduce_logsumexp,
                  {t({2, 2}, {-kInf, -kInf, kInf, 1})},
                  over({1}, true),
                  {t({2, 1}, {-kInf, kInf})}});
  rows.push_back({Op::reduce_logsumexp, {t({2}, {kNan, kInf})}, over({0}), {t(kNan)}});
  rows.push_back({Op::reduce_logsumexp, {t({0}, {})}, over({0}), {t(-kInf)}});
}

TEST(ReferenceReductions, EmptyMaximumOfInt64IsTheLowest) {
  const Array none(DType::i64, {0});
  const auto lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(run_op(Op::reduce_max, {none}, over({0})).at(0), Array::scalar_i64(DType::i64, lowest));
  EXPECT_EQ(run_op(Op::reduce_min, {none}, over({0})).at(0), Array::scalar_i64(DType::i64, highest));
}

}  // namespace

std::vector<OpCase> reductions_cases() {
  std::vector<OpCase> rows;
  add_sums(rows);
  add_extremes(rows);
  add_arguments(rows);
  add_logsumexp(rows);
  return rows;
}

}  // namespace aicf
