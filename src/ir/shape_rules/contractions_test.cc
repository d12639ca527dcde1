#include <gtest/gtest.h>

#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {

std::vector<ShapeCase> contraction_shapes() {
  const Attrs scale = {{"scale", 0.125}};
#define AICF_QKV "f32[n, 8, t, 64]; f32[n, 2, s, 64]; f32[n, 2, s, 32]"
  const char* qkv = AICF_QKV;
  return {
      {Op::matmul, "f32[2, 3]; f32[3, 4]", {}, "f32[2, 4]"},
      {Op::matmul, "f32[n, 1, 2, k]; f32[5, k, 4]", {}, "f32[n, 5, 2, 4]"},
      {Op::matmul, "f32[k, n]; f32[m, k]", {{"transpose_x", true}, {"transpose_y", true}}, "f32[n, m]"},
      {Op::matmul, "f32[2, 0]; f32[0, 4]", {}, "f32[2, 4]"},
      {Op::matmul, "i32[0, 3]; i32[3, 4]", {}, "i32[0, 4]"},
      {Op::matmul, "f32[2, 3]; f32[4, 3]", {}, "bad_shape"},
      {Op::matmul, "f32[2, k]; f32[m, 3]", {}, "bad_shape"},
      {Op::matmul, "f32[3]; f32[3, 4]", {}, "bad_shape"},
      {Op::matmul, "f32[2, 2, 3]; f32[3, 3, 4]", {}, "bad_shape"},
      {Op::linear, "f32[n, 5, 3]; f32[3, 4]", {}, "f32[n, 5, 4]"},
      {Op::linear, "f32[3]; f32[4, 3]; f32[4]", {{"transpose_w", true}}, "f32[4]"},
      {Op::linear, "f32[0, 3]; f32[3, 4]; f32[4]", {}, "f32[0, 4]"},
      {Op::linear, "f32[n, 3]; f32[4, 3]", {}, "bad_shape"},
      {Op::linear, "f32[n, 3]; f32[3, 4]; f32[1]", {}, "bad_shape"},
      {Op::linear, "f32[]; f32[3, 4]", {}, "bad_shape"},
      {Op::linear, "f32[2, 3]; f32[2, 3, 4]", {}, "bad_shape"},
      {Op::attention, qkv, scale, "f32[n, 8, t, 32]"},
      {Op::attention, "f32[1, 4, 0, 8]; f32[1, 4, 0, 8]; f32[1, 4, 0, 8]", scale, "f32[1, 4, 0, 8]"},
      {Op::attention, "f32[n, h, t, 64]; f32[n, h, s, 64]; f32[n, h, s, 64]; bool[n, 1, 1, s]", scale,
       "f32[n, h, t, 64]"},
      {Op::attention, "f32[n, 3, t, 64]; f32[n, 2, s, 64]; f32[n, 2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[n, 2, t, 64]; f32[n, 2, s, 32]; f32[n, 2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[n, 2, t, 64]; f32[m, 2, s, 64]; f32[m, 2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[n, 2, t, 64]; f32[n, 2, s, 64]; f32[n, 2, t, 64]", scale, "bad_shape"},
      {Op::attention, "f32[2, t, 64]; f32[2, s, 64]; f32[2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[1, 2, t, 8]; f32[1, 2, s, 8]; f32[1, 2, s, 8]; f32[t, s, 1]", scale, "bad_shape"},
      {Op::attention, "f32[1, 2, t, 8]; f32[1, 2, s, 8]; f32[1, 2, s, 8]; f32[t, s]", scale,
       "f32[1, 2, t, 8]"},
      {Op::attention, "f32[1, 2, t, 8]; f32[1, 2, s, 8]; f32[1, 2, s, 8]; i64[t, s]", scale, "bad_dtype"},
      {Op::attention, qkv, {{"scale", 1.0}, {"softcap", -1.0}}, "bad_attribute"},
      {Op::attention, qkv, {{"scale", 1.0}, {"window", int64_t{7}}}, "f32[n, 8, t, 32]"},
      {Op::attention, qkv, {{"scale", 1.0}, {"window", int64_t{-1}}}, "bad_attribute"},
      {Op::attention_lse, qkv, scale, "f32[n, 8, t, 32]; f32[n, 8, t]"},
      {Op::attention_lse, AICF_QKV "; bool[s, t]", scale, "bad_shape"},
      {Op::attention, qkv, {}, "bad_attribute"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 32]; f32[n, 8, t, 32]; bool[t, s]", scale,
       "f32[n, 8, t, 64]; f32[n, 2, s, 64]; f32[n, 2, s, 32]"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 64]; f32[n, 8, t, 32]", scale, "bad_shape"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 32]; f32[n, 8, s, 32]", scale, "bad_shape"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 32]; f32[n, 8, t, 32]; bool[s, t]", scale,
       "bad_shape"},
  };
}

TEST(ShapeRules, Contractions) { check(contraction_shapes()); }

}  // namespace aicf::testing
