#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ir/reference/testing/op_case.h"

namespace aicf {
namespace {

const double kLn3 = std::log(3.0);

Attrs axis(int64_t value) { return {{"axis", value}}; }
Attrs norm(double epsilon, int64_t axis = -1) { return {{"epsilon", epsilon}, {"axis", axis}}; }
Attrs attend(double scale, bool causal = false, double softcap = 0) {
  return {{"scale", scale}, {"causal", causal}, {"softcap", softcap}};
}

void add_softmax(std::vector<OpCase>& rows) {
  rows.push_back({Op::softmax, {t({2, 2}, {1000, 1000, -kInf, 5})}, {}, {t({2, 2}, {0.5, 0.5, 0, 1})}});
  rows.push_back(
      {Op::softmax, {t({2, 2}, {0, 7, kLn3, 7})}, axis(0), {t({2, 2}, {0.25, 0.5, 0.75, 0.5})}, kWideFloats});
  rows.push_back({Op::softmax,
                  {t({3, 2}, {-kInf, -kInf, kNan, 1, kInf, 1})},
                  {},
                  {t({3, 2}, {kNan, kNan, kNan, kNan, kNan, kNan})}});
  rows.push_back({Op::softmax, {t({2, 0}, {})}, {}, {t({2, 0}, {})}});
  rows.push_back({Op::log_softmax,
                  {t({2, 2}, {1000, 1000, -kInf, 5})},
                  {},
                  {t({2, 2}, {-std::log(2), -std::log(2), -kInf, 0})}});
  rows.push_back({Op::log_softmax,
                  {t({2}, {0, kLn3})},
                  axis(0),
                  {t({2}, {std::log(0.25), std::log(0.75)})},
                  kWideFloats});
  rows.push_back({Op::log_softmax, {t({0, 3}, {})}, {}, {t({0, 3}, {})}});
}

void add_norms(std::vector<OpCase>& rows) {
  const CaseTensor x = t({2, 2}, {1, 3, 5, 7}), scale = t({2}, {2, 4}), bias = t({2}, {1, 2});
  rows.push_back({Op::layer_norm, {x}, norm(0), {t({2, 2}, {-1, 1, -1, 1})}});
  rows.push_back({Op::layer_norm, {x, scale, bias}, norm(3), {t({2, 2}, {0, 4, 0, 4})}});
  rows.push_back({Op::layer_norm, {x, nothing(), bias}, norm(0), {t({2, 2}, {0, 3, 0, 3})}});
  rows.push_back({Op::layer_norm,
                  {t({2, 2}, {1, 3, 3, 1}), t({2, 2}, {1, 1, 2, 2})},
                  norm(0, 0),
                  {t({2, 2}, {-1, 1, 2, -2})}});
  rows.push_back({Op::layer_norm, {t({2, 2}, {5, 5, 1, kNan})}, {}, {t({2, 2}, {0, 0, kNan, kNan})}});
  rows.push_back({Op::layer_norm, {t({0, 2}, {})}, {}, {t({0, 2}, {})}});
  rows.push_back({Op::rms_norm, {t({1, 2}, {1, 7})}, norm(0), {t({1, 2}, {0.2, 1.4})}});
  rows.push_back({Op::rms_norm, {t({1, 2}, {1, 7}), t({2}, {5, 10})}, norm(0), {t({1, 2}, {1, 14})}});
  rows.push_back({Op::rms_norm, {t({2}, {0, 0})}, {}, {t({2}, {0, 0})}});
  rows.push_back(
      {Op::batch_norm,
       {t({1, 2, 2}, {3, 1, 4, 2}), t({2}, {2, 3}), t({2}, {0.5, 1}), t({2}, {1, 2}), t({2}, {4, 1})},
       {{"epsilon", 0.0}},
       {t({1, 2, 2}, {2.5, 0.5, 7, 1})}});
  // Channel 0: 1 and 5; channel 1: 2 and 2.
  rows.push_back(
      {Op::batch_norm_train,
       {t({2, 2, 1}, {1, 2, 5, 2}), t({2}, {3, 1}), t({2}, {1, 7})},
       {{"epsilon", 1.0}},
       {t({2, 2, 1}, {1 - 6 / std::sqrt(5), 7, 1 + 6 / std::sqrt(5), 7}), t({2}, {3, 2}), t({2}, {4, 0})},
       kWideFloats});
  const CaseTensor groups = t({1, 4, 1}, {1, 3, 5, 9});
  rows.push_back(
      {Op::group_norm, {groups}, {{"groups", int64_t{2}}, {"epsilon", 0.0}}, {t({1, 4, 1}, {-1, 1, -1, 1})}});
  rows.push_back({Op::group_norm,
                  {groups, t({4}, {1, 2, 3, 4}), t({4}, {0, 0, 1, 1})},
                  {{"groups", int64_t{2}}, {"epsilon", 0.0}},
                  {t({1, 4, 1}, {-1, 2, -2, 5})}});
  rows.push_back({Op::group_norm,
                  {t({2, 1, 2}, {1, 3, 3, 1})},
                  {{"groups", int64_t{1}}, {"epsilon", 0.0}},
                  {t({2, 1, 2}, {-1, 1, 1, -1})}});
}

// One unit. Sums of 0 open a gate by half; two steps of sums ln 3 open it by 3/4 each.
void add_recurrent(std::vector<OpCase>& rows) {
  const auto cell = [](const char* name, bool keep = true) {
    return Attrs{{"cell", std::string(name)}, {"keep", keep}};
  };
  const CaseTensor none = t({1, 1, 0}, {}), state = t({1, 1, 1}, {8});
  rows.push_back({Op::recurrent,
                  {t({1, 1, 4}, {0, 0, 0, 0}), state, t({1, 4, 1}, {0, 0, 0, 0}), nothing(), state},
                  cell("lstm", false),
                  {t({1, 1, 1}, {std::tanh(4) / 2}), t({1, 1, 1}, {4}), none},
                  kWideFloats});
  rows.push_back({Op::recurrent,
                  {t({1, 1, 3}, {0, 0, 0}), state, t({1, 3, 1}, {0, 0, 0.25}), t({1, 3}, {0, kLn3, -2})},
                  cell("gru"),
                  {t({1, 1, 1}, {6}), none, t({1, 1, 4}, {0.5, 0.75, 0, 0})},
                  kWideFloats});
  rows.push_back({Op::recurrent,
                  {t({3, 1, 1}, {1, 2, -9}), state, t({1, 1, 1}, {0.5})},
                  {{"cell", std::string("rnn_relu")}, {"direction", std::string("reverse")}},
                  {t({3, 1, 1}, {2, 2, 0}), t({3, 1, 0}, {}), t({3, 1, 0}, {})}});
  // dh 4: the second step's goes on by 1/2 to the first, and from there to the state.
  rows.push_back({Op::recurrent_backward,
                  {t({1, 1, 1}, {0.5}), state, t({2, 1, 1}, {1, 3}), t({2, 1, 0}, {}), t({2, 1, 0}, {}),
                   t({2, 1, 1}, {1, 4})},
                  {{"cell", std::string("rnn_relu")}},
                  {t({2, 1, 1}, {3, 4}), t({1, 1, 1}, {1.5}), none}});
}

void add_attention(std::vector<OpCase>& rows) {
  const CaseTensor q0 = t({1, 1, 1, 1}, {0}), q1 = t({1, 1, 1, 1}, {1});
  const CaseTensor k = t({1, 1, 2, 1}, {0, 1}), v = t({1, 1, 2, 1}, {4, 8});
  const auto gives = [](double value) { return std::vector<CaseTensor>{t({1, 1, 1, 1}, {value})}; };
  rows.push_back({Op::attention, {q0, k, v}, attend(1), gives(6)});
  rows.push_back({Op::attention, {q1, k, v}, attend(kLn3), gives(7), kWideFloats});
  rows.push_back({Op::attention, {q1, k, v}, attend(10000, false, kLn3), gives(7)});
  rows.push_back({Op::attention, {q0, k, v, boolean({2}, {1, 0})}, attend(1), gives(4)});
  rows.push_back({Op::attention, {q0, k, v, boolean({1, 1}, {0})}, attend(1), gives(0)});
  rows.push_back({Op::attention, {q0, k, v, t({1, 2}, {0, kLn3})}, attend(1), gives(7), kWideFloats});
  rows.push_back({Op::attention, {q0, k, v, t({1, 2}, {-kInf, -kInf})}, attend(1), gives(0)});
  rows.push_back({Op::attention, {t({1, 1, 1, 1}, {kNan}), k, v}, attend(1), gives(kNan)});
  rows.push_back({Op::attention, {q0, t({1, 1, 0, 1}, {}), t({1, 1, 0, 1}, {})}, attend(1), gives(0)});
  // Weights 1/2 and 1/2 or, with query 1 and scale ln 3, 1/4 and 3/4: the scores' gradients are dout times
  // -2/2 and 2/2, or (4 - 7)/4 and 3 (8 - 7)/4.
  const auto scalars = [](double x) { return t({1, 1, 1, 1}, {x}); };
  rows.push_back({Op::attention_backward,
                  {q0, k, v, scalars(6), scalars(1)},
                  attend(1),
                  {scalars(1), t({1, 1, 2, 1}, {0, 0}), t({1, 1, 2, 1}, {0.5, 0.5})}});
  rows.push_back(
      {Op::attention_backward,
       {q1, k, v, scalars(7), scalars(2)},
       attend(kLn3),
       {scalars(1.5 * kLn3), t({1, 1, 2, 1}, {-1.5 * kLn3, 1.5 * kLn3}), t({1, 1, 2, 1}, {0.5, 1.5})},
       kWideFloats});
  rows.push_back({Op::attention_backward,
                  {q0, k, v, scalars(0), scalars(1), boolean({1, 1}, {0})},
                  attend(1),
                  {scalars(0), t({1, 1, 2, 1}, {0, 0}), t({1, 1, 2, 1}, {0, 0})}});
  // Causal with fewer queries than keys, as many, and more.
  rows.push_back({Op::attention, {q0, k, v}, attend(1, true), gives(6)});
  const CaseTensor q00 = t({1, 1, 2, 1}, {0, 0}), q000 = t({1, 1, 3, 1}, {0, 0, 0});
  rows.push_back({Op::attention, {q00, k, v}, attend(1, true), {t({1, 1, 2, 1}, {4, 6})}});
  rows.push_back({Op::attention, {q000, k, v}, attend(1, true), {t({1, 1, 3, 1}, {0, 4, 6})}});
  // Windows: of the last key, behind only, on both sides; and the logarithm of a row's sum.
  const auto window = [](bool causal, int64_t width) {
    return Attrs{{"scale", 1.0}, {"causal", causal}, {"window", width}};
  };
  rows.push_back({Op::attention, {q0, k, v}, window(true, 1), gives(8)});
  rows.push_back({Op::attention, {q0, k, v}, window(true, 2), gives(6)});
  rows.push_back({Op::attention, {q000, k, v}, window(true, 1), {t({1, 1, 3, 1}, {0, 4, 8})}});
  rows.push_back({Op::attention, {q000, k, v}, window(false, 2), {t({1, 1, 3, 1}, {4, 6, 6})}});
  rows.push_back({Op::attention_lse,
                  {q0, k, v},
                  attend(1),
                  {t({1, 1, 1, 1}, {6}), of(DType::f32, {1, 1, 1}, {std::log(2)})}});
  rows.push_back({Op::attention_lse,
                  {q000, k, v},
                  window(true, 1),
                  {t({1, 1, 3, 1}, {0, 4, 8}), of(DType::f32, {1, 1, 3}, {-kInf, 0, 0})}});
  // Grouped heads: queries 0 and 1 share key head 0, 2 and 3 share key head 1; the second batch row has its
  // own.
  rows.push_back({Op::attention,
                  {t({2, 4, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}), t({2, 2, 1, 1}, {0, 0, 0, 0}),
                   t({2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
                  attend(1),
                  {t({2, 4, 1, 2}, {1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7, 8, 7, 8})}});
  // A mask per batch row and per head.
  rows.push_back({Op::attention,
                  {t({1, 2, 1, 1}, {0, 0}), k, v, boolean({2, 1, 2}, {1, 0, 0, 1})},
                  attend(1),
                  {t({1, 2, 1, 1}, {4, 8})}});
}

void add_rope(std::vector<OpCase>& rows) {
  const CaseTensor x = t({1, 4}, {1, 2, 3, 4}), cosine = t({2}, {0, 1}), sine = t({2}, {1, 0});
  rows.push_back({Op::rope, {x, cosine, sine}, {}, {t({1, 4}, {-3, 2, 1, 4})}});
  rows.push_back({Op::rope, {x, cosine, sine}, {{"interleaved", true}}, {t({1, 4}, {-2, 1, 3, 4})}});
  rows.push_back({Op::rope, {x, t({1}, {0}), t({1}, {1})}, {}, {t({1, 4}, {-2, 1, 3, 4})}});
  rows.push_back({Op::rope,
                  {t({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), t({2, 1}, {1, 0}), t({2, 1}, {0, 1})},
                  {},
                  {t({2, 2, 2}, {1, 2, -4, 3, 5, 6, -8, 7})}});
  rows.push_back({Op::rope, {t({0, 4}, {}), cosine, sine}, {}, {t({0, 4}, {})}});
}

void add_rope_append(std::vector<OpCase>& rows) {
  const CaseTensor cosine = t({2}, {0, 1}), sine = t({2}, {1, 0});
  const CaseTensor x = t({1, 1, 1, 4}, {1, 2, 3, 4}), v = t({1, 1, 1, 1}, {9});
  const CaseTensor keys = t({1, 1, 3, 4}, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}),
                   values = t({1, 1, 3, 1}, {5, 6, 7});
  const CaseTensor keys_out = t({1, 1, 3, 4}, {0, 0, 0, 0, -3, 2, 1, 4, 2, 2, 2, 2}),
                   values_out = t({1, 1, 3, 1}, {5, 9, 7});
  for (const int64_t position : {1, -2})
    rows.push_back({Op::rope_append,
                    {x, x, v, cosine, sine, keys, values, of(DType::i64, {1}, {double(position)})},
                    {},
                    {t({1, 1, 1, 4}, {-3, 2, 1, 4}), keys_out, values_out}});
  // Two sequences at positions of their own, two steps, two query heads.
  rows.push_back(
      {Op::rope_append,
       {t({2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), t({2, 1, 1, 2}, {1, 2, 3, 4}), t({2, 1, 1, 1}, {1, 2}),
        t({1}, {0}), t({1}, {1}), t({2, 1, 2, 2}, {0, 0, 0, 0, 0, 0, 0, 0}), t({2, 1, 2, 1}, {0, 0, 0, 0}),
        of(DType::i64, {2}, {1, 0})},
       {},
       {t({2, 2, 1, 2}, {-2, 1, -4, 3, -6, 5, -8, 7}), t({2, 1, 2, 2}, {0, 0, -2, 1, -4, 3, 0, 0}),
        t({2, 1, 2, 1}, {0, 1, 2, 0})}});
}

void add_losses(std::vector<OpCase>& rows) {
  const Attrs depth = {{"depth", Shape{3}}};
  const Attrs depth_first = {{"depth", Shape{3}}, {"axis", int64_t{0}}};
  for (DType index : {DType::i64, DType::i32}) {
    const CaseTensor indices = of(index, {4}, {1, -1, 3, -4});
    rows.push_back(
        {Op::one_hot, {indices, t(1), t(0)}, depth, {t({4, 3}, {0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0})}});
    rows.push_back(
        {Op::one_hot, {indices, t(0), t(1)}, depth_first, {t({3, 4}, {1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1})}});
    const CaseTensor logits = t({2, 2}, {0, 0, 0, kLn3});
    const double half = std::log(2), quarter = -std::log(0.75);
    rows.push_back(
        {Op::cross_entropy, {logits, of(index, {2}, {0, 1})}, {}, {t((half + quarter) / 2)}, kWideFloats});
    rows.push_back({Op::cross_entropy, {logits, of(index, {2}, {-100, 1})}, {}, {t(quarter)}, kWideFloats});
    rows.push_back(
        {Op::cross_entropy, {logits, of(index, {2}, {1, 1})}, {{"ignore_index", int64_t{1}}}, {t(0)}});
    rows.push_back({Op::cross_entropy, {t({0, 2}, {}), of(index, {0}, {})}, {}, {t(0)}});
    // x w = the logits above; the gradient of a row's logits is its softmax less one at the label, halved.
    const CaseTensor x = t({2, 1}, {0, kLn3}), w = t({1, 2}, {0, 1}), labels = of(index, {2}, {0, 1});
    const Attrs attrs = {{"dtype", DType::f64}};
    rows.push_back({Op::linear_cross_entropy,
                    {x, w, labels},
                    attrs,
                    {of(DType::f64, {}, {(half + quarter) / 2})},
                    {DType::f64}});
    rows.push_back({Op::linear_cross_entropy_backward,
                    {x, w, labels, of(DType::f64, {}, {2})},
                    attrs,
                    {of(DType::f64, {}, {(half + quarter) / 2}), t({2, 1}, {0.5, -0.25}),
                     t({1, 2}, {0.25 * kLn3, -0.25 * kLn3})},
                    {DType::f64}});
  }
  rows.push_back({Op::one_hot, {i64({0}, {}), t(1), t(0)}, depth, {t({0, 3}, {})}});
}

void add_adamw(std::vector<OpCase>& rows) {
  const double update = 2 / (2 + 1e-8);  // both bias-corrected moments are those of a constant gradient 2
  const CaseTensor param = t({1}, {1}), grad = t({1}, {2}), lr = t(0.125);
  rows.push_back({Op::adamw_step,
                  {param, grad, t({1}, {0}), t({1}, {0}), i64({}, {1}), lr},
                  {{"weight_decay", 0.0}},
                  {t({1}, {1 - 0.125 * update}), t({1}, {0.2}), t({1}, {0.004})},
                  kWideFloats});
  rows.push_back({Op::adamw_step,
                  {param, grad, t({1}, {0.2}), t({1}, {0.004}), i64({}, {2}), lr},
                  {},
                  {t({1}, {1 - 0.125 * (update + 0.01)}), t({1}, {0.38}), t({1}, {0.007996})},
                  kWideFloats});
  rows.push_back({Op::adamw_step,
                  {t({0}, {}), t({0}, {}), t({0}, {}), t({0}, {}), i64({}, {1}), lr},
                  {},
                  {t({0}, {}), t({0}, {}), t({0}, {})}});
}

TEST(ReferenceComposites, LabelOutOfRangeIsAnError) {
  const Array logits(DType::f32, {1, 2});
  for (int64_t label : {2, -1}) {
    try {
      run_op(Op::cross_entropy, {logits, Array::from<int64_t>(DType::i64, {1}, {label})});
      ADD_FAILURE() << "label " << label << " was accepted";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code, ErrorCode::kU_index_out_of_range);
      EXPECT_EQ(error.op, "cross_entropy");
      EXPECT_EQ(error.actual, std::to_string(label));
    }
  }
}

}  // namespace

std::vector<OpCase> composites_cases() {
  std::vector<OpCase> rows;
  add_softmax(rows);
  add_norms(rows);
  add_recurrent(rows);
  add_attention(rows);
  add_rope(rows);
  add_rope_append(rows);
  add_losses(rows);
  add_adamw(rows);
  return rows;
}

}  // namespace aicf
