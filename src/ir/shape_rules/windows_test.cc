#include <gtest/gtest.h>

#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {
namespace {

Attrs windows(Ints strides, Ints pads, Ints dilations) {
  return {{"strides", std::move(strides)}, {"pads", std::move(pads)}, {"dilations", std::move(dilations)}};
}

Attrs with(Attrs attrs, const char* name, Attr value) {
  attrs.set(name, std::move(value));
  return attrs;
}

}  // namespace

std::vector<ShapeCase> window_shapes() {
  const Attrs same2 = windows({1, 1}, {1, 1, 1, 1}, {1, 1}), one = windows({1}, {0, 0}, {1}),
              two = windows({2}, {0, 0}, {1});
  std::vector<ShapeCase> cases = {
      {Op::conv, "f32[n, 3, h, w]; f32[16, 3, 3, 3]; f32[16]", same2, "f32[n, 16, h, w]"},
      {Op::conv, "f32[1, 4, 224]; f32[8, 2, 7]", with(windows({2}, {3, 3}, {1}), "groups", i(2)),
       "f32[1, 8, 112]"},
      {Op::conv, "f32[1, 3, n]; f32[8, 3, 3]", windows({2}, {0, 1}, {2}), "f32[1, 8, floordiv(n, 2)-1]"},
      {Op::conv, "f32[0, 3, 9]; f32[8, 3, 3]", one, "f32[0, 8, 7]"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 4, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 2]; f32[8, 3, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]; f32[3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 0]", one, "bad_shape"},
      {Op::conv, "f32[3, 9]; f32[8, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 4, 9]; f32[3, 2, 3]", with(one, "groups", i(2)), "bad_shape"},
      {Op::conv, "f32[1, 4, 9]; f32[3, 2, 3]", with(one, "groups", i(0)), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({0}, {0, 0}, {1}), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({1}, {0}, {1}), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({1}, {-1, 0}, {1}), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({}, {}, {}), "bad_attribute"},
      {Op::conv_weight_gradient, "f32[n, 3, h, w]; f32[n, 16, h, w]",
       with(same2, "kernel", Shape{Dim(3), Dim(3)}), "f32[16, 3, 3, 3]"},
      {Op::conv_weight_gradient, "f16[0, 4, 9]; f16[0, 6, 5]",
       with(with(windows({2}, {1, 1}, {1}), "groups", i(2)), "kernel", Shape{Dim(3)}), "f16[6, 2, 3]"},
      {Op::conv_weight_gradient, "f32[1, 4, 9]; f32[1, 6, 6]", with(one, "kernel", Shape{Dim(3)}),
       "f32[6, 4, 3]"},
      {Op::conv_weight_gradient, "f32[1, 4, 9]; f32[1, 6, 8]", with(one, "kernel", Shape{Dim(3)}),
       "bad_shape"},
      {Op::conv_weight_gradient, "f32[1, 4, 9]; f32[2, 6, 7]", with(one, "kernel", Shape{Dim(3)}),
       "bad_shape"},
      {Op::conv_weight_gradient, "f32[1, 4, 9]; f32[1, 6, 7, 1]", with(one, "kernel", Shape{Dim(3)}),
       "bad_shape"},
      {Op::conv_weight_gradient, "f32[1, 4, 9]; f32[1, 5, 7]",
       with(with(one, "groups", i(2)), "kernel", Shape{Dim(3)}), "bad_shape"},
      {Op::conv_weight_gradient, "f32[1, 4, 9]; f32[1, 6, 9]", with(one, "kernel", Shape{Dim(0)}),
       "bad_attribute"},
      {Op::conv_weight_gradient, "f32[1, 4, 9]; f32[1, 6, 9]", with(one, "kernel", Shape{Dim(1), Dim(1)}),
       "bad_attribute"},
      {Op::conv_transpose, "f32[n, 4, h]; f32[4, 8, 3]; f32[8]",
       with(windows({2}, {1, 1}, {1}), "output_padding", Ints{1}), "f32[n, 8, 2*h]"},
      {Op::conv_transpose, "f32[1, 4, 5]; f32[4, 3, 2]",
       with(with(two, "output_padding", Ints{0}), "groups", i(2)), "f32[1, 6, 10]"},
      {Op::conv_transpose, "f32[0, 4, 5]; f32[4, 3, 2]", with(two, "output_padding", Ints{0}),
       "f32[0, 3, 10]"},
      {Op::conv_transpose, "f32[1, 4, 5]; f32[3, 3, 2]", with(two, "output_padding", Ints{0}), "bad_shape"},
      {Op::conv_transpose, "f32[1, 4, 5]; f32[4, 3, 2]", with(two, "output_padding", Ints{2}),
       "bad_attribute"},
      {Op::conv_transpose, "f32[1, 4, 1]; f32[4, 3, 2]",
       with(windows({1}, {2, 2}, {1}), "output_padding", Ints{0}), "bad_shape"},
  };
  for (Op op : {Op::max_pool, Op::avg_pool, Op::max_pool_indices}) {
    const bool indices = op == Op::max_pool_indices;
    const auto add = [&](const char* x, Ints kernel, Attrs attrs, bool ceil_mode, const char* values,
                         const char* positions) {
      cases.push_back(
          {op, x, with(with(attrs, "kernel", kernel), "ceil_mode", ceil_mode), indices ? positions : values});
    };
    add("f32[n, 3, 8]", {2}, two, false, "f32[n, 3, 4]", "i64[n, 3, 4]");
    add("f32[n, 3, 9]", {2}, two, false, "f32[n, 3, 4]", "i64[n, 3, 4]");
    add("f32[n, 3, 9]", {2}, two, true, "f32[n, 3, 5]", "i64[n, 3, 5]");
    // The third window would start in the right padding (5 + 1 <= 6): it is dropped.
    add("f32[n, 3, 5]", {2}, windows({3}, {1, 1}, {1}), true, "f32[n, 3, 2]", "i64[n, 3, 2]");
    add("f32[n, 3, h]", {2}, two, false, "f32[n, 3, floordiv(h, 2)]", "i64[n, 3, floordiv(h, 2)]");
    add("f32[n, 3, h]", {3}, windows({1}, {1, 1}, {1}), true, "f32[n, 3, h]", "i64[n, 3, h]");
    add("f32[0, 3, 8]", {2}, two, false, "f32[0, 3, 4]", "i64[0, 3, 4]");
    add("f32[n, 3, 1]", {2}, two, false, "bad_shape", "bad_shape");
    add("f32[3, 8]", {2}, two, false, "bad_shape", "bad_shape");
    add("f32[n, 3, 8]", {2, 2}, two, false, "bad_attribute", "bad_attribute");
    add("f32[n, 3, 8]", {0}, two, false, "bad_attribute", "bad_attribute");
  }
  return cases;
}

TEST(ShapeRules, Windows) { check(window_shapes()); }

}  // namespace aicf::testing
