// Gradient cases of contractions, attention, convolutions and pooling.
#include "autodiff/testing/gradient_operands.h"

namespace aicf::testing {

void add_contractions(Cases& cases) {
  for (bool tx : {false, true})
    for (bool ty : {false, true}) {
      const Attrs attrs = {{"transpose_x", tx}, {"transpose_y", ty}};
      const std::string suffix = std::string(tx ? "_tx" : "") + (ty ? "_ty" : "");
      const auto left = [&](Sizes batch) {
        batch.insert(batch.end(), {tx ? 3 : 4, tx ? 4 : 3});
        return x(batch);
      };
      const auto right = [&](Sizes batch) {
        batch.insert(batch.end(), {ty ? 2 : 3, ty ? 3 : 2});
        return x(batch);
      };
      cases.push_back({"matmul" + suffix, Op::matmul, {left({}), right({})}, attrs, {{4, "n"}, {3, "k"}}});
      cases.push_back(
          {"matmul_batch" + suffix, Op::matmul, {left({5}), right({5})}, attrs, {{5, "b"}, {4, "n"}}});
      cases.push_back(
          {"matmul_shared" + suffix, Op::matmul, {left({5, 6}), right({})}, attrs, {{5, "b"}, {4, "n"}}});
      cases.push_back({"matmul_broadcast" + suffix,
                       Op::matmul,
                       {left({1, 5}), right({6, 1})},
                       attrs,
                       {{5, "b"}, {6, "c"}}});
      cases.push_back({"matmul_left_shared" + suffix, Op::matmul, {left({}), right({5})}, attrs, {{5, "b"}}});
    }
  cases.push_back({"matmul_empty", Op::matmul, {x({0, 3}), x({3, 2})}, {}, {{0, "n"}}});
  cases.push_back({"matmul_no_depth", Op::matmul, {x({4, 0}), x({0, 2})}, {}, {{0, "n"}}});
  cases.push_back({"linear", Op::linear, {x({4, 3}), x({3, 2}), x({2})}, {}, {{4, "n"}}});
  cases.push_back({"linear_batch",
                   Op::linear,
                   {x({5, 4, 3}), x({2, 3}), x({2})},
                   {{"transpose_w", true}},
                   {{4, "n"}, {5, "b"}}});
  cases.push_back({"linear_vector", Op::linear, {x({3}), x({3, 2})}});
  cases.push_back({"linear_empty", Op::linear, {x({0, 3}), x({3, 2}), x({2})}, {}, {{0, "n"}}});
}

void add_attention(Cases& cases) {
  const auto attend = [](double scale, bool causal = false, double softcap = 0, int64_t window = 0) {
    return Attrs{{"scale", scale}, {"causal", causal}, {"softcap", softcap}, {"window", window}};
  };
  const std::map<int64_t, std::string> sizes = {{2, "b"}, {5, "t"}, {7, "s"}};
  const auto qkv = [](int64_t heads, int64_t kv_heads, int64_t t, int64_t s) {
    return std::vector<Operand>{x({2, heads, t, 4}), x({2, kv_heads, s, 4}), x({2, kv_heads, s, 3})};
  };
  const auto with = [](std::vector<Operand> operands, Operand mask) {
    operands.push_back(std::move(mask));
    return operands;
  };
  cases.push_back({"attention", Op::attention, qkv(3, 3, 5, 5), attend(0.5), sizes});
  cases.push_back({"attention_causal", Op::attention, qkv(3, 3, 5, 5), attend(0.5, true), sizes});
  cases.push_back({"attention_causal_cache", Op::attention, qkv(3, 3, 5, 7), attend(0.5, true), sizes});
  cases.push_back({"attention_causal_short", Op::attention, qkv(3, 3, 7, 5), attend(0.5, true), sizes});
  cases.push_back({"attention_softcap", Op::attention, qkv(3, 3, 5, 7), attend(1, false, 2.5), sizes});
  cases.push_back({"attention_grouped", Op::attention, qkv(6, 3, 5, 7), attend(0.5, true), sizes});
  cases.push_back({"attention_one_key_head", Op::attention, qkv(6, 1, 5, 7), attend(0.5, false, 3), sizes});
  cases.push_back({"attention_bool_mask", Op::attention, with(qkv(4, 4, 5, 7), boolean({2, 1, 5, 7})),
                   attend(0.5), sizes});
  cases.push_back(
      {"attention_row_mask", Op::attention, with(qkv(4, 2, 5, 7), boolean({7})), attend(0.5, true), sizes});
  cases.push_back({"attention_all_masked", Op::attention, with(qkv(4, 4, 5, 7), boolean({1, 7}, 0, 0)),
                   attend(0.5), sizes});
  cases.push_back({"attention_added_mask",
                   Op::attention,
                   with(qkv(4, 2, 5, 7), x({2, 4, 5, 7})),
                   attend(0.5, false, 5),
                   {{5, "t"}, {7, "s"}}});
  cases.push_back(
      {"attention_added_row", Op::attention, with(qkv(4, 4, 5, 7), x({4, 1, 7})), attend(0.5, true), sizes});
  cases.push_back({"attention_fixed_mask", Op::attention, with(qkv(4, 4, 5, 7), fixed({5, 7}, -2, 2)),
                   attend(0.5, true), sizes});
  cases.push_back({"attention_window", Op::attention, qkv(4, 2, 5, 7), attend(0.5, true, 0, 3), sizes});
  cases.push_back(
      {"attention_window_ahead", Op::attention, qkv(3, 3, 7, 5), attend(0.5, false, 2, 2), sizes});
  cases.push_back({"attention_lse", Op::attention_lse, qkv(6, 3, 5, 7), attend(0.5), sizes});
  cases.push_back(
      {"attention_lse_window", Op::attention_lse, qkv(3, 3, 5, 5), attend(0.5, true, 2, 2), sizes});
  cases.push_back({"attention_no_keys", Op::attention, qkv(4, 4, 5, 0), attend(0.5), {{0, "s"}}});
  cases.push_back({"attention_no_queries", Op::attention, qkv(4, 2, 0, 7), attend(0.5, true), {{0, "t"}}});
  const auto back = [&](int64_t heads, int64_t kv_heads, int64_t t, int64_t s) {
    std::vector<Operand> operands = qkv(heads, kv_heads, t, s);
    operands.insert(operands.end(), 2, x({2, heads, t, 3}));
    return operands;
  };
  // The key heads are as many as batches; only some numbers of them would fit, so neither has a name.
  cases.push_back({"attention_backward",
                   Op::attention_backward,
                   back(4, 2, 5, 7),
                   attend(0.5, true),
                   {{5, "t"}, {7, "s"}}});
  cases.push_back({"attention_backward_softcap", Op::attention_backward,
                   with(back(3, 3, 5, 7), boolean({5, 7})), attend(0.5, false, 2), sizes});
}

void add_ropes(Cases& cases) {
  const Attrs interleaved = {{"interleaved", true}};
  cases.push_back({"rope", Op::rope, {x({2, 3, 5, 8}), x({5, 4}), x({5, 4})}, {}, {{5, "t"}}});
  cases.push_back({"rope_append",
                   Op::rope_append,
                   {x({2, 4, 3, 8}), x({2, 2, 3, 8}), x({2, 2, 3, 5}), x({3, 4}), x({3, 4}), x({2, 2, 9, 8}),
                    x({2, 2, 9, 5}), index({2}, 0, 6)},
                   {},
                   {{3, "t"}}});
  cases.push_back({"rope_part", Op::rope, {x({3, 5, 8}), x({5, 3}), x({5, 3})}, {}, {{5, "t"}}});
  cases.push_back(
      {"rope_interleaved", Op::rope, {x({3, 5, 8}), x({5, 4}), x({5, 4})}, interleaved, {{5, "t"}}});
  cases.push_back(
      {"rope_interleaved_part", Op::rope, {x({3, 5, 8}), x({5, 2}), x({5, 2})}, interleaved, {{5, "t"}}});
}

namespace {

Attrs windows(Ints strides, Ints pads, Ints dilations) {
  return {{"strides", std::move(strides)}, {"pads", std::move(pads)}, {"dilations", std::move(dilations)}};
}
Attrs with(Attrs attrs, const std::string& name, Attr value) {
  attrs.set(name, std::move(value));
  return attrs;
}
Attrs groups(Attrs attrs, int64_t count) { return with(std::move(attrs), "groups", count); }

// The names of the sizes of images.
std::map<int64_t, std::string> image_sizes() { return {{2, "n"}, {7, "h"}, {9, "w"}}; }

}  // namespace

void add_convolutions(Cases& cases) {
  const std::map<int64_t, std::string> sizes = image_sizes();
  cases.push_back({"conv",
                   Op::conv,
                   {x({2, 3, 7, 9}), x({4, 3, 3, 3}), x({4})},
                   windows({1, 1}, {1, 1, 1, 1}, {1, 1}),
                   sizes});
  cases.push_back({"conv_strides",
                   Op::conv,
                   {x({2, 3, 7, 9}), x({4, 3, 3, 3})},
                   windows({2, 3}, {1, 0, 1, 1}, {1, 1}),
                   sizes});
  cases.push_back({"conv_strides_left_over",
                   Op::conv,
                   {x({1, 2, 8, 10}), x({3, 2, 3, 3})},
                   windows({3, 4}, {0, 0, 0, 0}, {1, 1}),
                   {{8, "h"}, {10, "w"}}});
  cases.push_back({"conv_wide_pads",
                   Op::conv,
                   {x({1, 2, 5, 4}), x({3, 2, 3, 2})},
                   windows({4, 3}, {2, 3, 3, 2}, {1, 1}),
                   {{5, "h"}, {4, "w"}}});
  cases.push_back({"conv_dilations",
                   Op::conv,
                   {x({2, 2, 7, 9}), x({3, 2, 2, 3})},
                   windows({2, 1}, {1, 2, 0, 1}, {3, 2}),
                   {{7, "h"}, {9, "w"}}});
  cases.push_back({"conv_groups",
                   Op::conv,
                   {x({3, 4, 7, 9}), x({6, 2, 3, 3}), x({6})},
                   groups(windows({2, 1}, {1, 1, 1, 1}, {1, 1}), 2),
                   {{7, "h"}, {9, "w"}}});
  cases.push_back({"conv_depthwise",
                   Op::conv,
                   {x({2, 3, 7, 9}), x({3, 1, 3, 3})},
                   groups(windows({1, 2}, {1, 1, 1, 1}, {1, 1}), 3),
                   sizes});
  cases.push_back({"conv_point",
                   Op::conv,
                   {x({2, 3, 7, 9}), x({5, 3, 1, 1})},
                   windows({1, 1}, {0, 0, 0, 0}, {1, 1}),
                   sizes});
  cases.push_back({"conv_point_strides",
                   Op::conv,
                   {x({2, 3, 7, 9}), x({5, 3, 1, 1})},
                   windows({2, 2}, {0, 0, 0, 0}, {1, 1}),
                   sizes});
  cases.push_back(
      {"conv_1d", Op::conv, {x({2, 3, 9}), x({4, 3, 5}), x({4})}, windows({2}, {2, 2}, {1}), {{9, "w"}}});
  cases.push_back({"conv_3d",
                   Op::conv,
                   {x({1, 2, 3, 4, 5}), x({2, 2, 2, 3, 2})},
                   windows({1, 2, 2}, {1, 0, 1, 0, 1, 1}, {1, 1, 1})});
  cases.push_back({"conv_no_batch",
                   Op::conv,
                   {x({0, 2, 5}), x({3, 2, 3}), x({3})},
                   windows({1}, {1, 1}, {1}),
                   {{0, "n"}}});
  cases.push_back({"conv_weight_gradient",
                   Op::conv_weight_gradient,
                   {x({2, 4, 7, 9}), x({2, 6, 4, 9})},
                   with(groups(windows({2, 1}, {1, 1, 1, 1}, {1, 1}), 2), "kernel", Shape{Dim(3), Dim(3)})});
}

void add_transposed_convolutions(Cases& cases) {
  const auto transposed = [](Attrs attrs, Ints output_padding) {
    return with(std::move(attrs), "output_padding", std::move(output_padding));
  };
  cases.push_back({"conv_transpose",
                   Op::conv_transpose,
                   {x({2, 3, 4, 5}), x({3, 2, 3, 3}), x({2})},
                   transposed(windows({2, 1}, {1, 0, 0, 1}, {1, 1}), {1, 0}),
                   {{4, "h"}, {5, "w"}}});
  cases.push_back({"conv_transpose_groups",
                   Op::conv_transpose,
                   {x({2, 4, 5}), x({4, 3, 3}), x({6})},
                   groups(transposed(windows({3}, {1, 2}, {2}), {2}), 2),
                   {{5, "w"}}});
  cases.push_back({"conv_transpose_room",
                   Op::conv_transpose,
                   {x({1, 2, 5}), x({2, 2, 3})},
                   transposed(windows({1}, {0, 0}, {3}), {2}),
                   {{5, "w"}}});
}

void add_pools(Cases& cases) {
  const std::map<int64_t, std::string> sizes = image_sizes();
  const auto pool = [](Ints kernel, Ints strides, Ints pads, Ints dilations, bool ceil_mode) {
    return with(
        with(windows(std::move(strides), std::move(pads), std::move(dilations)), "kernel", std::move(kernel)),
        "ceil_mode", ceil_mode);
  };
  for (Op op : {Op::max_pool, Op::avg_pool}) {
    const std::string name(op_info(op).name);
    cases.push_back({name, op, {x({2, 3, 7, 9})}, pool({2, 3}, {2, 3}, {0, 0, 0, 0}, {1, 1}, false), sizes});
    cases.push_back(
        {name + "_tiles", op, {x({2, 3, 6, 9})}, pool({2, 3}, {2, 3}, {0, 0, 0, 0}, {1, 1}, false)});
    cases.push_back(
        {name + "_overlap", op, {x({2, 3, 7, 9})}, pool({3, 3}, {2, 1}, {1, 1, 1, 1}, {1, 1}, false), sizes});
    cases.push_back(
        {name + "_ceil", op, {x({2, 2, 7, 9})}, pool({3, 2}, {3, 2}, {1, 0, 1, 0}, {1, 1}, true), sizes});
    cases.push_back({name + "_dilations",
                     op,
                     {x({1, 2, 7, 9})},
                     pool({2, 3}, {1, 2}, {0, 1, 1, 1}, {2, 3}, false),
                     sizes});
    cases.push_back({name + "_1d", op, {x({2, 2, 9})}, pool({9}, {1}, {0, 0}, {1}, false)});
  }
  cases.push_back({"avg_pool_pads_count",
                   Op::avg_pool,
                   {x({2, 2, 7, 9})},
                   with(pool({3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, true), "count_include_pad", true),
                   sizes});
}

}  // namespace aicf::testing
