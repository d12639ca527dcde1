#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/reference/evaluator.h"
#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

Attrs cumulate(int64_t axis, bool exclusive, bool reverse) {
  return {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}};
}
Attrs order(int64_t axis, bool descending = false) { return {{"axis", axis}, {"descending", descending}}; }
Attrs top(int64_t k, int64_t axis, bool largest = true) {
  return {{"k", Shape{Dim(k)}}, {"axis", axis}, {"largest", largest}};
}

void add_scans(std::vector<OpCase>& rows) {
  const CaseTensor x = t({2, 3}, {1, 2, 3, 4, 5, 6});
  rows.push_back({Op::cumsum, {x}, cumulate(1, false, false), {t({2, 3}, {1, 3, 6, 4, 9, 15})}});
  rows.push_back({Op::cumsum, {x}, cumulate(1, true, false), {t({2, 3}, {0, 1, 3, 0, 4, 9})}});
  rows.push_back({Op::cumsum, {x}, cumulate(1, false, true), {t({2, 3}, {6, 5, 3, 15, 11, 6})}});
  rows.push_back({Op::cumsum, {x}, cumulate(-1, true, true), {t({2, 3}, {5, 3, 0, 11, 6, 0})}});
  rows.push_back({Op::cumsum, {x}, cumulate(0, false, false), {t({2, 3}, {1, 2, 3, 5, 7, 9})}});
  rows.push_back({Op::cumprod, {x}, cumulate(1, false, false), {t({2, 3}, {1, 2, 6, 4, 20, 120})}});
  rows.push_back({Op::cumprod, {x}, cumulate(1, true, true), {t({2, 3}, {6, 3, 1, 30, 6, 1})}});
  rows.push_back({Op::cumsum,
                  {t({3}, {100, 100, 100})},
                  cumulate(0, false, false),
                  {t({3}, {100, -56, 44})},
                  {DType::i8}});
  rows.push_back(
      {Op::cumprod, {t({3}, {16, 16, 3})}, cumulate(0, false, false), {t({3}, {16, 0, 0})}, {DType::u8}});
  rows.push_back(
      {Op::cumsum, {t({3}, {1, kNan, 1})}, cumulate(0, false, false), {t({3}, {1, kNan, kNan})}, kFloats});
  rows.push_back({Op::cumsum, {t({0}, {})}, cumulate(0, false, false), {t({0}, {})}});
}

void add_sorts(std::vector<OpCase>& rows) {
  const CaseTensor x = t({5}, {3, 1, 2, 1, 3});
  rows.push_back({Op::sort, {x}, order(0), {t({5}, {1, 1, 2, 3, 3}), i64({5}, {1, 3, 2, 0, 4})}});
  rows.push_back({Op::sort, {x}, order(0, true), {t({5}, {3, 3, 2, 1, 1}), i64({5}, {0, 4, 2, 1, 3})}});
  const CaseTensor nan = t({5}, {kNan, kInf, -kInf, kNan, 0});
  rows.push_back({Op::sort,
                  {nan},
                  order(0),
                  {t({5}, {-kInf, 0, kInf, kNan, kNan}), i64({5}, {2, 4, 1, 0, 3})},
                  kFloats});
  rows.push_back({Op::sort,
                  {nan},
                  order(0, true),
                  {t({5}, {kNan, kNan, kInf, 0, -kInf}), i64({5}, {0, 3, 1, 4, 2})},
                  kFloats});
  rows.push_back(
      {Op::sort, {t({2, 2}, {4, 1, 3, 2})}, order(0), {t({2, 2}, {3, 1, 4, 2}), i64({2, 2}, {1, 0, 0, 1})}});
  rows.push_back({Op::sort, {t({0}, {})}, order(0), {t({0}, {}), i64({0}, {})}});
  rows.push_back({Op::top_k, {x}, top(2, 0), {t({2}, {3, 3}), i64({2}, {0, 4})}});
  rows.push_back({Op::top_k, {x}, top(3, -1, false), {t({3}, {1, 1, 2}), i64({3}, {1, 3, 2})}});
  rows.push_back({Op::top_k, {nan}, top(2, 0), {t({2}, {kNan, kNan}), i64({2}, {0, 3})}, kFloats});
  rows.push_back({Op::top_k, {t({2, 2}, {4, 1, 3, 2})}, top(1, 0), {t({1, 2}, {4, 2}), i64({1, 2}, {0, 1})}});
  rows.push_back({Op::top_k, {x}, top(0, 0), {t({0}, {}), i64({0}, {})}});
}

TEST(ReferenceOrder, TopKBeyondABoundSizeIsRefused) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("n")}});
  const NodeId node = graph.add_node(Op::top_k, {x}, top(4, 0));
  graph.add_output(graph.node(node).results[1], "y");
  EXPECT_EQ(evaluate(Program(), graph, {{{"x", Array(DType::f32, {4})}}, {}}).outputs.at("y").count(), 4);
  EXPECT_THROW(evaluate(Program(), graph, {{{"x", Array(DType::f32, {3})}}, {}}), UserError);
}

}  // namespace

std::vector<OpCase> order_cases() {
  std::vector<OpCase> rows;
  add_scans(rows);
  add_sorts(rows);
  return rows;
}

}  // namespace aicf
