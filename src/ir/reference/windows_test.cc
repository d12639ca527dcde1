#include <gtest/gtest.h>

#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

Attrs conv(Ints strides, Ints pads, Ints dilations, int64_t groups = 1) {
  return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}};
}

Attrs conv_transpose(Ints strides, Ints pads, Ints dilations, Ints output_padding, int64_t groups = 1) {
  Attrs attrs = conv(strides, pads, dilations, groups);
  attrs.set("output_padding", output_padding);
  return attrs;
}

Attrs pool(Ints kernel, Ints strides, Ints pads, Ints dilations, bool ceil_mode = false) {
  return {{"kernel", kernel},
          {"strides", strides},
          {"pads", pads},
          {"dilations", dilations},
          {"ceil_mode", ceil_mode}};
}

Attrs with(Attrs attrs, const char* name, bool value) {
  attrs.set(name, value);
  return attrs;
}

const CaseTensor kLine = t({1, 1, 5}, {1, 2, 3, 4, 5});
const CaseTensor kSquare = t({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});

void add_conv(std::vector<OpCase>& rows) {
  const CaseTensor taps = t({1, 1, 2}, {1, 10});
  rows.push_back({Op::conv, {kLine, taps}, conv({1}, {0, 0}, {1}), {t({1, 1, 4}, {21, 32, 43, 54})}});
  rows.push_back({Op::conv, {kLine, taps}, conv({2}, {1, 0}, {1}), {t({1, 1, 3}, {10, 32, 54})}});
  rows.push_back(
      {Op::conv, {kLine, taps, t({1}, {0.5})}, conv({1}, {0, 1}, {3}), {t({1, 1, 3}, {41.5, 52.5, 3.5})}});
  // Two groups: each map sees its own channel.
  rows.push_back({Op::conv,
                  {t({1, 2, 2}, {1, 2, 3, 4}), t({2, 1, 1}, {2, 3})},
                  conv({1}, {0, 0}, {1}, 2),
                  {t({1, 2, 2}, {2, 4, 9, 12})}});
  rows.push_back({Op::conv,
                  {t({2, 2, 1}, {1, 2, 3, 4}), t({1, 2, 1}, {1, 10})},
                  conv({1}, {0, 0}, {1}),
                  {t({2, 1, 1}, {21, 43})}});
  rows.push_back({Op::conv,
                  {kSquare, t({1, 1, 2, 2}, {1, 0, 0, 1})},
                  conv({1, 1}, {0, 0, 0, 0}, {1, 1}),
                  {t({1, 1, 2, 2}, {6, 8, 12, 14})}});
  rows.push_back({Op::conv,
                  {kSquare, t({1, 1, 2, 2}, {0, 1, 0, 0})},
                  conv({2, 2}, {1, 0, 0, 1}, {1, 1}),
                  {t({1, 1, 2, 2}, {0, 0, 5, 0})}});
  rows.push_back({Op::conv, {t({0, 1, 3}, {}), taps}, conv({1}, {0, 0}, {1}), {t({0, 1, 2}, {})}});
}

void add_conv_weight_gradient(std::vector<OpCase>& rows) {
  const auto gradient = [](Attrs attrs, Shape kernel) {
    attrs.set("kernel", std::move(kernel));
    return attrs;
  };
  const auto add = [&](std::vector<CaseTensor> operands, Attrs attrs, Shape kernel, CaseTensor w) {
    rows.push_back({Op::conv_weight_gradient,
                    std::move(operands),
                    gradient(std::move(attrs), std::move(kernel)),
                    {std::move(w)}});
  };
  // Of kLine [1 … 5]: each tap sees the positions of dy moved by it.
  add({kLine, t({1, 1, 4}, {1, 0, 10, 0})}, conv({1}, {0, 0}, {1}), {Dim(2)}, t({1, 1, 2}, {31, 42}));
  add({kLine, t({1, 1, 3}, {1, 10, 100})}, conv({2}, {1, 0}, {1}), {Dim(2)}, t({1, 1, 2}, {420, 531}));
  add({kLine, t({1, 1, 3}, {1, 10, 100})}, conv({1}, {0, 1}, {3}), {Dim(2)}, t({1, 1, 2}, {321, 54}));
  add({kLine, t({1, 1, 1}, {1})}, conv({1}, {0, 0}, {1}), {Dim(2)}, t({1, 1, 2}, {1, 2}));  // dy lacks some
  // Two images; two groups, each map with its own channel.
  add({t({2, 1, 2}, {1, 2, 3, 4}), t({2, 1, 2}, {1, 1, 10, 10})}, conv({1}, {0, 0}, {1}), {Dim(1)},
      t({1, 1, 1}, {73}));
  add({t({1, 2, 2}, {1, 2, 3, 4}), t({1, 2, 2}, {1, 10, 1, 10})}, conv({1}, {0, 0}, {1}, 2), {Dim(1)},
      t({2, 1, 1}, {21, 43}));
  add({t({1, 2, 1}, {1, 2}), t({1, 2, 1}, {1, 10})}, conv({1}, {0, 0}, {1}), {Dim(1)},
      t({2, 2, 1}, {1, 2, 10, 20}));
  add({kSquare, t({1, 1, 2, 2}, {1, 0, 0, 0})}, conv({1, 1}, {0, 0, 0, 0}, {1, 1}), {Dim(2), Dim(2)},
      t({1, 1, 2, 2}, {1, 2, 4, 5}));
  add({t({0, 1, 3}, {}), t({0, 1, 2}, {})}, conv({1}, {0, 0}, {1}), {Dim(2)}, t({1, 1, 2}, {0, 0}));
}

void add_conv_transpose(std::vector<OpCase>& rows) {
  const CaseTensor x = t({1, 1, 3}, {1, 2, 3}), taps = t({1, 1, 2}, {1, 10});
  rows.push_back({Op::conv_transpose,
                  {x, taps},
                  conv_transpose({1}, {0, 0}, {1}, {0}),
                  {t({1, 1, 4}, {1, 12, 23, 30})}});
  rows.push_back({Op::conv_transpose,
                  {x, taps, t({1}, {0.5})},
                  conv_transpose({2}, {1, 0}, {1}, {1}),
                  {t({1, 1, 6}, {10.5, 2.5, 20.5, 3.5, 30.5, 0.5})}});
  rows.push_back({Op::conv_transpose,
                  {t({1, 2, 1}, {1, 2}), t({2, 1, 2}, {1, 2, 3, 4})},
                  conv_transpose({1}, {0, 0}, {1}, {0}, 2),
                  {t({1, 2, 2}, {1, 2, 6, 8})}});
  rows.push_back({Op::conv_transpose,
                  {t({1, 2, 1}, {1, 2}), t({2, 1, 2}, {1, 2, 3, 4})},
                  conv_transpose({1}, {0, 0}, {2}, {0}),
                  {t({1, 1, 3}, {7, 0, 10})}});
  rows.push_back({Op::conv_transpose,
                  {t({1, 1, 1, 2}, {1, 2}), t({1, 2, 1, 1}, {1, 3})},
                  conv_transpose({1, 1}, {0, 0, 0, 0}, {1, 1}, {0, 0}),
                  {t({1, 2, 1, 2}, {1, 2, 3, 6})}});
}

void add_max_pool(std::vector<OpCase>& rows) {
  const Attrs two = pool({2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1});
  rows.push_back({Op::max_pool, {kSquare}, two, {t({1, 1, 2, 2}, {5, 6, 8, 9})}});
  rows.push_back({Op::max_pool_indices, {kSquare}, two, {i64({1, 1, 2, 2}, {4, 5, 7, 8})}});
  rows.push_back(
      {Op::max_pool_indices, {kSquare}, with(two, "column_major", true), {i64({1, 1, 2, 2}, {4, 7, 5, 8})}});
  // Negative values beside padding: padding never wins.
  const CaseTensor negative = t({1, 1, 2}, {-3, -5});
  rows.push_back(
      {Op::max_pool, {negative}, pool({2}, {1}, {1, 1}, {1}), {t({1, 1, 3}, {-3, -3, -5})}, kSigned});
  rows.push_back({Op::max_pool, {kLine}, pool({2}, {2}, {0, 0}, {1}, true), {t({1, 1, 3}, {2, 4, 5})}});
  rows.push_back({Op::max_pool, {kLine}, pool({2}, {2}, {0, 0}, {1}, false), {t({1, 1, 2}, {2, 4})}});
  rows.push_back({Op::max_pool, {kLine}, pool({2}, {1}, {0, 0}, {3}), {t({1, 1, 2}, {4, 5})}});
  rows.push_back({Op::max_pool,
                  {t({1, 1, 3}, {1, kNan, 2})},
                  pool({2}, {1}, {0, 0}, {1}),
                  {t({1, 1, 2}, {kNan, kNan})},
                  kFloats});
  // Equal values: the first. The second plane's indices count on from the first.
  rows.push_back({Op::max_pool_indices,
                  {t({1, 2, 3}, {2, 2, 1, 0, 7, 7})},
                  pool({3}, {1}, {0, 0}, {1}),
                  {i64({1, 2, 1}, {0, 4})}});
  rows.push_back({Op::max_pool_indices,
                  {t({2, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1})},
                  with(pool({2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}), "column_major", true),
                  {i64({2, 1, 1, 2}, {3, 5, 6, 8})}});
}

void add_avg_pool(std::vector<OpCase>& rows) {
  rows.push_back(
      {Op::avg_pool, {kSquare}, pool({2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}), {t({1, 1, 2, 2}, {3, 4, 6, 7})}});
  const Attrs padded = pool({2}, {1}, {1, 1}, {1});
  rows.push_back({Op::avg_pool, {t({1, 1, 2}, {2, 4})}, padded, {t({1, 1, 3}, {2, 3, 4})}});
  rows.push_back({Op::avg_pool,
                  {t({1, 1, 2}, {2, 4})},
                  with(padded, "count_include_pad", true),
                  {t({1, 1, 3}, {1, 3, 2})}});
  // The last window hangs over the edge by ceil_mode: what lies beyond the padding is never counted.
  const Attrs over = pool({3}, {2}, {0, 1}, {1}, true);
  rows.push_back({Op::avg_pool, {t({1, 1, 4}, {1, 2, 3, 6})}, over, {t({1, 1, 2}, {2, 4.5})}});
  rows.push_back({Op::avg_pool,
                  {t({1, 1, 4}, {1, 2, 3, 6})},
                  with(over, "count_include_pad", true),
                  {t({1, 1, 2}, {2, 3})}});
  const Attrs past = pool({3}, {2}, {1, 0}, {1}, true);
  rows.push_back({Op::avg_pool, {kLine}, with(past, "count_include_pad", true), {t({1, 1, 3}, {1, 3, 4.5})}});
  rows.push_back({Op::avg_pool,
                  {t({1, 1, 5}, {1, 2, 3, 4, 5})},
                  pool({2}, {1}, {0, 0}, {2}),
                  {t({1, 1, 3}, {2, 3, 4})}});
}

}  // namespace

std::vector<OpCase> windows_cases() {
  std::vector<OpCase> rows;
  add_conv(rows);
  add_conv_weight_gradient(rows);
  add_conv_transpose(rows);
  add_max_pool(rows);
  add_avg_pool(rows);
  return rows;
}

}  // namespace aicf
