#include <gtest/gtest.h>

#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {

std::vector<ShapeCase> reduction_shapes() {
  const Attrs keep = {{"axes", Ints{1, -1}}, {"keepdims", true}};
  std::vector<ShapeCase> cases = {
      {Op::top_k, "f32[2, 8]", {{"k", Ints{3}}, {"axis", i(-1)}}, "f32[2, 3]; i64[2, 3]"},
      {Op::top_k, "f32[n]", {{"k", dims({"m"})}, {"axis", i(0)}}, "f32[m]; i64[m]"},
      {Op::top_k, "f32[0]", {{"k", Ints{0}}, {"axis", i(0)}}, "f32[0]; i64[0]"},
      {Op::top_k, "f32[2]", {{"k", Ints{3}}, {"axis", i(0)}}, "bad_attribute"},
      {Op::top_k, "f32[2]", {{"k", Ints{1, 1}}, {"axis", i(0)}}, "bad_attribute"},
      {Op::sort, "i32[2, n]", {{"axis", i(1)}}, "i32[2, n]; i64[2, n]"},
      {Op::sort, "i32[]", {{"axis", i(0)}}, "bad_attribute"},
      {Op::reduce_max, "bool[n, 2]", {{"axes", Ints{0}}}, "bool[2]"},
      {Op::reduce_sum, "bool[n, 2]", {{"axes", Ints{0}}}, "bad_dtype"},
  };
  for (Op op : {Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min, Op::reduce_mean,
                Op::reduce_logsumexp}) {
    cases.push_back({op, "f32[2, n, 4]", {{"axes", Ints{-2}}}, "f32[2, 4]"});
    cases.push_back({op, "f32[2, n, 4]", keep, "f32[2, 1, 1]"});
    cases.push_back({op, "f32[2, n]", {{"axes", Ints{}}}, "f32[2, n]"});
    cases.push_back({op, "f32[0, n]", {{"axes", Ints{0}}}, "f32[n]"});
    cases.push_back({op, "f32[]", {{"axes", Ints{}}}, "f32[]"});
    cases.push_back({op, "f32[2, 3]", {{"axes", Ints{2}}}, "bad_attribute"});
    cases.push_back({op, "f32[2, 3]", {{"axes", Ints{1, -1}}}, "bad_attribute"});
  }
  for (Op op : {Op::argmax, Op::argmin}) {
    cases.push_back({op, "f32[2, n]", {{"axis", i(-1)}}, "i64[2]"});
    cases.push_back({op, "f32[2, n]", {{"axis", i(0)}, {"keepdims", true}}, "i64[1, n]"});
    cases.push_back({op, "f32[0, 3]", {{"axis", i(1)}}, "i64[0]"});
    cases.push_back({op, "f32[0, 3]", {{"axis", i(0)}}, "bad_shape"});
    cases.push_back({op, "f32[]", {{"axis", i(0)}}, "bad_attribute"});
  }
  for (Op op : {Op::cumsum, Op::cumprod, Op::softmax, Op::log_softmax}) {
    cases.push_back({op, "f32[2, n]", {{"axis", i(-1)}}, "f32[2, n]"});
    cases.push_back({op, "f32[0]", {{"axis", i(0)}}, "f32[0]"});
    cases.push_back({op, "f32[2, n]", {{"axis", i(2)}}, "bad_attribute"});
    cases.push_back({op, "f32[2, n]", {{"axis", i(-3)}}, "bad_attribute"});
  }
  return cases;
}

TEST(ShapeRules, Reductions) { check(reduction_shapes()); }

}  // namespace aicf::testing
