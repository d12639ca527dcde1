#include <gtest/gtest.h>

#include "ir/shape_rules/testing/shape_case.h"

namespace aicf::testing {

std::vector<ShapeCase> composite_shapes() {
  std::vector<ShapeCase> cases = {
      {Op::rope, "f32[n, 8, t, 64]; f32[t, 32]; f32[t, 32]", {}, "f32[n, 8, t, 64]"},
      {Op::rope, "f32[n, 8, t, 64]; f32[n, 1, t, 16]; f32[n, 1, t, 16]", {}, "f32[n, 8, t, 64]"},
      {Op::rope, "f32[0, 4]; f32[0, 2]; f32[0, 2]", {}, "f32[0, 4]"},
      {Op::rope, "f32[t, 64]; f32[t, 33]; f32[t, 33]", {}, "bad_shape"},
      {Op::rope, "f32[t, 64]; f32[t, 32]; f32[32]", {}, "bad_shape"},
      {Op::rope, "f32[t, 64]; f32[s, 32]; f32[s, 32]", {}, "bad_shape"},
      {Op::rope, "f32[64]; f32[32]; f32[32]", {}, "bad_shape"},
      {Op::rope_append,
       "f32[n, 8, t, 64]; f32[n, 2, t, 64]; f32[n, 2, t, 32]; f32[t, 32]; f32[t, 32]; f32[n, 2, l, 64]; "
       "f32[n, 2, l, "
       "32]; i64[n]",
       {},
       "f32[n, 8, t, 64]; f32[n, 2, l, 64]; f32[n, 2, l, 32]"},
      {Op::rope_append,
       "f32[n, 8, t, 64]; f32[n, 2, t, 64]; f32[n, 2, t, 64]; f32[t, 32]; f32[t, 32]; f32[n, 2, l, 64]; "
       "f32[n, 3, l, "
       "64]; i64[1]",
       {},
       "bad_shape"},
      {Op::rope_append,
       "f32[n, 8, t, 64]; f32[n, 2, t, 64]; f32[n, 2, t, 64]; f32[8, t, 32]; f32[8, t, 32]; f32[n, 2, l, "
       "64]; f32[n, 2, "
       "l, 64]; i64[1]",
       {},
       "bad_shape"},
      {Op::recurrent,
       "f32[t, n, 32]; f32[1, n, 8]; f32[1, 32, 8]; f32[1, 32]; f32[1, n, 8]",
       {{"cell", std::string("lstm")}},
       "f32[t, n, 8]; f32[t, n, 8]; f32[t, n, 0]"},
      {Op::recurrent,
       "f16[0, n, 48]; f16[2, n, 8]; f16[2, 24, 8]",
       {{"cell", std::string("gru")}, {"direction", std::string("bidirectional")}, {"keep", true}},
       "f16[0, n, 16]; f16[0, n, 0]; f16[0, n, 64]"},
      {Op::recurrent,
       "f32[t, n, 8]; f32[1, n, 8]; f32[1, 8, 8]",
       {{"cell", std::string("rnn_tanh")}, {"keep", true}},
       "f32[t, n, 8]; f32[t, n, 0]; f32[t, n, 0]"},
      {Op::recurrent,
       "f32[t, n, 32]; f32[1, n, 8]; f32[1, 32, 8]",
       {{"cell", std::string("lstm")}},
       "bad_shape"},
      {Op::recurrent,
       "f32[t, n, 24]; f32[1, n, 8]; f32[1, 24, 8]; -; f32[1, n, 8]",
       {{"cell", std::string("gru")}},
       "bad_shape"},
      {Op::recurrent,
       "f32[t, n, 24]; f32[2, n, 8]; f32[2, 24, 8]",
       {{"cell", std::string("gru")}},
       "bad_shape"},
      {Op::recurrent,
       "f32[t, n, 24]; f32[1, n, 8]; f32[1, 24, 8]",
       {{"cell", std::string("elman")}},
       "bad_attribute"},
      {Op::recurrent_backward,
       "f32[1, 24, 8]; f32[1, n, 8]; f32[t, n, 8]; f32[t, n, 0]; f32[t, n, 32]; f32[t, n, 8]",
       {{"cell", std::string("gru")}},
       "f32[t, n, 24]; f32[1, n, 8]; f32[1, n, 0]"},
      {Op::recurrent_backward,
       "f32[1, 24, 8]; f32[1, n, 8]; f32[t, n, 8]; f32[t, n, 0]; f32[t, n, 0]; f32[t, n, 8]",
       {{"cell", std::string("gru")}},
       "bad_shape"},
      {Op::batch_norm, "f32[n, 3, h]; f32[3]; f32[3]; f32[3]; f32[3]", {}, "f32[n, 3, h]"},
      {Op::batch_norm, "f32[0, c]; f32[c]; f32[c]; f32[c]; f32[c]", {}, "f32[0, c]"},
      {Op::batch_norm, "f32[n, 3, h]; f32[3]; f32[3]; f32[3]; f32[4]", {}, "bad_shape"},
      {Op::batch_norm_train, "f32[n, 3, h]; f32[3]; f32[3]", {}, "f32[n, 3, h]; f32[3]; f32[3]"},
      {Op::batch_norm_train, "f32[n, 3, h]; f32[3]; f32[2]", {}, "bad_shape"},
      {Op::batch_norm, "f32[3]; f32[3]; f32[3]; f32[3]; f32[3]", {}, "bad_shape"},
      {Op::batch_norm, "f32[n, 3]; f32[3]; f32[3]; f32[3]; f32[3]", {{"epsilon", -1.0}}, "bad_attribute"},
      {Op::group_norm, "f32[n, 6, h]; f32[6]; f32[6]", {{"groups", i(3)}}, "f32[n, 6, h]"},
      {Op::group_norm, "f32[0, c]", {{"groups", i(3)}}, "f32[0, c]"},
      {Op::group_norm, "f32[n, 6, h]; -; f32[6]", {{"groups", i(4)}}, "bad_shape"},
      {Op::group_norm, "f32[n, 6, h]; f32[1]", {{"groups", i(2)}}, "bad_shape"},
      {Op::group_norm, "f32[n, 6, h]", {{"groups", i(0)}}, "bad_attribute"},
      {Op::cross_entropy, "f32[n, 10]; i64[n]", {}, "f32[]"},
      {Op::cross_entropy, "f32[0, 10]; i32[0]", {}, "f32[]"},
      {Op::cross_entropy, "f32[n, 10]; i64[m]", {}, "bad_shape"},
      {Op::cross_entropy, "f32[n, 10, 3]; i64[n]", {}, "bad_shape"},
      {Op::cross_entropy, "f32[n, 10]; f32[n]", {}, "bad_dtype"},
      {Op::linear_cross_entropy, "bf16[n, 4]; bf16[4, 10]; i64[n]", {{"dtype", DType::f32}}, "f32[]"},
      {Op::linear_cross_entropy,
       "f32[0, 4]; f32[10, 4]; i32[0]",
       {{"dtype", DType::f32}, {"transpose_w", true}},
       "f32[]"},
      {Op::linear_cross_entropy, "f32[n, 4]; f32[10, 4]; i64[n]", {{"dtype", DType::f32}}, "bad_shape"},
      {Op::linear_cross_entropy, "f32[n, 4]; f32[4, 10]; i64[m]", {{"dtype", DType::f32}}, "bad_shape"},
      {Op::linear_cross_entropy, "f32[n, 4]; f32[4, 10]; i64[n]", {{"dtype", DType::i64}}, "bad_attribute"},
      {Op::linear_cross_entropy,
       "f32[n, 4]; f32[4, 10]; i64[n]",
       {{"dtype", DType::f32}, {"chunk", i(-1)}},
       "bad_attribute"},
      {Op::linear_cross_entropy_backward,
       "bf16[n, 4]; bf16[4, 10]; i64[n]; f32[]",
       {{"dtype", DType::f32}},
       "f32[]; bf16[n, 4]; bf16[4, 10]"},
      {Op::linear_cross_entropy_backward,
       "f32[n, 4]; f32[4, 10]; i64[n]; f32[1]",
       {{"dtype", DType::f32}},
       "bad_shape"},
      {Op::adamw_step,
       "f32[2, n]; f32[2, n]; f32[2, n]; f32[2, n]; i64[]; f32[]",
       {},
       "f32[2, n]; f32[2, n]; f32[2, n]"},
      {Op::adamw_step, "f32[0]; f32[0]; f32[0]; f32[0]; i64[]; f32[]", {}, "f32[0]; f32[0]; f32[0]"},
      {Op::adamw_step, "f32[2]; f32[3]; f32[2]; f32[2]; i64[]; f32[]", {}, "bad_shape"},
      {Op::adamw_step, "f32[2]; f32[2]; f32[2]; f32[2]; i64[1]; f32[]", {}, "bad_shape"},
      {Op::adamw_step, "f32[2]; f32[2]; f32[2]; f32[2]; i32[]; f32[]", {}, "bad_dtype"},
  };
  for (Op op : {Op::layer_norm, Op::rms_norm}) {
    cases.push_back({op, "f32[n, 3, 4]; f32[4]", {}, "f32[n, 3, 4]"});
    cases.push_back({op, "f32[n, 3, 4]; f32[3, 4]", {{"axis", i(1)}}, "f32[n, 3, 4]"});
    cases.push_back({op, "f32[0, 4]", {}, "f32[0, 4]"});
    cases.push_back({op, "f32[n, d]; f32[d]", {}, "f32[n, d]"});
    cases.push_back({op, "f32[n, 4]; f32[1]", {}, "bad_shape"});
    cases.push_back({op, "f32[n, 4]; f32[n, 4]", {}, "bad_shape"});
    cases.push_back({op, "f32[]", {}, "bad_attribute"});
  }
  cases.push_back({Op::layer_norm, "f32[n, 4]; -; f32[4]", {}, "f32[n, 4]"});
  return cases;
}

// A body over inputs of the given types whose outputs are the listed inputs.

TEST(ShapeRules, Composites) { check(composite_shapes()); }

}  // namespace aicf::testing
