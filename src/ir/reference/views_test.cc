#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/reference/evaluator.h"
#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

Shape dims(std::vector<int64_t> sizes) { return to_shape(sizes); }

void add_pad(std::vector<OpCase>& rows) {
  const CaseTensor x = t({3}, {1, 0, 1});
  const auto row = [&](const char* mode, int64_t low, int64_t high, std::vector<double> expected) {
    const auto count = static_cast<int64_t>(expected.size());
    rows.push_back({Op::pad,
                    {x, nothing()},
                    {{"low", dims({low})}, {"high", dims({high})}, {"mode", std::string(mode)}},
                    {t({count}, expected)}});
  };
  row("constant", 1, 2, {0, 1, 0, 1, 0, 0});
  row("edge", 2, 1, {1, 1, 1, 0, 1, 1});
  row("reflect", 2, 2, {1, 0, 1, 0, 1, 0, 1});
  row("wrap", 2, 2, {0, 1, 1, 0, 1, 1, 0});
  rows.push_back({Op::pad,
                  {t({3}, {1, 2, 3})},
                  {{"low", dims({4})}, {"high", dims({5})}, {"mode", std::string("reflect")}},
                  {t({12}, {1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2})},
                  kNumbers});
  rows.push_back({Op::pad,
                  {t({3}, {1, 2, 3})},
                  {{"low", dims({4})}, {"high", dims({1})}, {"mode", std::string("wrap")}},
                  {t({8}, {3, 1, 2, 3, 1, 2, 3, 1})},
                  kNumbers});
  rows.push_back({Op::pad,
                  {t({1}, {4})},
                  {{"low", dims({1})}, {"high", dims({1})}, {"mode", std::string("reflect")}},
                  {t({3}, {4, 4, 4})},
                  kNumbers});
  rows.push_back({Op::pad,
                  {t({1, 2}, {1, 2}), t(9)},
                  {{"low", dims({1, 0})}, {"high", dims({0, 1})}},
                  {t({2, 3}, {9, 9, 9, 1, 2, 9})},
                  kNumbers});
  rows.push_back({Op::pad, {t({0}, {}), t(1)}, {{"low", dims({1})}, {"high", dims({1})}}, {t({2}, {1, 1})}});
}

TEST(ReferenceViews, SizesBoundLateAreChecked) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("n")}});
  const ValueId y =
      graph.add(Op::slice, {x}, {{"starts", dims({0})}, {"limits", dims({4})}, {"steps", Ints{1}}});
  graph.add_output(y, "y");
  Program program;
  EXPECT_EQ(evaluate(program, graph, {{{"x", Array(DType::f32, {5})}}, {}}).outputs.at("y").count(), 4);
  EXPECT_THROW(evaluate(program, graph, {{{"x", Array(DType::f32, {3})}}, {}}), UserError);
}

TEST(ReferenceViews, SizeOfGivesTheBoundSize) {
  Graph graph;
  graph.add_input("x", {DType::f32, {Dim::symbol("n")}});
  graph.add_output(graph.add(Op::size_of, {}, {{"size", Shape{Dim::symbol("n") * Dim(2) + Dim(1)}}}), "y");
  const EvalResult result = evaluate(Program(), graph, {{{"x", Array(DType::f32, {5})}}, {}});
  EXPECT_EQ(result.outputs.at("y"), Array::scalar_i64(DType::i64, 11));
  EXPECT_EQ(result.sizes.at("n"), 5);
}

}  // namespace

std::vector<OpCase> views_cases() {
  std::vector<OpCase> rows = {
      {Op::reshape,
       {t({2, 3}, {1, 0, 1, 1, 0, 0})},
       {{"shape", dims({3, 2})}},
       {t({3, 2}, {1, 0, 1, 1, 0, 0})}},
      {Op::reshape, {t({2, 0}, {})}, {{"shape", dims({0, 5})}}, {t({0, 5}, {})}},
      {Op::reshape, {t({1, 1}, {1})}, {{"shape", dims({})}}, {t(1)}},
      {Op::transpose,
       {t({2, 3}, {1, 0, 1, 1, 0, 0})},
       {{"perm", Ints{1, 0}}},
       {t({3, 2}, {1, 1, 0, 0, 1, 0})}},
      {Op::transpose,
       {t({1, 2, 3}, {1, 2, 3, 4, 5, 6})},
       {{"perm", Ints{2, 0, 1}}},
       {t({3, 1, 2}, {1, 4, 2, 5, 3, 6})},
       kNumbers},
      {Op::transpose, {t({0, 3}, {})}, {{"perm", Ints{1, 0}}}, {t({3, 0}, {})}},
      {Op::broadcast_to,
       {t({2, 1}, {1, 0})},
       {{"shape", dims({2, 2, 2})}},
       {t({2, 2, 2}, {1, 1, 0, 0, 1, 1, 0, 0})}},
      {Op::broadcast_to, {t(1)}, {{"shape", dims({0})}}, {t({0}, {})}},
      {Op::slice,
       {t({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})},
       {{"starts", dims({1, 1})}, {"limits", dims({2, 5})}, {"steps", Ints{1, 3}}},
       {t({1, 2}, {6, 9})},
       kNumbers},
      {Op::slice,
       {t({3}, {1, 0, 1})},
       {{"starts", dims({2})}, {"limits", dims({2})}, {"steps", Ints{1}}},
       {t({0}, {})}},
      {Op::reverse, {t({2, 2}, {1, 2, 3, 4})}, {{"axes", Ints{1}}}, {t({2, 2}, {2, 1, 4, 3})}, kNumbers},
      {Op::reverse, {t({2, 2}, {1, 0, 0, 0})}, {{"axes", Ints{0, -1}}}, {t({2, 2}, {0, 0, 0, 1})}},
      {Op::concat,
       {t({2, 1}, {1, 2}), t({2, 0}, {}), t({2, 2}, {3, 4, 5, 6})},
       {{"axis", int64_t{1}}},
       {t({2, 3}, {1, 3, 4, 2, 5, 6})},
       kNumbers},
      {Op::concat, {t({1}, {1}), t({2}, {0, 1})}, {{"axis", int64_t{-1}}}, {t({3}, {1, 0, 1})}},
  };
  for (DType dtype : kNumbers) {
    rows.push_back({Op::iota,
                    {},
                    {{"shape", dims({2, 3})}, {"axis", int64_t{1}}, {"dtype", dtype}},
                    {of(dtype, {2, 3}, {0, 1, 2, 0, 1, 2})}});
    rows.push_back({Op::iota,
                    {},
                    {{"shape", dims({2, 1})}, {"axis", int64_t{0}}, {"dtype", dtype}},
                    {of(dtype, {2, 1}, {0, 1})}});
    rows.push_back({Op::size_of, {}, {{"size", dims({7})}, {"dtype", dtype}}, {of(dtype, {}, {7})}});
  }
  add_pad(rows);
  return rows;
}

}  // namespace aicf
