#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

const CaseTensor kTable = t({3, 2}, {1, 2, 3, 4, 5, 6});

Attrs axis_of(int64_t value) { return {{"axis", value}}; }
Attrs reduce(const char* reduction) { return {{"reduction", std::string(reduction)}}; }
Attrs reduce(const char* reduction, int64_t axis) {
  return {{"reduction", std::string(reduction)}, {"axis", axis}};
}

void add_gathers(std::vector<OpCase>& rows) {
  for (DType index : {DType::i64, DType::i32}) {
    rows.push_back({Op::gather,
                    {kTable, of(index, {2, 1}, {2, -3})},
                    axis_of(0),
                    {t({2, 1, 2}, {5, 6, 1, 2})},
                    kNumbers});
    rows.push_back({Op::gather, {kTable, of(index, {}, {-1})}, axis_of(1), {t({3}, {2, 4, 6})}, kNumbers});
    rows.push_back({Op::gather_elements,
                    {kTable, of(index, {1, 2}, {2, -3})},
                    axis_of(0),
                    {t({1, 2}, {5, 2})},
                    kNumbers});
    rows.push_back(
        {Op::gather_nd, {kTable, of(index, {2, 2}, {2, 0, 0, -1})}, {}, {t({2}, {5, 2})}, kNumbers});
  }
  rows.push_back({Op::gather,
                  {boolean({2}, {0, 1}), i64({3}, {1, 0, 1})},
                  {},
                  {boolean({3}, {1, 0, 1})},
                  {DType::boolean}});
  rows.push_back({Op::gather, {kTable, i64({0}, {})}, axis_of(0), {t({0, 2}, {})}, kNumbers});
  rows.push_back({Op::gather_elements,
                  {kTable, i64({3, 3}, {0, 1, 0, 1, 1, 1, 0, 0, 0})},
                  axis_of(1),
                  {t({3, 3}, {1, 2, 1, 4, 4, 4, 5, 5, 5})},
                  kNumbers});
  rows.push_back({Op::gather_nd, {kTable, i64({2, 1}, {2, 0})}, {}, {t({2, 2}, {5, 6, 1, 2})}, kNumbers});
  rows.push_back({Op::gather_nd,
                  {kTable, i64({3, 1}, {1, 0, -1})},
                  {{"batch_dims", int64_t{1}}},
                  {t({3}, {2, 3, 6})},
                  kNumbers});
}

void add_scatters(std::vector<OpCase>& rows) {
  const CaseTensor x = t({4}, {1, 2, 3, 4}), at = i64({3}, {1, -1, 1}), updates = t({3}, {5, 6, 2});
  const auto row = [&](const char* reduction, std::vector<double> expected) {
    rows.push_back(
        {Op::scatter_elements, {x, at, updates}, reduce(reduction, 0), {t({4}, expected)}, kNumbers});
    const CaseTensor at_nd = i64({3, 1}, {1, -1, 1});
    rows.push_back({Op::scatter_nd, {x, at_nd, updates}, reduce(reduction), {t({4}, expected)}, kNumbers});
  };
  row("none", {1, 2, 3, 6});
  row("add", {1, 9, 3, 10});
  row("mul", {1, 20, 3, 24});
  row("max", {1, 5, 3, 6});
  row("min", {1, 2, 3, 4});
  rows.push_back({Op::scatter_elements,
                  {kTable, i64({1, 2}, {2, 0}), t({1, 2}, {8, 9})},
                  reduce("none", 0),
                  {t({3, 2}, {1, 9, 3, 4, 8, 6})},
                  kNumbers});
  rows.push_back({Op::scatter_nd,
                  {kTable, of(DType::i32, {2, 1}, {2, 0}), t({2, 2}, {7, 8, 9, 10})},
                  reduce("none"),
                  {t({3, 2}, {9, 10, 3, 4, 7, 8})},
                  kNumbers});
  rows.push_back({Op::scatter_elements,
                  {t({2}, {100, 1}), i64({2}, {0, 0}), t({2}, {100, 100})},
                  reduce("add", 0),
                  {t({2}, {44, 1})},
                  {DType::i8}});
  rows.push_back({Op::scatter_elements,
                  {t({2}, {1, 2}), i64({2}, {0, 1}), t({2}, {kNan, 3})},
                  reduce("max", 0),
                  {t({2}, {kNan, 3})},
                  kFloats});
  rows.push_back({Op::scatter_elements,
                  {boolean({2}, {0, 1}), i64({2}, {0, 1}), boolean({2}, {1, 0})},
                  reduce("none", 0),
                  {boolean({2}, {1, 0})},
                  {DType::boolean}});
  rows.push_back({Op::scatter_nd,
                  {t({2}, {1, 2}), i64({0, 1}, {}), t({0}, {})},
                  reduce("add"),
                  {t({2}, {1, 2})},
                  kNumbers});
}

void expect_out_of_range(Op op, const std::vector<Array>& operands, const Attrs& attrs,
                         const std::string& index, const std::string& bound) {
  try {
    run_op(op, operands, attrs);
    ADD_FAILURE() << "an index out of range was accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_index_out_of_range);
    EXPECT_EQ(error.op, op_info(op).name);
    EXPECT_EQ(error.actual, index);
    EXPECT_NE(error.expected.find(bound), std::string::npos) << error.expected;
  }
}

TEST(ReferenceIndexing, OutOfRangeNamesOpValueAndBound) {
  const Array x(DType::f32, {3}), update(DType::f32, {1});
  const Array high = Array::from<int64_t>(DType::i64, {1}, {3}),
              low = Array::from<int64_t>(DType::i64, {1}, {-4});
  const Attrs gather = axis_of(0), scatter = reduce("none", 0);
  expect_out_of_range(Op::gather, {x, high}, gather, "3", "< 3");
  expect_out_of_range(Op::gather, {x, low}, gather, "-4", "-3 <=");
  expect_out_of_range(Op::gather_elements, {x, high}, gather, "3", "< 3");
  expect_out_of_range(Op::gather_nd, {x, low.reshaped({1, 1})}, {}, "-4", "-3 <=");
  expect_out_of_range(Op::scatter_elements, {x, high, update}, scatter, "3", "< 3");
  expect_out_of_range(Op::scatter_nd, {x, high.reshaped({1, 1}), update}, reduce("none"), "3", "< 3");
  expect_out_of_range(Op::gather, {Array(DType::f32, {0}), Array(DType::i64, {1})}, gather, "0", "< 0");
}

}  // namespace

std::vector<OpCase> indexing_cases() {
  std::vector<OpCase> rows;
  add_gathers(rows);
  add_scatters(rows);
  return rows;
}

}  // namespace aicf
