#include <gtest/gtest.h>

#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {

std::vector<ShapeCase> pointwise_shapes() {
  std::vector<ShapeCase> cases = {
      {Op::add, "f32[2, 3]; f32[3]", {}, "f32[2, 3]"},
      {Op::add, "f32[]; i64[]", {}, "bad_dtype"},
      {Op::add, "f32[n, 1]; f32[1, m]", {}, "f32[n, m]"},
      {Op::add, "f32[n, 4]; f32[n, 4]", {}, "f32[n, 4]"},
      {Op::add, "f32[0]; f32[1]", {}, "f32[0]"},
      {Op::add, "f32[0]; f32[2]", {}, "bad_shape"},
      {Op::add, "f32[n]; f32[m]", {}, "bad_shape"},
      {Op::add, "f32[n]; f32[4]", {}, "bad_shape"},
      {Op::add, "f32[2]; f32[3]", {}, "bad_shape"},
      {Op::select, "bool[n, 1]; f32[]; f32[4]", {}, "f32[n, 4]"},
      {Op::select, "bool[2]; f32[3]; f32[3]", {}, "bad_shape"},
      {Op::clamp, "i32[2, n]; i32[]; i32[n]", {}, "i32[2, n]"},
      {Op::cast, "f32[n]", {{"dtype", DType::boolean}}, "bool[n]"},
      {Op::gelu, "f32[n]", {{"approximate", s("tanh")}}, "f32[n]"},
      {Op::gelu, "f32[n]", {{"approximate", s("fast")}}, "bad_attribute"},
      {Op::is_inf, "f16[n]", {{"positive", false}}, "bool[n]"},
  };
  return cases;
}

TEST(ShapeRules, Pointwise) { check(pointwise_shapes()); }

}  // namespace aicf::testing
