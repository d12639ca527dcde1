
#include "autodiff/testing/gradient_operands.h"

namespace aicf::testing {
namespace {

struct Range {
  double lo, hi;
};

// Off the poles and branch points of each function; -2 to 2 elsewhere.
Range range_of(Op op) {
  switch (op) {
    case Op::log:
    case Op::sqrt:
    case Op::rsqrt:
      return {0.2, 3};
    case Op::log1p:
      return {-0.7, 3};
    case Op::tan:
      return {-1.2, 1.2};
    case Op::asin:
    case Op::acos:
    case Op::atanh:
      return {-0.9, 0.9};
    case Op::acosh:
      return {1.2, 4};
    default:
      return {-2, 2};
  }
}

void add_pointwise(Cases& cases) {
  for (Op op : {Op::neg,  Op::abs,     Op::sign, Op::exp,   Op::expm1,   Op::log,   Op::log1p,
                Op::sqrt, Op::rsqrt,   Op::sin,  Op::cos,   Op::tan,     Op::asin,  Op::acos,
                Op::atan, Op::sinh,    Op::cosh, Op::tanh,  Op::asinh,   Op::acosh, Op::atanh,
                Op::erf,  Op::floor,   Op::ceil, Op::trunc, Op::round,   Op::relu,  Op::leaky_relu,
                Op::elu,  Op::sigmoid, Op::silu, Op::gelu,  Op::softplus}) {
    const Range range = range_of(op);
    const std::string name(op_info(op).name);
    cases.push_back({name, op, {x({3, 4}, range.lo, range.hi)}, {}, {{3, "n"}}});
    cases.push_back({name + "_scalar", op, {x({}, range.lo, range.hi)}});
    cases.push_back({name + "_empty", op, {x({0, 3}, range.lo, range.hi)}, {}, {{0, "n"}}});
  }
  for (Op op : {Op::add, Op::sub, Op::mul, Op::div, Op::rem, Op::mod, Op::pow, Op::atan2, Op::max, Op::min}) {
    const std::string name(op_info(op).name);
    const bool positive = op == Op::div || op == Op::rem || op == Op::mod || op == Op::pow;
    const auto operand = [&](Sizes sizes) { return x(std::move(sizes), positive ? 0.5 : -2, 2); };
    cases.push_back({name, op, {operand({3, 4}), operand({3, 4})}, {}, {{3, "n"}}});
    cases.push_back({name + "_row", op, {operand({3, 4}), operand({4})}, {}, {{3, "n"}, {4, "m"}}});
    cases.push_back({name + "_outer", op, {operand({3, 1}), operand({2, 1, 4})}, {}, {{3, "n"}, {4, "m"}}});
    cases.push_back({name + "_scalar", op, {operand({}), operand({1, 3})}, {}, {{3, "n"}}});
    cases.push_back({name + "_empty", op, {operand({0, 1}), operand({3})}, {}, {{0, "n"}}});
  }
  cases.push_back({"pow_negative", Op::pow, {x({5}), fixed({5}, 3, 3)}});
  cases.push_back({"pow_of_zero", Op::pow, {valued({3}, {0, 0, 0}), fixed({3}, 2, 2)}});
  cases.push_back({"gelu_tanh", Op::gelu, {x({9}, -4, 4)}, {{"approximate", std::string("tanh")}}});
  cases.push_back({"leaky_relu_steep", Op::leaky_relu, {x({9})}, {{"alpha", 1.5}}});
  cases.push_back({"elu_alpha", Op::elu, {x({9}, -4, 4)}, {{"alpha", 0.3}}});
  cases.push_back({"sigmoid_far", Op::sigmoid, {x({9}, -800, 800)}});
  cases.push_back({"silu_far", Op::silu, {x({9}, -800, 800)}});
  cases.push_back({"softplus_far", Op::softplus, {x({9}, -800, 800)}});
  cases.push_back({"clamp", Op::clamp, {x({3, 7}), x({7}, -1, 0), x({3, 1}, 0.1, 1)}, {}, {{3, "n"}}});
  cases.push_back({"clamp_crossed", Op::clamp, {x({3, 7}), x({}, 1, 1.5), x({7}, -1, 0)}});
  cases.push_back({"cast", Op::cast, {x({5})}, {{"dtype", DType::f64}}});
  cases.push_back({"select", Op::select, {boolean({3, 4}), x({4}), x({2, 1, 1})}, {}, {{3, "n"}, {4, "m"}}});
}

void add_views(Cases& cases) {
  cases.push_back({"reshape", Op::reshape, {x({3, 4})}, {{"shape", Shape{2, 2, 3}}}});
  cases.push_back({"reshape_symbol", Op::reshape, {x({3, 4})}, {{"shape", Shape{3, 2, 2}}}, {{3, "n"}}});
  cases.push_back({"transpose", Op::transpose, {x({2, 3, 4})}, {{"perm", Ints{2, 0, 1}}}, {{3, "n"}}});
  cases.push_back(
      {"broadcast_to", Op::broadcast_to, {x({3, 1})}, {{"shape", Shape{2, 3, 4}}}, {{3, "n"}, {4, "m"}}});
  const auto slice = [](Shape starts, Shape limits, Ints steps) {
    return Attrs{{"starts", std::move(starts)}, {"limits", std::move(limits)}, {"steps", std::move(steps)}};
  };
  cases.push_back({"slice", Op::slice, {x({5, 4})}, slice({1, 0}, {4, 4}, {1, 1})});
  cases.push_back({"slice_symbol", Op::slice, {x({3, 7})}, slice({0, 2}, {3, 6}, {1, 1}), {{3, "n"}}});
  cases.push_back({"slice_steps", Op::slice, {x({7, 9})}, slice({0, 1}, {7, 9}, {2, 3})});
  cases.push_back(
      {"slice_steps_symbol", Op::slice, {x({7, 9})}, slice({1, 0}, {7, 9}, {3, 5}), {{7, "n"}, {9, "m"}}});
  cases.push_back({"slice_one", Op::slice, {x({7})}, slice({6}, {7}, {4})});
  cases.push_back({"slice_nothing", Op::slice, {x({7})}, slice({2}, {2}, {3})});
  cases.push_back({"reverse", Op::reverse, {x({3, 4})}, {{"axes", Ints{0, 1}}}, {{3, "n"}}});
  cases.push_back(
      {"concat", Op::concat, {x({2, 3}), x({2, 1}), x({2, 0}), x({2, 4})}, on_axis(1), {{3, "n"}}});
  cases.push_back(
      {"concat_one_fixed", Op::concat, {x({2, 3}), fixed({1, 3}, 0, 1), x({2, 3})}, on_axis(0), {{2, "n"}}});
  const auto pad = [](Shape low, Shape high, const std::string& mode) {
    return Attrs{{"low", std::move(low)}, {"high", std::move(high)}, {"mode", mode}};
  };
  cases.push_back({"pad", Op::pad, {x({3, 4})}, pad({1, 0}, {2, 5}, "constant"), {{3, "n"}}});
  cases.push_back({"pad_value", Op::pad, {x({3, 4}), x({})}, pad({1, 0}, {2, 5}, "constant"), {{3, "n"}}});
  cases.push_back(
      {"pad_value_empty", Op::pad, {x({0, 4}), x({})}, pad({1, 0}, {2, 5}, "constant"), {{0, "n"}}});
  for (const char* mode : {"edge", "reflect", "wrap"})
    cases.push_back(
        {std::string("pad_") + mode, Op::pad, {x({3, 4})}, pad({1, 2}, {2, 0}, mode), {{3, "n"}}});
  for (const char* mode : {"edge", "reflect", "wrap"})
    cases.push_back(
        {std::string("pad_after_") + mode, Op::pad, {x({3, 4})}, pad({0, 2}, {2, 0}, mode), {{3, "n"}}});
}

void add_indexing(Cases& cases) {
  cases.push_back(
      {"gather", Op::gather, {x({5, 3}), index({2, 4}, -5, 4)}, on_axis(0), {{3, "n"}, {4, "m"}}});
  cases.push_back(
      {"gather_middle", Op::gather, {x({2, 5, 3}), index({4, 2}, 0, 4)}, on_axis(1), {{3, "n"}, {4, "m"}}});
  cases.push_back({"gather_scalar", Op::gather, {x({2, 5, 3}), index({}, 0, 2)}, on_axis(2)});
  cases.push_back({"gather_i32", Op::gather, {x({5}), {Operand::Kind::kIndex32, {7}, 0, 4}}, on_axis(0)});
  cases.push_back({"gather_nothing", Op::gather, {x({5, 3}), index({0}, 0, 4)}, on_axis(0), {{0, "n"}}});
  cases.push_back({"gather_elements", Op::gather_elements, {x({4, 3}), index({6, 2}, -4, 3)}, on_axis(0)});
  cases.push_back({"gather_nd", Op::gather_nd, {x({3, 4, 2}), index({5, 2}, 0, 2)}, {}, {{5, "n"}}});
  cases.push_back({"gather_nd_batch",
                   Op::gather_nd,
                   {x({2, 3, 4, 2}), index({2, 3, 5, 1}, -4, 3)},
                   {{"batch_dims", int64_t{2}}},
                   {{3, "n"}, {5, "m"}}});
  for (const std::string reduction : {"none", "add", "mul", "max", "min"}) {
    cases.push_back({"scatter_elements_" + reduction,
                     Op::scatter_elements,
                     {x({4, 3}), index({6, 2}, -4, 3), x({6, 2})},
                     {{"axis", int64_t{0}}, {"reduction", reduction}}});
    cases.push_back({"scatter_nd_" + reduction,
                     Op::scatter_nd,
                     {x({3, 4, 2}), index({5, 2}, 0, 2), x({5, 2})},
                     {{"reduction", reduction}},
                     {{5, "n"}}});
  }
  cases.push_back({"scatter_nd_slices",
                   Op::scatter_nd,
                   {x({3, 4}), index({6, 1}, 0, 2), x({6, 4})},
                   {{"reduction", std::string("none")}},
                   {{4, "n"}}});
  cases.push_back({"scatter_elements_zeros",
                   Op::scatter_elements,
                   {valued({4}, {0, 2, 0, 3}), indices({5}, {0, 1, 1, 2, 3}), valued({5}, {5, 0, 7, 0, 4})},
                   {{"axis", int64_t{0}}, {"reduction", std::string("mul")}}});
}

void add_reductions(Cases& cases) {
  for (Op op : {Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min, Op::reduce_mean,
                Op::reduce_logsumexp}) {
    const std::string name(op_info(op).name);
    cases.push_back({name, op, {x({2, 5, 3})}, reduction({1}, false), {{2, "n"}, {5, "m"}}});
    cases.push_back({name + "_keep", op, {x({2, 5, 3})}, reduction({-1, 0}, true), {{2, "n"}, {3, "m"}}});
    cases.push_back({name + "_none", op, {x({4})}, reduction({}, false)});
    cases.push_back({name + "_one", op, {x({4, 1})}, reduction({1}, false), {{4, "n"}}});
    cases.push_back({name + "_empty", op, {x({0, 2})}, reduction({1}, false), {{0, "n"}}});
  }
  cases.push_back({"reduce_sum_of_nothing", Op::reduce_sum, {x({2, 0})}, reduction({1}, false), {{0, "n"}}});
  cases.push_back({"reduce_prod_zeros",
                   Op::reduce_prod,
                   {valued({3, 3}, {0, 2, 3, 0, 0, 5, 1, -2, 4})},
                   reduction({1}, false)});
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      const Attrs attrs = {{"axis", int64_t{1}}, {"exclusive", exclusive}, {"reverse", reverse}};
      const std::string suffix = std::string(exclusive ? "_exclusive" : "") + (reverse ? "_reverse" : "");
      cases.push_back({"cumsum" + suffix, Op::cumsum, {x({2, 5, 2})}, attrs, {{5, "n"}}});
      cases.push_back({"cumprod" + suffix, Op::cumprod, {x({2, 5, 2})}, attrs, {{5, "n"}}});
      cases.push_back({"cumprod_zeros" + suffix,
                       Op::cumprod,
                       {valued({3, 4}, {2, 0, 3, 4, 0, 5, 0, 2, 1, 2, 3, 0})},
                       attrs});
    }
  cases.push_back({"cumsum_empty", Op::cumsum, {x({2, 0})}, on_axis(1), {{0, "n"}}});
  cases.push_back({"sort", Op::sort, {x({3, 5})}, on_axis(1), {{5, "n"}}});
  cases.push_back({"sort_descending", Op::sort, {x({4, 2})}, {{"axis", int64_t{0}}, {"descending", true}}});
  cases.push_back({"top_k", Op::top_k, {x({3, 6})}, {{"k", Shape{2}}, {"axis", int64_t{1}}}, {{3, "n"}}});
  cases.push_back({"top_k_smallest",
                   Op::top_k,
                   {x({5, 2})},
                   {{"k", Shape{3}}, {"axis", int64_t{0}}, {"largest", false}}});
  for (Op op : {Op::softmax, Op::log_softmax}) {
    const std::string name(op_info(op).name);
    cases.push_back({name, op, {x({3, 5}, -5, 5)}, {}, {{3, "n"}, {5, "m"}}});
    cases.push_back({name + "_axis", op, {x({2, 5, 3})}, on_axis(1), {{5, "n"}}});
    cases.push_back({name + "_one", op, {x({4, 1})}, {}, {{4, "n"}}});
    cases.push_back({name + "_empty", op, {x({2, 0})}, {}, {{0, "n"}}});
  }
  cases.push_back(
      {"cross_entropy", Op::cross_entropy, {x({6, 5}), index({6}, 0, 4)}, {}, {{6, "n"}, {5, "m"}}});
  cases.push_back({"cross_entropy_ignore",
                   Op::cross_entropy,
                   {x({4, 3}), indices({4}, {2, -1, 0, -1})},
                   {{"ignore_index", int64_t{-1}}},
                   {{4, "n"}}});
  cases.push_back({"cross_entropy_all_ignored",
                   Op::cross_entropy,
                   {x({2, 3}), indices({2}, {1, 1})},
                   {{"ignore_index", int64_t{1}}}});
  cases.push_back({"cross_entropy_empty", Op::cross_entropy, {x({0, 3}), index({0}, 0, 1)}, {}, {{0, "n"}}});
  for (int64_t chunk : {0, 2}) {
    const Attrs attrs = {{"dtype", DType::f64}, {"ignore_index", int64_t{-1}}, {"chunk", chunk}};
    const std::string name = "linear_cross_entropy_" + std::to_string(chunk);
    cases.push_back(
        {name, Op::linear_cross_entropy, {x({5, 3}), x({3, 4}), indices({5}, {2, -1, 0, 3, 1})}, attrs});
    cases.push_back({name + "_backward",
                     Op::linear_cross_entropy_backward,
                     {x({5, 3}), x({3, 4}), indices({5}, {2, -1, 0, 3, 1}), x({})},
                     attrs});
  }
}

void add_norms(Cases& cases) {
  cases.push_back({"layer_norm", Op::layer_norm, {x({2, 3, 6}), x({6}), x({6})}, {}, {{2, "n"}, {3, "m"}}});
  cases.push_back({"layer_norm_plain", Op::layer_norm, {x({4, 6})}, {{"epsilon", 1e-3}}, {{6, "n"}}});
  cases.push_back({"layer_norm_bias", Op::layer_norm, {x({4, 6}), kNone, x({6})}});
  cases.push_back(
      {"layer_norm_axes", Op::layer_norm, {x({2, 3, 4}), x({3, 4}), x({3, 4})}, on_axis(1), {{2, "n"}}});
  cases.push_back({"layer_norm_all", Op::layer_norm, {x({3, 4}), x({3, 4}), x({3, 4})}, on_axis(0)});
  cases.push_back({"layer_norm_empty", Op::layer_norm, {x({0, 6}), x({6}), x({6})}, {}, {{0, "n"}}});
  cases.push_back({"rms_norm", Op::rms_norm, {x({2, 3, 6}), x({6})}, {}, {{2, "n"}, {3, "m"}}});
  cases.push_back({"rms_norm_axes",
                   Op::rms_norm,
                   {x({2, 3, 4})},
                   {{"axis", int64_t{-2}}, {"epsilon", 1e-6}},
                   {{3, "n"}}});
  cases.push_back({"batch_norm",
                   Op::batch_norm,
                   {x({2, 4, 3}), x({4}), x({4}), x({4}), x({4}, 0.3, 2)},
                   {},
                   {{2, "n"}, {3, "m"}}});
  cases.push_back({"batch_norm_train",
                   Op::batch_norm_train,
                   {x({3, 4, 2, 5}), x({4}), x({4})},
                   {},
                   {{3, "n"}, {5, "m"}}});
  cases.push_back({"batch_norm_train_flat",
                   Op::batch_norm_train,
                   {x({5, 4}), x({4}), x({4})},
                   {{"epsilon", 0.1}},
                   {{5, "n"}}});
  cases.push_back({"group_norm",
                   Op::group_norm,
                   {x({2, 4, 3, 2}), x({4}), x({4})},
                   {{"groups", int64_t{2}}},
                   {{3, "n"}}});
  cases.push_back(
      {"group_norm_plain", Op::group_norm, {x({3, 6, 5})}, {{"groups", int64_t{3}}}, {{3, "n"}, {5, "m"}}});
  cases.push_back({"group_norm_bias", Op::group_norm, {x({2, 4}), kNone, x({4})}, {{"groups", int64_t{1}}}});
}

void add_others(Cases& cases) {
  cases.push_back({"one_hot",
                   Op::one_hot,
                   {index({3, 2}, -4, 3), x({}), x({})},
                   {{"depth", Shape{4}}, {"axis", int64_t{1}}},
                   {{3, "n"}}});
  cases.push_back({"adamw_step",
                   Op::adamw_step,
                   {x({3, 2}), x({3, 2}), x({3, 2}), x({3, 2}, 0.5, 2), index({}, 3, 3), x({}, 0.1, 0.1)},
                   {},
                   {{3, "n"}}});
  Graph body("body");
  const ValueId a = body.add_input("a", {DType::f64, to_shape({3})});
  const ValueId b = body.add_input("b", {DType::f64, to_shape({3})});
  const ValueId product = body.add(Op::mul, {a, b});
  body.add_output(body.add(Op::sin, {product}), "y0");
  body.add_output(body.add(Op::add, {product, a}), "y1");
  cases.push_back({"fused", Op::fused, {x({3}), x({3})}, {{"kind", std::string("test")}}, {}, {body}});
  cases.push_back({"call", Op::call, {x({3}), x({3})}, {{"name", std::string("test")}}, {}, {body}});
}

}  // namespace

std::vector<GradientCase> gradient_cases() {
  Cases cases;
  add_pointwise(cases);
  add_views(cases);
  add_indexing(cases);
  add_reductions(cases);
  add_norms(cases);
  add_contractions(cases);
  add_attention(cases);
  add_ropes(cases);
  add_convolutions(cases);
  add_transposed_convolutions(cases);
  add_pools(cases);
  add_recurrent(cases);
  add_others(cases);
  return cases;
}

}  // namespace aicf::testing
