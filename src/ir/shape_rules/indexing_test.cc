#include <gtest/gtest.h>

#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {

std::vector<ShapeCase> indexing_shapes() {
  const Attrs axis0 = {{"axis", i(0)}}, axis1 = {{"axis", i(1)}};
  return {
      {Op::gather, "f32[8, n]; i64[2, m]", {}, "f32[2, m, n]"},
      {Op::gather, "f32[8, n]; i32[]", {{"axis", i(-1)}}, "f32[8]"},
      {Op::gather, "f32[0, 4]; i64[0]", {}, "f32[0, 4]"},
      {Op::gather, "f32[]; i64[2]", {}, "bad_attribute"},
      {Op::gather, "f32[4]; f32[2]", {}, "bad_dtype"},
      {Op::gather, "f32[4]; i64[2]", axis1, "bad_attribute"},
      {Op::gather_elements, "f32[3, n]; i64[m, n]", axis0, "f32[m, n]"},
      {Op::gather_elements, "f32[3, 4]; i64[7, 2]", axis0, "f32[7, 2]"},
      {Op::gather_elements, "f32[3, 4]; i64[2, 5]", axis0, "bad_shape"},
      {Op::gather_elements, "f32[3, n]; i64[2, m]", axis0, "f32[2, m]"},  // check_range_fit compares m and n
      {Op::gather_elements, "f32[3, 4]; i64[2]", axis0, "bad_shape"},
      {Op::gather_nd, "f32[2, 3, n]; i64[5, 2]", {}, "f32[5, n]"},
      {Op::gather_nd, "f32[n, 3, 4]; i64[n, m, 1]", {{"batch_dims", i(1)}}, "f32[n, m, 4]"},
      {Op::gather_nd, "f32[3]; i64[1]", {}, "f32[]"},
      {Op::gather_nd, "f32[3, 4]; i64[0, 2]", {}, "f32[0]"},
      {Op::gather_nd, "f32[3, 4]; i64[5, 3]", {}, "bad_shape"},
      {Op::gather_nd, "f32[3, 4]; i64[]", {}, "bad_shape"},
      {Op::gather_nd, "f32[3, 4]; i64[n]", {}, "size_not_static"},
      {Op::gather_nd, "f32[3, 4]; i64[5, 1]", {{"batch_dims", i(1)}}, "bad_shape"},
      {Op::gather_nd, "f32[3, 4]; i64[3, 1]", {{"batch_dims", i(2)}}, "bad_attribute"},
      {Op::scatter_elements, "f32[3, n]; i64[m, n]; f32[m, n]", axis0, "f32[3, n]"},
      {Op::scatter_elements, "f32[3, 4]; i64[0, 4]; f32[0, 4]", axis0, "f32[3, 4]"},
      {Op::scatter_elements, "f32[3, 4]; i64[2, 4]; f32[2, 3]", axis0, "bad_shape"},
      {Op::scatter_elements, "f32[3, 4]; i64[2, 5]; f32[2, 5]", axis0, "bad_shape"},
      {Op::scatter_elements,
       "f32[3]; i64[3]; f32[3]",
       {{"axis", i(0)}, {"reduction", s("sub")}},
       "bad_attribute"},
      {Op::scatter_elements,
       "bool[3]; i64[3]; bool[3]",
       {{"axis", i(0)}, {"reduction", s("add")}},
       "bad_attribute"},
      {Op::scatter_nd, "f32[8, n]; i64[m, 1]; f32[m, n]", {}, "f32[8, n]"},
      {Op::scatter_nd, "f32[8, 4]; i64[2]; f32[]", {{"reduction", s("max")}}, "f32[8, 4]"},
      {Op::scatter_nd, "f32[8, 4]; i64[0, 1]; f32[0, 4]", {}, "f32[8, 4]"},
      {Op::scatter_nd, "f32[8, n]; i64[m, 1]; f32[m, 4]", {}, "bad_shape"},
      {Op::one_hot, "i64[2, n]; f32[]; f32[]", {{"depth", Ints{5}}}, "f32[2, n, 5]"},
      {Op::one_hot, "i64[2, n]; f32[]; f32[]", {{"depth", dims({"m"})}, {"axis", i(0)}}, "f32[m, 2, n]"},
      {Op::one_hot, "i64[0]; f32[]; f32[]", {{"depth", Ints{0}}}, "f32[0, 0]"},
      {Op::one_hot, "i64[2]; f32[1]; f32[]", {{"depth", Ints{5}}}, "bad_shape"},
      {Op::one_hot, "i64[2]; f32[]; f32[]", {{"depth", Ints{5}}, {"axis", i(2)}}, "bad_attribute"},
      {Op::one_hot, "i64[2]; f32[]; f32[]", {{"depth", Ints{-5}}}, "bad_attribute"},
  };
}

TEST(ShapeRules, Indexing) { check(indexing_shapes()); }

}  // namespace aicf::testing
